//! Unreliable packets leave no faster than over a wire.
//!
//! Reliable senders wait for acknowledgements. Unreliable ones are held back by nothing but the speed of
//! their wire, and here there is none: a sender outruns the receiver as soon as that has to wait for a
//! processor, and the kernel drops what does not fit into its socket. So these packets are sent at the
//! speed that the port reports, and who has to wait lets others run.

use std::time::{Duration, Instant};

use wire::{Opcode, Transport};

use crate::clock::now;

/// At ten gigabits in a second.
const PICOSECONDS_PER_BYTE: u64 = 800;

/// The imagined wire.
pub(super) struct Pace {
    /// When everything that was sent has gone over the wire.
    idle_at: Instant,
    /// So much may wait in front of the wire.
    slack: Duration,
}

impl Pace {
    /// `burst` bytes may be sent at once.
    pub(super) fn new(burst: u32) -> Self {
        Self {
            idle_at: now(),
            slack: transit(burst as usize),
        }
    }

    /// Waits until a batch may be sent, if it is one of those.
    pub(super) fn wait_for(&mut self, batch: &[u8]) {
        if !is_unreliable(batch) {
            return;
        }
        let mut now = now();
        while self.is_full(now) {
            std::thread::yield_now();
            now = crate::clock::now();
        }
        self.enter(now, batch.len());
    }

    fn is_full(&self, now: Instant) -> bool {
        self.idle_at > now + self.slack
    }

    fn enter(&mut self, now: Instant, bytes: usize) {
        self.idle_at = self.idle_at.max(now) + transit(bytes);
    }
}

fn transit(bytes: usize) -> Duration {
    Duration::from_nanos(bytes as u64 * PICOSECONDS_PER_BYTE / 1000)
}

fn is_unreliable(batch: &[u8]) -> bool {
    let opcode = batch.first().copied().and_then(Opcode::from_byte);
    opcode.is_some_and(|it| matches!(it.transport(), Transport::Uc | Transport::Ud))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_the_wire_decides() {
        let mut pace = Pace::new(100_000);
        let start = pace.idle_at;
        pace.enter(start, 100_000);
        assert!(!pace.is_full(start), "a burst goes at once");
        pace.enter(start, 125_000);
        assert!(pace.is_full(start));
        assert!(pace.is_full(start + Duration::from_micros(99)));
        assert!(!pace.is_full(start + Duration::from_micros(100)));
    }

    #[test]
    fn only_unreliable_packets_wait() {
        for (opcode, waits) in [
            (Opcode::RcSendOnly, false),
            (Opcode::RcAcknowledge, false),
            (Opcode::UcWriteMiddle, true),
            (Opcode::UdSendOnly, true),
        ] {
            assert_eq!(is_unreliable(&[opcode.byte(), 0]), waits, "{opcode:?}");
        }
        assert!(!is_unreliable(&[]));
    }
}

//! Pacing of UC and UD packets at the speed that the port reports.
//!
//! A reliable sender waits for acknowledgements. An unreliable one is limited only by the speed of its link,
//! and a virtual device has no such limit: the sender overruns a receiver that waits for a CPU, and the
//! kernel drops what does not fit into its socket. So these packets are sent at the reported speed. A sender
//! that must wait yields the CPU.

use std::time::{Duration, Instant};

use wire::{Opcode, Transport};

use crate::clock::now;

/// Ten gigabits per second.
const PICOSECONDS_PER_BYTE: u64 = 800;

/// The simulated link.
pub(crate) struct Pacer {
    /// When the link has transmitted everything that was sent.
    idle_at: Instant,
    /// How far `idle_at` may be in the future: the length of a burst.
    slack: Duration,
}

impl Pacer {
    /// `burst` bytes may be sent at once.
    pub(crate) fn new(burst: u32) -> Self {
        Self {
            idle_at: now(),
            slack: transit(burst as usize),
        }
    }

    /// Waits until a batch may be sent. Batches of reliable packets do not wait.
    pub(crate) fn wait_for(&mut self, batch: &[u8]) {
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
    fn after_a_burst_packets_leave_at_link_speed() {
        let mut pacer = Pacer::new(100_000);
        let start = pacer.idle_at;
        pacer.enter(start, 100_000);
        assert!(!pacer.is_full(start), "a burst goes at once");
        pacer.enter(start, 125_000);
        assert!(pacer.is_full(start));
        assert!(pacer.is_full(start + Duration::from_micros(99)));
        assert!(!pacer.is_full(start + Duration::from_micros(100)));
    }

    #[test]
    fn a_sender_waits_while_the_link_transmits_what_it_sent_before() {
        let one_millisecond = vec![Opcode::UdSendOnly.byte(); 1_250_000];
        let mut pacer = Pacer::new(0);
        let start = now();
        pacer.wait_for(&one_millisecond);
        pacer.wait_for(&one_millisecond);
        assert!(now() - start >= Duration::from_millis(1));
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

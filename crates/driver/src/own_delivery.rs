//! When packets of a device to its own queue pairs are handed over in memory instead of being sent.
//!
//! They would pass through the loopback interface. While a program captures or shapes packets there, they do.

use std::time::{Duration, Instant};

use net::interface::loopback_use;

/// How long an answer to [`loopback_use`] counts. A capture or a queueing discipline takes effect within twice
/// this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Decides how packets to own queue pairs travel.
pub(crate) struct OwnDelivery {
    /// Whether packets may be handed over: not if the driver itself captures packets or injects faults.
    allowed: bool,
    /// Whether the device has ever sent to itself. Others do not need the check.
    used: bool,
    in_memory: bool,
    check_at: Option<Instant>,
}

impl OwnDelivery {
    pub(crate) fn new(allowed: bool) -> Self {
        Self {
            allowed,
            used: false,
            in_memory: false,
            check_at: None,
        }
    }

    /// Reports that the device has sent packets to itself through a socket.
    pub(crate) fn note_used(&mut self) {
        self.used = true;
    }

    /// Whether the decision must be made again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.allowed && self.used && self.check_at.is_none_or(|at| at <= now)
    }

    /// Makes the decision: whether packets are handed over in memory from now on; `None` if nothing changes.
    pub(crate) fn decide(&mut self, now: Instant) -> Option<bool> {
        self.check_at = Some(now + CHECK_INTERVAL);
        let in_memory = loopback_use().is_none();
        let changed = in_memory != self.in_memory;
        self.in_memory = in_memory;
        changed.then_some(in_memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn only_a_device_that_sends_to_itself_checks_and_not_more_often_than_needed() {
        let start = now();
        let mut delivery = OwnDelivery::new(true);
        assert!(!delivery.is_due(start), "it does not send to itself");
        delivery.note_used();
        assert!(delivery.is_due(start));
        delivery.decide(start);
        assert!(!delivery.is_due(start + CHECK_INTERVAL / 2));
        assert!(delivery.is_due(start + CHECK_INTERVAL));
        let mut forbidden = OwnDelivery::new(false);
        forbidden.note_used();
        assert!(!forbidden.is_due(start));
    }
}

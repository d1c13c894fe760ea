//! Poll back-off: how long the lane's thread leaves the sockets to an application that polled.

use std::time::Duration;

use crate::times::{LOOK, STANDBY};

/// Poll back-off: how long the lane's thread leaves the sockets to an application that polled.
///
/// While an application polls continuously, a second receiver only disturbs it. But some programs poll once
/// and then watch their memory, where data appears only if this thread receives it. So the time adapts, between nothing or [`LOOK`], within which
/// a continuous poller polls again, and [`STANDBY`].
#[derive(Debug)]
pub(crate) struct PollBackoff {
    time: Duration,
    /// How often packets were received since the last probe.
    taken: u32,
    /// How often in a row another thread held the lock.
    lock_misses: u32,
}

impl Default for PollBackoff {
    fn default() -> Self {
        Self {
            time: STANDBY,
            taken: 0,
            lock_misses: 0,
        }
    }
}

impl PollBackoff {
    /// After this many receives the thread probes whether an application would receive the packets.
    const PROBE_INTERVAL: u32 = 64;

    /// How often in a row the thread gives up the lock to an application.
    const MAX_LOCK_MISSES: u32 = 8;

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Whether to wait for the lock. A waiter costs an application that polls a system call at each unlock,
    /// and the application does most of the work anyway. An application that does not poll holds the lock
    /// briefly and does not receive the packets that its call causes.
    pub(crate) fn waits_for_lock(&self, is_polled: bool) -> bool {
        !is_polled || self.lock_misses >= Self::MAX_LOCK_MISSES
    }

    /// Reports whether the thread got the lock.
    pub(crate) fn note_lock(&mut self, is_held: bool) {
        if is_held {
            self.lock_misses = 0;
        } else {
            self.lock_misses += 1;
            self.lengthen();
        }
    }

    /// Whether to leave packets that have just arrived, to see whether an application receives them. Without
    /// such probes a fast thread would receive everything and never notice a slower application.
    pub(crate) fn should_probe(&mut self) -> bool {
        self.taken += 1;
        let probe = self.taken >= Self::PROBE_INTERVAL;
        if probe {
            self.taken = 0;
            self.time = self.time.max(LOOK);
        }
        probe
    }

    /// Adapts the time. If packets are still there, no application received them: shorten it. If
    /// packets woke the thread and are gone, an application has received them: lengthen it.
    pub(crate) fn learn(&mut self, woken: bool, arrived: usize) {
        match (woken, arrived) {
            (_, 1..) => self.shorten(),
            (true, 0) => self.lengthen(),
            (false, 0) => {}
        }
    }

    pub(crate) fn lengthen(&mut self) {
        self.time = (self.time * 2).clamp(LOOK, STANDBY);
    }

    fn shorten(&mut self) {
        self.time = match self.time / 2 {
            half if half < LOOK => Duration::ZERO,
            half => half,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_shrinks_when_packets_wait_and_grows_when_others_receive_them() {
        let mut backoff = PollBackoff::default();
        for _ in 0..8 {
            backoff.learn(true, 1);
        }
        assert_eq!(backoff.time, Duration::ZERO, "packets had to wait");
        backoff.learn(false, 0);
        assert_eq!(backoff.time, Duration::ZERO, "a timer does not change it");
        for _ in 0..8 {
            backoff.learn(true, 0);
        }
        assert_eq!(backoff.time, STANDBY, "an application received them");
    }

    #[test]
    fn the_lock_is_left_to_a_poller_only_a_limited_number_of_times() {
        let mut backoff = PollBackoff::default();
        assert!(backoff.waits_for_lock(false), "no application polls");
        assert!(!backoff.waits_for_lock(true));
        (0..PollBackoff::MAX_LOCK_MISSES).for_each(|_| backoff.note_lock(false));
        assert!(backoff.waits_for_lock(true));
        backoff.note_lock(true);
        assert!(!backoff.waits_for_lock(true));
    }

    #[test]
    fn every_sixty_fourth_receive_is_a_probe() {
        let mut backoff = PollBackoff::default();
        for _ in 0..8 {
            backoff.shorten();
        }
        assert_eq!(backoff.time, Duration::ZERO);
        let probes = (0..2 * PollBackoff::PROBE_INTERVAL).filter(|_| backoff.should_probe());
        assert_eq!(probes.count(), 2);
        assert_eq!(backoff.time, LOOK, "a probe waits this long");
    }
}

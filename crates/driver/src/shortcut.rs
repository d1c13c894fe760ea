//! When packets that stay on this machine go through memory instead of sockets.
//!
//! Through sockets they pass the loopback interface. While a program captures or shapes packets there, it must see them, so
//! they go through sockets.

use std::time::Instant;

use engine::Now;
use net::socket::interface::loopback_use;

use crate::times::RECHECK;

/// When packets to queue pairs of this machine go through memory instead of sockets: within a process, and to
/// other processes of this user that allow it, too. It is several times as fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Shortcut {
    /// While no program captures packets on the loopback interface, and no queueing discipline shapes it.
    #[default]
    Auto,
    /// Always. Captures on the interface do not show these packets.
    Always,
    /// Never.
    Never,
}

impl Shortcut {
    /// From `ROCI_SHORTCUT`: `0` is never, `1` always.
    pub(crate) fn from_switch(switch: Option<bool>) -> Self {
        match switch {
            None => Self::Auto,
            Some(false) => Self::Never,
            Some(true) => Self::Always,
        }
    }
}

/// Decides whether memory is used now.
pub(crate) struct Decision {
    shortcut: Shortcut,
    /// Whether the device has ever sent to itself or to another process of this machine. Others do not need the
    /// check.
    is_needed: bool,
    in_memory: bool,
    /// When the decision expires. `None` if it has: the next send makes it again.
    check_at: Option<Instant>,
}

impl Decision {
    pub(crate) fn new(shortcut: Shortcut) -> Self {
        Self {
            shortcut,
            is_needed: false,
            in_memory: false,
            check_at: None,
        }
    }

    /// Reports that the device has sent packets through a socket that could have used memory.
    pub(crate) fn note_needed(&mut self) {
        self.is_needed = true;
    }

    /// Makes the decision again if it is due: whether packets go through memory from now on; `None` if nothing changes.
    #[inline]
    pub(crate) fn decide_if_due(&mut self, now: &Now) -> Option<bool> {
        self.is_due(now).then(|| self.decide(now.get())).flatten()
    }

    /// Whether the decision must be made again, as far as the time is known.
    #[inline]
    pub(crate) fn is_due(&self, now: &Now) -> bool {
        let is_old = |at| now.known().is_some_and(|now| at <= now);
        self.is_needed
            && match self.shortcut {
                Shortcut::Auto => self.check_at.is_none_or(is_old),
                Shortcut::Always => !self.in_memory,
                Shortcut::Never => false,
            }
    }

    /// When to [expire](Self::expire) the decision: the device may send without knowing the time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.check_at.filter(|_| self.shortcut == Shortcut::Auto)
    }

    /// Expires the decision if it is old.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.check_at = self.check_at.filter(|at| *at > now);
    }

    #[cold]
    fn decide(&mut self, now: Instant) -> Option<bool> {
        self.check_at = Some(now + RECHECK);
        let in_memory = self.shortcut == Shortcut::Always || loopback_use().is_none();
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
    fn only_a_device_with_local_peers_checks_and_not_more_often_than_needed() {
        let start = now();
        let mut decision = Decision::new(Shortcut::Auto);
        assert!(!decision.is_due(&start.into()), "it has no local peer");
        decision.note_needed();
        assert!(decision.is_due(&start.into()));
        decision.decide(start);
        assert!(!decision.is_due(&(start + RECHECK / 2).into()));
        assert!(decision.is_due(&(start + RECHECK).into()));
    }

    #[test]
    fn a_device_that_does_not_know_the_time_checks_after_the_decision_expired() {
        let start = now();
        let unread = || Now::read_by(now);
        let mut decision = Decision::new(Shortcut::Auto);
        decision.note_needed();
        assert!(decision.is_due(&unread()));
        decision.decide(start);
        let expiry = start + RECHECK;
        assert_eq!(decision.deadline(), Some(expiry));
        decision.expire(start + RECHECK / 2);
        assert!(!decision.is_due(&unread()));
        decision.expire(expiry);
        assert!(decision.is_due(&unread()));
        assert_eq!(
            decision.deadline(),
            None,
            "an idle device is not woken again"
        );
    }

    #[test]
    fn always_and_never_are_decided_once() {
        let start = now();
        let mut never = Decision::new(Shortcut::Never);
        never.note_needed();
        assert!(!never.is_due(&start.into()));
        let mut always = Decision::new(Shortcut::Always);
        always.note_needed();
        assert!(always.is_due(&start.into()));
        assert_eq!(always.decide(start), Some(true));
        assert!(!always.is_due(&(start + 2 * RECHECK).into()));
    }

    #[test]
    fn the_variable_says_never_or_always() {
        for (switch, expected) in [
            (None, Shortcut::Auto),
            (Some(false), Shortcut::Never),
            (Some(true), Shortcut::Always),
        ] {
            assert_eq!(Shortcut::from_switch(switch), expected);
        }
    }
}

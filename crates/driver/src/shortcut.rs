//! When packets that stay on this machine go through memory instead of sockets.
//!
//! Through sockets they pass the loopback interface. While a program captures or shapes packets there, it must see them, so
//! they go through sockets.

use std::time::{Duration, Instant};

use net::interface::loopback_use;

/// How long the result of [`loopback_use`] is used before the next packet or poll repeats the check. A capture or a queueing discipline takes effect within twice
/// this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

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
    /// From a value of `ROCI_SHORTCUT`: `0` is never, another value always.
    pub(crate) fn from_text(text: Option<&str>) -> Self {
        match text {
            None => Self::Auto,
            Some("0") => Self::Never,
            Some(_) => Self::Always,
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
    pub(crate) fn decide_if_due(&mut self, now: Instant) -> Option<bool> {
        self.is_due(now).then(|| self.decide(now)).flatten()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_needed
            && match self.shortcut {
                Shortcut::Auto => self.check_at.is_none_or(|at| at <= now),
                Shortcut::Always => !self.in_memory,
                Shortcut::Never => false,
            }
    }

    fn decide(&mut self, now: Instant) -> Option<bool> {
        self.check_at = Some(now + CHECK_INTERVAL);
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
        assert!(!decision.is_due(start), "it has no local peer");
        decision.note_needed();
        assert!(decision.is_due(start));
        decision.decide(start);
        assert!(!decision.is_due(start + CHECK_INTERVAL / 2));
        assert!(decision.is_due(start + CHECK_INTERVAL));
    }

    #[test]
    fn always_and_never_are_decided_once() {
        let start = now();
        let mut never = Decision::new(Shortcut::Never);
        never.note_needed();
        assert!(!never.is_due(start));
        let mut always = Decision::new(Shortcut::Always);
        always.note_needed();
        assert!(always.is_due(start));
        assert_eq!(always.decide(start), Some(true));
        assert!(!always.is_due(start + 2 * CHECK_INTERVAL));
    }

    #[test]
    fn the_variable_says_never_or_always() {
        for (text, expected) in [
            (None, Shortcut::Auto),
            (Some("0"), Shortcut::Never),
            (Some("1"), Shortcut::Always),
        ] {
            assert_eq!(Shortcut::from_text(text), expected);
        }
    }
}

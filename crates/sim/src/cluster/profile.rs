//! What kind of run it is: how many, how fast, how faulty.

use std::time::Duration;

use super::draft::Verb;
use crate::network::Faults;

/// The service that the queue pairs of a run give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Reliable,
    Unreliable,
    Extended,
}

/// The choices that make a run what it is.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) service: Service,
    pub(crate) hosts: usize,
    pub(crate) pairs: usize,
    pub(crate) faults: Faults,
    /// How long hosts let packets wait before they answer.
    pub(crate) lag: Duration,
    /// The application looks at one of so many steps of a host.
    pub(crate) poll_every: usize,
    /// How much time passes at most between two looks of an application.
    pub(crate) pace: Duration,
    /// How many requests an application posts at most at once, and each end in all.
    pub(crate) burst: usize,
    pub(crate) requests: usize,
    pub(crate) verbs: &'static [(u32, Verb)],
    /// The longest message, and the size of the memory around.
    pub(crate) longest: usize,
    pub(crate) arena: usize,
    /// Whether queue pairs share receive queues.
    pub(crate) shares_receives: bool,
    /// Whether receives may be posted late.
    pub(crate) late_receives: bool,
    /// How many of a thousand receives have memory that can't be used.
    pub(crate) poisoned_receives: u32,
    /// How many of a thousand requests must fail.
    pub(crate) violations: u32,
    /// How many of a thousand requests come with one that is refused when it is posted.
    pub(crate) bad_posts: u32,
    /// Whether queue pairs may give only some rights.
    pub(crate) limits_access: bool,
    /// How many of a hundred ends are broken in the middle, and how many drained.
    pub(crate) breaks: u32,
    pub(crate) drains: u32,
    /// How many of a hundred ends try to connect again what is broken.
    pub(crate) reconnections: u32,
    /// How many of a hundred ends deregister memory meanwhile.
    pub(crate) deregistrations: u32,
    /// When which host dies.
    pub(crate) death: Option<(usize, Duration)>,
    /// Whether ends have memory windows.
    pub(crate) windows: bool,
}

impl Profile {
    /// Whether an unreliable service may lose messages: on the way, or because they are refused.
    pub(crate) fn is_lossy(&self) -> bool {
        let refuses = self.late_receives || self.violations > 0;
        self.service == Service::Unreliable && (refuses || !self.faults.are_none())
    }

    /// Whether nothing goes wrong, so that nothing may be done twice.
    pub(crate) fn is_flawless(&self) -> bool {
        self.faults.are_none()
            && !self.late_receives
            && self.violations == 0
            && self.poisoned_receives == 0
            && self.breaks == 0
            && self.death.is_none()
    }
}

//! The parameters of a run.

use std::time::Duration;

use super::valid_requests::Verb;
use crate::network::Faults;

/// The transport service of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Reliable,
    Unreliable,
    Extended,
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) service: Service,
    pub(crate) hosts: usize,
    pub(crate) pairs: usize,
    pub(crate) faults: Faults,
    /// The longest time that hosts wait before they answer.
    pub(crate) lag: Duration,
    /// The application polls after one of this many steps of a host.
    pub(crate) poll_every: usize,
    /// The longest time between two posts of an application.
    pub(crate) pace: Duration,
    /// The most requests per post, and the number of requests of each end.
    pub(crate) burst: usize,
    pub(crate) requests: usize,
    pub(crate) verbs: &'static [(u32, Verb)],
    /// The longest message, and the size of the memory.
    pub(crate) longest: usize,
    pub(crate) memory: usize,
    /// Whether queue pairs share receive queues.
    pub(crate) shares_receives: bool,
    /// Whether receives may be posted late.
    pub(crate) late_receives: bool,
    /// Receives with an invalid key, in per mille.
    pub(crate) poisoned_receives: u32,
    /// Requests that must fail, in per mille.
    pub(crate) violations: u32,
    /// Requests that are accompanied by a post that must be rejected, in per mille.
    pub(crate) bad_posts: u32,
    /// Whether queue pairs may grant only some rights.
    pub(crate) limits_access: bool,
    /// Ends that are moved to ERROR while they work, and ends that are drained, in percent.
    pub(crate) breaks: u32,
    pub(crate) drains: u32,
    /// Ends that connect again after an error, in percent.
    pub(crate) reconnections: u32,
    /// Ends that deregister memory, in percent.
    pub(crate) deregistrations: u32,
    /// The host that goes down, and when.
    pub(crate) death: Option<(usize, Duration)>,
    /// Whether ends have memory windows.
    pub(crate) windows: bool,
}

impl Profile {
    /// Whether an unreliable service may lose messages: in the network, or because they are rejected.
    pub(crate) fn is_lossy(&self) -> bool {
        let rejects = self.late_receives || self.violations > 0;
        self.service == Service::Unreliable && (rejects || !self.faults.are_none())
    }

    /// Whether the run has no faults and no errors, so that nothing may be retransmitted.
    pub(crate) fn is_flawless(&self) -> bool {
        self.faults.are_none()
            && !self.late_receives
            && self.violations == 0
            && self.poisoned_receives == 0
            && self.breaks == 0
            && self.death.is_none()
    }
}

//! The send window of a queue pair: its own, to a peer on this host, or that of the [path](crate::paths) to another host.

use std::time::{Duration, Instant};

use wire::{Psn, Qpn};

use super::local::Local;
use super::repair::Loss;
use crate::now::Now;
use crate::paths::{
    Allowance, INITIAL_RESPONSE_TIMEOUT, Member, News, Paths, RoundTripEstimate, WindowLimits,
    limited,
};

/// The send window of a queue pair.
#[derive(Debug)]
pub(super) enum SendWindow {
    Own(OwnWindow),
    Shared(Box<SharedWindow>),
}

/// A window that nothing else uses.
#[derive(Debug)]
pub(super) struct OwnWindow {
    limits: WindowLimits,
    local: Local,
    estimate: Option<RoundTripEstimate>,
}

/// The window of a path, and what it allowed when it was last asked.
#[derive(Debug)]
pub(super) struct SharedWindow {
    pub(super) member: Member,
    pub(super) allowance: Allowance,
}

impl SendWindow {
    /// A window of its own, with packets of `mtu` bytes.
    pub(super) fn own(limits: WindowLimits, mtu: usize) -> Self {
        Self::Own(OwnWindow {
            limits,
            local: Local::new(limits, mtu),
            estimate: None,
        })
    }

    /// The window of a path.
    pub(super) fn shared(member: Member, mtu: usize, paths: &Paths) -> Self {
        let allowance = paths.allowance(&member, mtu);
        Self::Shared(Box::new(SharedWindow { member, allowance }))
    }

    /// The window in packets of `mtu` bytes.
    pub(super) fn packets(&self, mtu: usize) -> u32 {
        match self {
            Self::Own(own) => {
                let shortest = own.estimate.map(|estimate| estimate.shortest());
                limited(own.local.window(), mtu, &own.limits, shortest)
            }
            Self::Shared(shared) => shared.allowance.window,
        }
    }

    /// How many packets of others it contains.
    pub(super) fn of_others(&self) -> u32 {
        self.as_shared().map_or(0, |it| it.allowance.of_others)
    }

    /// Whether others wait for it.
    pub(super) fn others_wait(&self) -> bool {
        self.as_shared().is_some_and(|it| it.allowance.others_wait)
    }

    pub(super) fn as_shared(&self) -> Option<&SharedWindow> {
        match self {
            Self::Own(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }

    pub(super) fn as_shared_mut(&mut self) -> Option<&mut SharedWindow> {
        match self {
            Self::Own(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }

    pub(super) fn is_in_line(&self) -> bool {
        self.as_shared().is_some_and(|it| it.member.is_in_line())
    }

    pub(super) fn has_turn(&self) -> bool {
        self.as_shared().is_some_and(|it| it.member.has_turn())
    }

    /// When a response is overdue, after it was sent. Unknown before the first measurement.
    pub(super) fn response_timeout(&self) -> Option<Duration> {
        let estimate = match self {
            Self::Own(own) => own.estimate,
            Self::Shared(shared) => shared.allowance.estimate,
        };
        estimate.map(|estimate| estimate.response_timeout())
    }

    /// A round trip was measured.
    pub(super) fn note_round_trip(&mut self, sample: Duration, paths: &mut Paths) {
        match self {
            Self::Own(own) => own.estimate = Some(RoundTripEstimate::after(own.estimate, sample)),
            Self::Shared(shared) => {
                let estimate = paths.note_round_trip(&shared.member, sample);
                shared.allowance.estimate = Some(estimate);
            }
        }
    }

    /// A new packet is sent that requests an acknowledgement.
    pub(super) fn sent(&mut self, psn: Psn, now: Instant, paths: &mut Paths) {
        if let Some(shared) = self.as_shared_mut() {
            paths.sent(&mut shared.member, psn, now);
        }
    }

    /// All packets are sent again.
    pub(super) fn sent_again(&mut self) {
        if let Some(shared) = self.as_shared_mut() {
            shared.member.sent_again();
        }
    }

    /// Packets are acknowledged to a queue pair with a window of its own.
    #[inline]
    pub(super) fn acknowledged_here(&mut self, news: &News) {
        if let Self::Own(own) = self {
            own.local.acknowledged(news);
        }
    }

    /// Packets are acknowledged by another host.
    pub(super) fn acknowledged_there(&mut self, now: Instant, news: &News, paths: &mut Paths) {
        if let Some(shared) = self.as_shared_mut() {
            paths.acknowledged(&mut shared.member, now, news);
        }
    }

    pub(super) fn lost(&mut self, loss: Loss, paths: &mut Paths) {
        let member = match self {
            Self::Own(own) => return own.local.lost(loss),
            Self::Shared(shared) => &shared.member,
        };
        match loss {
            Loss::Packets { again, in_repair } => paths.lost(member, again, again == in_repair),
            Loss::Response => paths.lost(member, 1, true),
            Loss::Timeout { since, is_first } => {
                // Further ones say nothing new of the path: the peer's queue pair is gone.
                if is_first {
                    paths.timed_out(member, since);
                }
            }
        }
    }

    /// A response is overdue. If none was ever measured, the peer is probably gone, and others learn of it in time only if they
    /// don't wait for this queue pair, whose timeout may be long.
    pub(super) fn overdue(&mut self, now: Instant, paths: &mut Paths) {
        if let Self::Shared(shared) = self
            && shared.allowance.estimate.is_none()
            && let Some(since) = now.checked_sub(INITIAL_RESPONSE_TIMEOUT)
        {
            paths.timed_out(&shared.member, since);
        }
    }

    /// Waits until the path takes more.
    pub(super) fn wait(&mut self, queue_pair: Qpn, now: &Now, paths: &mut Paths) {
        if let Some(shared) = self.as_shared_mut() {
            paths.wait(&mut shared.member, queue_pair, now);
        }
    }

    /// Waits for the path no more.
    pub(super) fn leave_line(&mut self, paths: &mut Paths) {
        if let Some(shared) = self.as_shared_mut() {
            paths.leave_line(&mut shared.member);
        }
    }
}

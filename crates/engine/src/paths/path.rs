//! One path: what its queue pairs know of it together.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::{Flow, Psn};

use super::congestion::{Acknowledged, Control, MIN_PACKETS, PathLoss};
use super::delivery::{Delivery, Marks};
use super::estimate::RoundTripEstimate;
use super::line::Line;
use super::pacing::{self, Pacing};
use super::{Member, News, WindowLimits};

/// The maximum number of packets in a window, because small packets cost a receiver more than their
/// bytes.
const MAX_PACKETS: u32 = 2048;

/// How many times the usual maximum a window may have. All of it fits into what a peer keeps.
const MAX_STRETCH: u32 = 16;

/// The window in packets of `mtu` bytes that a control wants, within the limits.
pub(crate) fn limited(
    wanted: u32,
    mtu: usize,
    limits: &WindowLimits,
    shortest_round_trip: Option<Duration>,
) -> u32 {
    let millis = shortest_round_trip.map_or(0, |it| it.as_millis());
    let stretch = u32::try_from(millis).unwrap_or(u32::MAX);
    let room = (limits.max / mtu as u32).min(MAX_PACKETS);
    let max = room * stretch.clamp(1, MAX_STRETCH);
    wanted.clamp(MIN_PACKETS, max.max(MIN_PACKETS))
}

/// The two ends of a path. A network may take several ways between them, one for each UDP port, but all share the links of both
/// hosts, and a thousand queue pairs with ports of their own are to take as much of these as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    source: IpAddr,
    destination: IpAddr,
}

impl Ends {
    pub(crate) fn of(flow: &Flow) -> Self {
        Self {
            source: flow.source,
            destination: flow.destination,
        }
    }
}

/// The path from one address to another.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) ends: Ends,
    /// How many queue pairs use it.
    pub(super) users: u32,
    /// How many packets of all queue pairs are on the network.
    pub(super) on_network: u32,
    pub(super) line: Line,
    /// Whether it is to give a turn to the first in its line.
    pub(super) is_offered: bool,
    /// When the timer is due that ends a pause.
    pub(super) timer: Option<Instant>,
    limits: WindowLimits,
    control: Control,
    delivery: Delivery,
    estimate: Option<RoundTripEstimate>,
    pacing: Pacing,
    /// Losses are those of the round trip in which the first one was told, until as many packets are delivered.
    same_loss_until: u64,
    /// Whether nothing was delivered since a timeout.
    is_silent: bool,
}

impl Path {
    pub(super) fn new(ends: Ends, control: Control, limits: WindowLimits) -> Self {
        Self {
            ends,
            users: 0,
            on_network: 0,
            line: Line::default(),
            is_offered: false,
            timer: None,
            limits,
            control,
            delivery: Delivery::default(),
            estimate: None,
            pacing: Pacing::default(),
            same_loss_until: 0,
            is_silent: false,
        }
    }

    pub(super) fn leave(&mut self, member: &Member) {
        self.users -= 1;
        self.on_network -= member.on_network;
        self.delivery.forget(&member.marks);
    }

    /// The window in packets of `mtu` bytes.
    pub(super) fn window(&self, mtu: usize) -> u32 {
        let shortest = self.estimate.map(|estimate| estimate.shortest());
        limited(self.control.get().window(), mtu, &self.limits, shortest)
    }

    pub(super) fn estimate(&self) -> Option<RoundTripEstimate> {
        self.estimate
    }

    /// Whether nothing was delivered since a timeout.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.pacing.paused_until(now)
    }

    /// The time between two packets, if they are spread.
    fn pause(&self) -> Option<Duration> {
        let shortest = self.estimate?.shortest();
        pacing::pause_on_path(self.control.get().pause(), shortest)
    }

    /// How many packets one send may have.
    pub(super) fn burst(&self) -> u32 {
        self.pause().map_or(u32::MAX, pacing::burst)
    }

    pub(super) fn pause_after(&mut self, packets: u32, now: Instant) {
        if let Some(pause) = self.pause() {
            self.pacing.pause_after(packets, pause, now);
        }
    }

    /// A new packet is sent that requests an acknowledgement.
    pub(super) fn sent(&mut self, marks: &mut Marks, psn: Psn, now: Instant) {
        self.delivery.sent(marks, psn, now);
    }

    /// Nothing more is sent now although the window admits it: the program, or its peer, is the limit.
    pub(super) fn is_limited_by_program(&mut self, on_network: u32) {
        self.delivery.is_limited_by_program(on_network);
    }

    pub(super) fn note_round_trip(&mut self, sample: Duration) -> RoundTripEstimate {
        *self
            .estimate
            .insert(RoundTripEstimate::after(self.estimate, sample))
    }

    pub(super) fn acknowledged(&mut self, member: &mut Member, now: Instant, news: &News) {
        let marks = &mut member.marks;
        let sample =
            (self.delivery).acknowledged(marks, news.oldest, news.packets, news.is_repairing, now);
        self.is_silent = false;
        let of_others = self.on_network - member.on_network;
        self.control.get_mut().acknowledged(&Acknowledged {
            now,
            packets: news.packets,
            outstanding: of_others + news.outstanding,
            is_repairing: news.is_repairing,
            delivered: self.delivery.delivered(),
            sample,
        });
    }

    /// As many packets are lost. `is_new` tells whether the queue pair has told of no loss before that is not repaired.
    pub(super) fn lost(&mut self, again: u32, is_new: bool) {
        let is_new = is_new && self.delivery.delivered() >= self.same_loss_until;
        if is_new {
            self.same_loss_until = self.delivery.delivered() + u64::from(self.on_network);
        }
        let loss = PathLoss::Packets { again, is_new };
        self.control.get_mut().lost(loss);
    }

    /// A queue pair has waited since `since` for an acknowledgement. If others got one, the path is not to blame. Further timeouts
    /// without a sign of the peer say nothing about the rate: the peer or the path is gone.
    pub(super) fn timed_out(&mut self, since: Instant) {
        let has_delivered = self.delivery.latest().is_some_and(|at| at > since);
        if !self.is_silent && !has_delivered {
            self.is_silent = true;
            self.control.get_mut().lost(PathLoss::Silence);
        }
    }

    pub(super) fn notified(&mut self) {
        self.control.get_mut().notified();
    }
}

#[cfg(test)]
mod tests {
    use super::super::congestion::{Congestion, start};
    use super::super::{Paths, WindowLimits};
    use super::*;

    /// Otherwise the path never seems idle again, and idle time counts as time in which little was delivered.
    #[test]
    fn packets_of_a_queue_pair_that_leaves_are_measured_no_more() {
        let mut paths = Paths::default();
        let flow = Flow {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 0xc001,
            destination_port: wire::ROCE_PORT,
        };
        let [mut leaves, mut stays] = [(); 2].map(|()| {
            let member = paths.join(Ends::of(&flow), Congestion::Model, WindowLimits::default());
            member.expect("it is shared")
        });
        paths.sent(&mut leaves, Psn::ZERO, start());
        paths.leave(leaves);
        let now = start() + Duration::from_secs(1);
        paths.sent(&mut stays, Psn::ZERO, now);
        let path = paths.paths.get_mut(stays.path).expect("it has a member");
        assert_eq!(path.delivery.latest(), Some(now));
    }
}

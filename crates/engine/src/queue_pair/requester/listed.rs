//! Lists of what the peer holds behind a missing packet.

use wire::{HeldPackets, Psn};

use super::super::QueuePair;
use super::Requester;
use super::holes::Holes;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::paths::{News, Paths};

impl Requester {
    /// Whether a list with this missing packet tells of packets in flight. During a timeout's repair all are sent again.
    fn can_use(&self, missing: Psn, held: &HeldPackets) -> bool {
        let Some(last) = held.ranges().last() else {
            return false;
        };
        let sent = self.next.ahead_of(missing);
        let is_in_flight = missing.since(self.oldest) >= 0 && missing.since(self.next) < 0;
        is_in_flight && last.end <= sent && !self.goes_back() && self.rnr_wait_until.is_none()
    }

    /// How many packets have arrived according to lists.
    fn known_to_have_arrived(&self) -> u32 {
        let holes = self.holes();
        holes.map_or(0, |holes| holes.arrived_from(self.oldest))
    }

    /// Whether the packet is known to have arrived, according to an earlier list.
    fn has_arrived(&self, psn: Psn) -> bool {
        self.holes()
            .is_some_and(|holes| psn.since(holes.end()) < 0 && holes.missing_from(psn).is_none())
    }

    /// Enters a list into the holes. Returns whether it has news.
    fn enter(&mut self, missing: Psn, held: &HeldPackets) -> bool {
        let holes = self.use_holes();
        holes.extend(missing);
        let mut has_news = false;
        for range in held.ranges() {
            has_news |= holes.arrive(missing + range.start, missing + range.end);
        }
        holes.notice_lost_again();
        has_news
    }
}

impl QueuePair {
    /// The peer lacks the packet `missing` and lists what it holds behind it. Returns whether the list is of use.
    pub(super) fn learn_held(
        &mut self,
        missing: Psn,
        held: &HeldPackets,
        now: &Now,
        device: &mut DeviceState,
    ) -> bool {
        if !self.requester.can_use(missing, held) {
            return false;
        }
        if self.requester.has_arrived(missing) {
            // The peer has dropped what it held, so all of it is sent again.
            self.recover_all(device);
            return true;
        }
        let lost_before = self.requester.holes().map_or(0, Holes::lost);
        let arrived_before = self.requester.known_to_have_arrived();
        if self.requester.enter(missing, held) {
            self.restart_timers(now);
        }
        let arrived = self.requester.known_to_have_arrived();
        let arrived = arrived.saturating_sub(arrived_before);
        self.measure_list(missing, held, arrived, now, &mut device.paths);
        let lost = self.requester.holes().map_or(0, Holes::lost);
        let lost = lost.saturating_sub(lost_before);
        self.count_lost(lost, &mut device.paths);
        self.continue_holes();
        true
    }

    /// What the peer holds shows how long it takes to respond, even though it isn't acknowledged.
    fn measure_list(
        &mut self,
        missing: Psn,
        held: &HeldPackets,
        arrived: u32,
        now: &Now,
        paths: &mut Paths,
    ) {
        let end = held.ranges().last().map_or(0, |range| range.end);
        let requester = &mut self.requester;
        let news = News {
            oldest: missing + end,
            packets: arrived,
            outstanding: requester.in_flight() + arrived,
            is_repairing: true,
        };
        requester.window.acknowledged_here(&news);
        if let Some(at) = now.known() {
            requester.window.acknowledged_there(at, &news, paths);
            requester.measure(missing + end, at, paths);
        }
    }
}

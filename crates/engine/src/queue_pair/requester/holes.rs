//! What the peer lacks: the holes between packets that have arrived.
//!
//! A hole is sent again once. Something that was sent later and has arrived shows that it is lost again: another packet that was
//! sent again, or a new one. No clock is needed for that.

use std::collections::VecDeque;

use wire::Psn;

use super::super::kept_packets::REORDERING;

/// The holes before `end`, in the order of their PSNs. All other packets before `end` have arrived.
#[derive(Debug, Clone)]
pub(super) struct Holes {
    holes: VecDeque<Hole>,
    /// The PSN after the last one that is known to have arrived.
    end: Psn,
    /// How many packets are in holes.
    missing: u32,
    /// How many of them are to be sent again.
    lost: u32,
    /// How many times packets were sent again.
    resends: u32,
    /// The latest packet that was sent again and has arrived, as counted by `resends`.
    arrived: u32,
}

/// Consecutive packets that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hole {
    start: Psn,
    end: Psn,
    state: HoleState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoleState {
    /// It is to be sent again.
    Lost,
    /// It was sent again.
    Resent {
        /// Which resend it was.
        order: u32,
        /// The first PSN that was not sent then.
        next: Psn,
    },
}

impl Hole {
    fn packets(self) -> u32 {
        self.end.ahead_of(self.start)
    }
}

impl Holes {
    /// Nothing at or after `oldest` is known to have arrived.
    pub(super) fn new(oldest: Psn) -> Self {
        Self {
            holes: VecDeque::new(),
            end: oldest,
            missing: 0,
            lost: 0,
            resends: 0,
            arrived: 0,
        }
    }

    /// The PSN after the last one that is known to have arrived.
    pub(super) fn end(&self) -> Psn {
        self.end
    }

    /// How many packets are to be sent again.
    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// How many of the packets before `next` are on their way.
    pub(super) fn on_the_way(&self, next: Psn) -> u32 {
        next.ahead_of(self.end) + self.missing - self.lost
    }

    /// How many packets from `oldest` on are known to have arrived.
    pub(super) fn arrived_from(&self, oldest: Psn) -> u32 {
        let known = u32::try_from(self.end.since(oldest)).unwrap_or(0);
        known.saturating_sub(self.missing)
    }

    /// How many of the packets before `oldest`, which all have arrived, were not known to.
    pub(super) fn news_before(&self, oldest: Psn) -> u32 {
        let beyond = u32::try_from(oldest.since(self.end)).unwrap_or(0);
        let holes = self.holes.iter();
        let holes = holes.take_while(|hole| hole.start.since(oldest) < 0);
        let missing = holes.map(|hole| {
            let within = oldest.ahead_of(hole.start);
            hole.packets().min(within)
        });
        beyond + missing.sum::<u32>()
    }

    /// The first packet to send again.
    pub(super) fn first_lost(&self) -> Option<Psn> {
        let mut lost = self.holes.iter().filter(|it| it.state == HoleState::Lost);
        lost.next().map(|hole| hole.start)
    }

    /// How many packets from this one on are missing.
    pub(super) fn missing_from(&self, psn: Psn) -> Option<u32> {
        let hole = self.holes.get(self.index_after(psn))?;
        (hole.start.since(psn) <= 0).then(|| hole.end.ahead_of(psn))
    }

    /// All packets before `oldest` have arrived.
    pub(super) fn advance(&mut self, oldest: Psn) {
        if let Some(first) = self.holes.front().map(|hole| hole.start) {
            self.fill(first, oldest);
        }
        self.extend(oldest);
    }

    /// All packets before this one have arrived, except those that are known to be missing.
    pub(super) fn extend(&mut self, end: Psn) {
        if end.since(self.end) > 0 {
            self.end = end;
        }
    }

    /// Packets have arrived. Those between them and the `end` so far are missing. Returns whether this is news.
    pub(super) fn arrive(&mut self, start: Psn, stop: Psn) -> bool {
        let filled = self.fill(start, stop);
        let is_beyond = stop.since(self.end) > 0;
        if start.since(self.end) > 0 {
            self.add(self.end, start);
        }
        self.extend(stop);
        filled || is_beyond
    }

    /// These packets are missing. A part that is known to be missing keeps its state.
    pub(super) fn add(&mut self, start: Psn, stop: Psn) {
        let mut at = start;
        let mut index = self.index_after(start);
        while at.since(stop) < 0 {
            let known = self.holes.get(index).copied();
            let known = known.filter(|hole| hole.start.since(stop) < 0);
            let until = known.map_or(stop, |hole| hole.start);
            index += self.put(index, at, until, HoleState::Lost);
            index += 1;
            at = known.map_or(stop, |hole| hole.end);
        }
        self.extend(stop);
    }

    /// A packet is to be sent again, even if it was.
    pub(super) fn lose(&mut self, psn: Psn) {
        self.cut(psn, psn + 1);
        self.add(psn, psn + 1);
    }

    /// Missing packets are sent again, before `next` is sent.
    pub(super) fn resend(&mut self, start: Psn, packets: u32, next: Psn) {
        let Some(missing) = self.missing_from(start) else {
            return;
        };
        let stop = start + packets.min(missing);
        self.resends += 1;
        let state = HoleState::Resent {
            order: self.resends,
            next,
        };
        self.cut(start, stop);
        let index = self.index_after(start);
        self.put(index, start, stop, state);
    }

    /// Notices which packets that were sent again are lost again.
    pub(super) fn notice_lost_again(&mut self) {
        let (arrived, end) = (self.arrived, self.end);
        for hole in &mut self.holes {
            if let HoleState::Resent { order, next } = hole.state
                && (arrived > order || end.since(next) > REORDERING)
            {
                hole.state = HoleState::Lost;
                self.lost += hole.packets();
            }
        }
    }

    /// The index of the first hole that ends after `psn`.
    fn index_after(&self, psn: Psn) -> usize {
        self.holes.partition_point(|it| it.end.since(psn) <= 0)
    }

    /// Packets that were missing have arrived. Returns whether there are any.
    fn fill(&mut self, start: Psn, stop: Psn) -> bool {
        let (packets, newest) = self.cut(start, stop);
        self.arrived = self.arrived.max(newest);
        packets > 0
    }

    /// Removes these packets from the holes. Returns how many there were, and the latest resend among them. What was sent again
    /// together with them, but before them, is lost: the responses of one read arrive in order.
    fn cut(&mut self, start: Psn, stop: Psn) -> (u32, u32) {
        let (before, mut newest) = (self.missing, 0);
        let mut index = self.index_after(start);
        while let Some(hole) = self.holes.get(index).copied()
            && hole.start.since(stop) < 0
        {
            self.take(index);
            if let HoleState::Resent { order, .. } = hole.state {
                newest = newest.max(order);
            }
            index += self.put(index, hole.start, start, HoleState::Lost);
            index += self.put(index, stop, hole.end, hole.state);
        }
        (before - self.missing, newest)
    }

    fn take(&mut self, index: usize) {
        if let Some(hole) = self.holes.remove(index) {
            self.missing -= hole.packets();
            self.lost -= lost(hole);
        }
    }

    /// Inserts a hole, unless it is empty. Returns how many holes it inserted.
    fn put(&mut self, index: usize, start: Psn, end: Psn, state: HoleState) -> usize {
        if end.since(start) <= 0 {
            return 0;
        }
        let hole = Hole { start, end, state };
        self.missing += hole.packets();
        self.lost += lost(hole);
        self.holes.insert(index, hole);
        1
    }
}

/// How many packets of a hole are to be sent again.
fn lost(hole: Hole) -> u32 {
    match hole.state {
        HoleState::Lost => hole.packets(),
        HoleState::Resent { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Psn = Psn::new(0xff_fffc);

    fn lost_packets(holes: &mut Holes) -> Vec<u32> {
        let mut packets = Vec::new();
        while let Some(psn) = holes.first_lost() {
            packets.push(psn.ahead_of(FIRST));
            holes.resend(psn, 1, FIRST + 100);
        }
        packets
    }

    #[test]
    fn what_is_between_arrived_packets_is_sent_again_once() {
        let mut holes = Holes::new(FIRST);
        assert!(holes.arrive(FIRST + 2, FIRST + 5));
        assert!(holes.arrive(FIRST + 6, FIRST + 7));
        assert_eq!(holes.on_the_way(FIRST + 10), 3);
        assert_eq!(lost_packets(&mut holes), [0, 1, 5]);
        assert_eq!(holes.on_the_way(FIRST + 10), 6);
        assert!(!holes.arrive(FIRST + 2, FIRST + 5));
        holes.notice_lost_again();
        assert_eq!(lost_packets(&mut holes), []);
    }

    #[test]
    fn later_resend_that_arrives_shows_that_earlier_ones_are_lost_again() {
        let mut holes = Holes::new(FIRST);
        holes.arrive(FIRST + 4, FIRST + 5);
        assert_eq!(lost_packets(&mut holes), [0, 1, 2, 3]);
        holes.arrive(FIRST + 2, FIRST + 3);
        holes.notice_lost_again();
        assert_eq!(lost_packets(&mut holes), [0, 1]);
    }

    #[test]
    fn new_packets_that_arrive_show_that_resends_are_lost_again() {
        let mut holes = Holes::new(FIRST);
        holes.arrive(FIRST + 1, FIRST + 2);
        holes.resend(FIRST, 1, FIRST + 2);
        holes.arrive(FIRST + 2, FIRST + 5);
        holes.notice_lost_again();
        assert_eq!(holes.first_lost(), None, "three are not enough");
        holes.arrive(FIRST + 5, FIRST + 6);
        holes.notice_lost_again();
        assert_eq!(holes.first_lost(), Some(FIRST));
    }

    #[test]
    fn responses_of_one_read_show_that_those_before_them_are_lost() {
        let mut holes = Holes::new(FIRST);
        holes.arrive(FIRST + 8, FIRST + 9);
        assert_eq!(holes.missing_from(FIRST + 2), Some(6));
        holes.resend(FIRST, 8, FIRST + 9);
        holes.arrive(FIRST + 3, FIRST + 4);
        assert_eq!(holes.first_lost(), Some(FIRST));
        assert_eq!(holes.lost(), 3);
    }

    proptest! {
        /// Compares with a set of packets, and the counts with the holes.
        #[test]
        fn holes_are_those_of_a_set(steps in proptest::collection::vec((0..4_u8, 0..60_u32, 1..9_u32), 0..60)) {
            let mut holes = Holes::new(FIRST);
            let (mut missing, mut end, mut oldest) = (std::collections::BTreeSet::new(), 0, 0);
            for (kind, start, count) in steps {
                let (start, stop) = (start.max(oldest), start.max(oldest) + count);
                match kind {
                    0 => {
                        holes.arrive(FIRST + start, FIRST + stop);
                        missing.extend(end..start.max(end));
                        missing.retain(|psn| !(start..stop).contains(psn));
                    }
                    1 => {
                        holes.add(FIRST + start, FIRST + stop);
                        missing.extend(start..stop);
                    }
                    2 => holes.resend(FIRST + start, count, FIRST + end),
                    _ => {
                        holes.advance(FIRST + start);
                        oldest = start;
                        missing.retain(|psn| *psn >= start);
                        holes.notice_lost_again();
                    }
                }
                end = end.max(if kind == 3 { start } else { stop });
                if kind == 2 {
                    end = holes.end().ahead_of(FIRST);
                }
                let found = (0..80).filter(|psn| holes.missing_from(FIRST + *psn).is_some());
                prop_assert_eq!(found.collect::<Vec<_>>(), missing.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(holes.missing as usize, missing.len());
                prop_assert_eq!(holes.end(), FIRST + end);
                let lost: u32 = holes.holes.iter().map(|hole| lost(*hole)).sum();
                prop_assert_eq!(holes.lost(), lost);
            }
        }
    }
}

//! Repair of losses: packets are sent again in rounds, few at first.
//!
//! A peer that keeps what arrives behind a gap needs only the packets of the gap; a peer that discards it needs all of them. The
//! acknowledgement of a round shows which: after a round that closed a gap, it covers what the peer kept. While a round brings
//! hardly more than it has sent, the next one is twice as large. So a single lost packet costs one packet, and a lost window, or a
//! peer that discards, costs a few round trips. Meanwhile new packets are sent as far as the window allows.

use wire::Psn;

use super::super::QueuePair;
use super::Requester;
use super::congestion::Loss;

/// A round that is acknowledged together with this many times its packets has closed a gap between packets that the peer
/// kept. With alternating losses, every second packet is kept.
const SPARSE: u32 = 4;

/// Losses that are being repaired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repair {
    /// The first PSN that was not sent when the first of them was noticed.
    end: Psn,
    /// The first PSN of the latest round.
    start: Psn,
    /// The PSN after those of the round that were sent.
    until: Psn,
    /// How many packets a round has.
    size: u32,
    /// How many packets of the round are not sent yet.
    left: u32,
    /// How many packets all rounds have.
    total: u32,
}

impl Repair {
    /// Whether packets of the round are to be sent, or not acknowledged.
    fn is_under_way(&self, oldest: Psn) -> bool {
        self.left > 0 || oldest.since(self.until) < 0
    }
}

impl Requester {
    /// Whether the next packet is the last one of a round.
    pub(super) fn ends_round(&self) -> bool {
        self.repair.is_some_and(|repair| repair.left == 1)
    }

    /// Whether losses are being repaired.
    pub(super) fn is_repairing(&self) -> bool {
        self.repair.is_some()
    }

    /// How many packets may be unacknowledged. During a repair, as many as a window may wait at the peer for a missing one, and
    /// are no longer on the network.
    pub(super) fn admitted(&self, mtu: usize) -> u32 {
        let window = self.window.packets(mtu);
        if self.repair.is_some() {
            window * 2
        } else {
            window
        }
    }

    /// Whether all packets from the cursor on are sent again.
    pub(super) fn goes_back(&self) -> bool {
        self.repair.is_none() && self.cursor != self.next
    }

    /// Starts a round at the oldest packet.
    fn begin_round(&mut self) {
        let (oldest, next) = (self.oldest, self.next);
        let repair = self.repair.get_or_insert(Repair {
            end: next,
            start: oldest,
            until: oldest,
            size: 1,
            left: 0,
            total: 0,
        });
        repair.start = oldest;
        repair.until = oldest;
        repair.left = repair.size;
        repair.total += repair.size;
        self.cursor = oldest;
        self.position = 0;
        self.round_trip.sent_again();
    }

    /// The packet before the cursor was sent. After a round, new packets follow.
    pub(super) fn continue_round(&mut self) {
        let Some(repair) = self.repair.as_mut().filter(|repair| repair.left > 0) else {
            return;
        };
        repair.until = self.cursor;
        repair.left -= 1;
        if repair.left == 0 || self.cursor == self.next {
            repair.left = 0;
            self.cursor = self.next;
        }
    }
}

impl QueuePair {
    /// A loss was noticed: sends the oldest packet again, unless it is on its way.
    pub(super) fn repair_loss(&mut self) {
        let requester = &mut self.requester;
        let oldest = requester.oldest;
        if requester.repair.is_some_and(|it| it.is_under_way(oldest)) {
            return;
        }
        requester.begin_round();
        requester.acknowledgement_due = None;
        requester.response_due = None;
        self.count_loss();
    }

    /// No response came for long: sends the oldest packet again. If it, or its acknowledgement, was lost, the response shows what
    /// else was lost.
    pub(super) fn probe(&mut self) {
        let requester = &mut self.requester;
        if requester.goes_back() {
            requester.cursor = requester.oldest;
            requester.position = 0;
            return;
        }
        if let Some(repair) = &mut requester.repair {
            repair.size = 1;
        }
        requester.begin_round();
    }

    /// Packets were acknowledged.
    pub(super) fn advance_repair(&mut self) {
        let requester = &mut self.requester;
        let oldest = requester.oldest;
        let Some(repair) = &mut requester.repair else {
            return;
        };
        // Responses of reads come one after another, so that of the first one does not show that others are lost.
        let awaits = !requester.awaited.is_empty() && oldest.since(repair.until) >= 0;
        if awaits || oldest.since(repair.end) >= 0 {
            requester.repair = None;
            requester.cursor = requester.next;
            return;
        }
        if repair.is_under_way(oldest) || repair.start == repair.until {
            return;
        }
        let brought = oldest.ahead_of(repair.start);
        repair.size = if brought < SPARSE * repair.size {
            repair.size * 2
        } else {
            (repair.size / 2).max(1)
        };
        if oldest == repair.until {
            // The peer has nothing behind the round, and what was sent before the round has arrived or is lost.
            requester.begin_round();
            self.count_loss();
        } else {
            repair.start = repair.until;
        }
    }

    /// Tells the window of the packets of a round, which were lost.
    fn count_loss(&mut self) {
        if let Some(repair) = &self.requester.repair {
            let (again, in_repair) = (repair.size, repair.total);
            self.requester
                .window
                .lost(Loss::Packets { again, in_repair });
        }
    }
}

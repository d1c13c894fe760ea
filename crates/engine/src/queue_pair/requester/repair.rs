//! Repair of losses: packets are sent again in rounds, few at first.
//!
//! A peer that keeps what arrives behind a gap needs only the packets of the gap; a peer that discards it needs all of them. The
//! acknowledgement of a round shows which: after a round that closed a gap, it covers what the peer kept. While a round brings
//! hardly more than it has sent, the next one is twice as large. So a single lost packet costs one packet, and a lost window, or a
//! peer that discards, costs a few round trips. Meanwhile new packets are sent as far as the window allows.
//!
//! A peer that [lists what it holds](wire::held) needs no rounds: the [holes] are known, and each is sent again once.

use std::time::Instant;

use wire::Psn;

use super::super::kept_packets::{MAX_KEPT_AHEAD, MAX_KEPT_BYTES};
use super::super::{PeerRoute, QueuePair};
use super::Requester;
use super::holes::Holes;
use crate::paths::Paths;

/// A round that is acknowledged together with this many times its packets has closed a gap between packets that the peer
/// kept. With alternating losses, every second packet is kept.
const SPARSE: u32 = 4;

/// The longest headers of a packet with data and its ICRC, which a peer keeps as well: BTH, RETH, immediate data.
const MAX_HEADERS: usize = 40;

/// What was lost.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loss {
    /// Packets are sent again: how many, and how many in all since the repair began.
    Packets { again: u32, in_repair: u32 },
    /// Everything is sent again.
    Response,
    /// Nothing was acknowledged since then, so everything is sent again. `is_first`: and it was not before.
    Timeout { since: Instant, is_first: bool },
}

/// Losses that are being repaired.
#[derive(Debug, Clone)]
pub(super) struct Repair {
    /// The first PSN that was not sent when the first of them was noticed.
    end: Psn,
    /// How many packets were to be sent again.
    total: u32,
    way: Way,
}

/// How losses are repaired.
#[derive(Debug, Clone)]
enum Way {
    /// It is not known what the peer lacks.
    Rounds(Rounds),
    /// It is known.
    Holes(Holes),
}

/// The latest round.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    /// Its first PSN.
    start: Psn,
    /// The PSN after those of the round that were sent.
    until: Psn,
    /// How many packets a round has.
    size: u32,
    /// How many packets of the round are not sent yet.
    left: u32,
}

impl Rounds {
    /// Whether packets of the round are to be sent, or not acknowledged.
    fn is_under_way(&self, oldest: Psn) -> bool {
        self.left > 0 || oldest.since(self.until) < 0
    }
}

impl Repair {
    fn rounds_mut(&mut self) -> Option<&mut Rounds> {
        match &mut self.way {
            Way::Rounds(rounds) => Some(rounds),
            Way::Holes(_) => None,
        }
    }
}

impl Requester {
    /// Whether the next packet is the last one of a round, or the last one to be sent again.
    pub(super) fn ends_round(&self) -> bool {
        match self.repair.as_ref().map(|repair| &repair.way) {
            Some(Way::Rounds(rounds)) => rounds.left == 1,
            Some(Way::Holes(holes)) => holes.lost() == 1,
            None => false,
        }
    }

    /// Whether packets of a round are to be sent, or not acknowledged.
    pub(super) fn is_round_under_way(&self) -> bool {
        let way = self.repair.as_ref().map(|repair| &repair.way);
        matches!(way, Some(Way::Rounds(rounds)) if rounds.is_under_way(self.oldest))
    }

    /// Whether losses are being repaired.
    pub(super) fn is_repairing(&self) -> bool {
        self.repair.is_some()
    }

    /// The holes, if they are known.
    pub(super) fn holes(&self) -> Option<&Holes> {
        match &self.repair.as_ref()?.way {
            Way::Holes(holes) => Some(holes),
            Way::Rounds(_) => None,
        }
    }

    /// The holes, to change them.
    pub(super) fn holes_mut(&mut self) -> Option<&mut Holes> {
        match &mut self.repair.as_mut()?.way {
            Way::Holes(holes) => Some(holes),
            Way::Rounds(_) => None,
        }
    }

    /// How many packets would be on the network after `more` new ones. During a repair in rounds, half of what is unacknowledged
    /// waits at the peer for a missing packet.
    pub(super) fn on_network_with(&self, more: u32) -> u32 {
        let own = self.in_flight() + more;
        match self.repair.as_ref().map(|repair| &repair.way) {
            Some(Way::Rounds(_)) => own.div_ceil(2),
            Some(Way::Holes(_)) | None => own,
        }
    }

    /// How many packets of the queue pair may be unacknowledged, if it is alone.
    pub(super) fn admitted(&self, mtu: usize) -> u32 {
        let window = self.window.packets(mtu);
        match self.repair.as_ref().map(|repair| &repair.way) {
            Some(Way::Rounds(_)) => window * 2,
            Some(Way::Holes(_)) | None => window,
        }
    }

    /// Whether the next packet is the one that the peer waits for. It is sent even if the window is full.
    pub(super) fn fills_first_hole(&self) -> bool {
        self.cursor == self.oldest && self.holes().is_some_and(|holes| holes.lost() > 0)
    }

    /// Whether the peer keeps new packets as far ahead as the next ones, if it is like this device.
    pub(super) fn peer_keeps(&self, span: u32, link: &PeerRoute) -> bool {
        let most = (MAX_KEPT_BYTES / (link.mtu() + MAX_HEADERS)) as u32;
        let ahead = self.cursor.ahead_of(self.oldest) + span;
        self.holes().is_none() || !self.sends_new() || ahead <= most.min(MAX_KEPT_AHEAD)
    }

    /// Whether all packets from the cursor on are sent again.
    pub(super) fn goes_back(&self) -> bool {
        self.repair.is_none() && self.cursor != self.next
    }

    /// The repair under way, or one of all losses among the packets that were sent.
    fn repair_mut(&mut self) -> &mut Repair {
        let (oldest, next) = (self.oldest, self.next);
        self.repair.get_or_insert(Repair {
            end: next,
            total: 0,
            way: Way::Rounds(Rounds {
                start: oldest,
                until: oldest,
                size: 1,
                left: 0,
            }),
        })
    }

    /// Repairs the losses by their holes, if it does not yet.
    pub(super) fn use_holes(&mut self) -> &mut Holes {
        let (oldest, next) = (self.oldest, self.next);
        let repair = self.repair_mut();
        if let Way::Rounds(rounds) = repair.way {
            let mut holes = Holes::new(oldest);
            if rounds.is_under_way(oldest) && oldest.since(rounds.until) < 0 {
                holes.add(oldest, rounds.until);
                holes.resend(oldest, rounds.until.ahead_of(oldest), next);
            }
            repair.way = Way::Holes(holes);
        }
        self.holes_mut().expect("they were just set")
    }

    /// Starts a round at the oldest packet.
    fn begin_round(&mut self) {
        let oldest = self.oldest;
        let repair = self.repair_mut();
        let size = repair.rounds_mut().map_or(1, |rounds| rounds.size);
        repair.way = Way::Rounds(Rounds {
            start: oldest,
            until: oldest,
            size,
            left: size,
        });
        repair.total += size;
        self.cursor = oldest;
        self.position = 0;
        self.round_trip.sent_again();
    }

    /// The packets from `start` to the cursor were sent. After a round, or after those of all holes, new packets follow.
    pub(super) fn continue_repair(&mut self, start: Psn) {
        let (cursor, next) = (self.cursor, self.next);
        let Some(repair) = &mut self.repair else {
            return;
        };
        match &mut repair.way {
            Way::Rounds(rounds) if rounds.left > 0 => {
                rounds.until = cursor;
                rounds.left -= 1;
                if rounds.left == 0 || cursor == next {
                    rounds.left = 0;
                    self.cursor = next;
                }
            }
            Way::Rounds(_) => {}
            Way::Holes(holes) => {
                holes.resend(start, cursor.ahead_of(start), next);
                self.turn_to_holes();
            }
        }
    }

    /// Moves the cursor to the first packet that is to be sent again, or to the next new one.
    pub(super) fn turn_to_holes(&mut self) {
        let Some(holes) = self.holes() else { return };
        let target = holes.first_lost().unwrap_or(self.next);
        if target.since(self.cursor) < 0 {
            self.position = 0;
        }
        self.cursor = target;
    }
}

impl QueuePair {
    /// A loss was noticed: sends the oldest packet again, unless it is on its way.
    pub(super) fn repair_loss(&mut self, paths: &mut Paths) {
        let requester = &mut self.requester;
        let oldest = requester.oldest;
        match requester.repair.as_mut().map(|repair| &mut repair.way) {
            Some(Way::Rounds(rounds)) if rounds.is_under_way(oldest) => return,
            Some(Way::Holes(holes)) => {
                holes.add(oldest, oldest + 1);
                requester.turn_to_holes();
                return;
            }
            Some(Way::Rounds(_)) | None => {}
        }
        requester.begin_round();
        requester.acknowledgement_due = None;
        requester.response_due = None;
        self.count_round(paths);
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
        let oldest = requester.oldest;
        match requester.repair.as_mut().map(|repair| &mut repair.way) {
            Some(Way::Holes(holes)) if holes.end() != oldest => {
                holes.lose(oldest);
                requester.turn_to_holes();
                return;
            }
            Some(Way::Rounds(rounds)) => rounds.size = 1,
            Some(Way::Holes(_)) | None => {}
        }
        requester.begin_round();
    }

    /// Packets were acknowledged.
    pub(super) fn advance_repair(&mut self, paths: &mut Paths) {
        let requester = &mut self.requester;
        let oldest = requester.oldest;
        let Some(repair) = &mut requester.repair else {
            return;
        };
        if let Way::Holes(holes) = &mut repair.way {
            holes.advance(oldest);
            return self.continue_holes();
        }
        self.advance_rounds(paths);
    }

    fn advance_rounds(&mut self, paths: &mut Paths) {
        let requester = &mut self.requester;
        let oldest = requester.oldest;
        let Some(Repair {
            end,
            way: Way::Rounds(rounds),
            ..
        }) = &mut requester.repair
        else {
            return;
        };
        // Responses of reads come one after another, so that of the first one does not show that others are lost.
        let awaits = !requester.awaited.is_empty() && oldest.since(rounds.until) >= 0;
        if awaits || oldest.since(*end) >= 0 {
            requester.repair = None;
            requester.cursor = requester.next;
            return;
        }
        if rounds.is_under_way(oldest) || rounds.start == rounds.until {
            return;
        }
        let brought = oldest.ahead_of(rounds.start);
        rounds.size = if brought < SPARSE * rounds.size {
            rounds.size * 2
        } else {
            (rounds.size / 2).max(1)
        };
        if oldest == rounds.until {
            // The peer has nothing behind the round, and what was sent before the round has arrived or is lost.
            requester.begin_round();
            self.count_round(paths);
        } else {
            rounds.start = rounds.until;
        }
    }

    /// The holes have changed. Ends the repair if none is left, or begins to count anew.
    pub(super) fn continue_holes(&mut self) {
        let requester = &mut self.requester;
        let (oldest, next) = (requester.oldest, requester.next);
        let Some(Repair {
            end,
            total,
            way: Way::Holes(holes),
        }) = &mut requester.repair
        else {
            return;
        };
        if oldest.since(*end) < 0 {
            return requester.turn_to_holes();
        }
        if holes.end() == oldest {
            requester.repair = None;
            requester.cursor = next;
            return;
        }
        (*end, *total) = (next, 0);
        requester.turn_to_holes();
    }

    /// As many more packets are lost.
    pub(super) fn count_lost(&mut self, packets: u32, paths: &mut Paths) {
        let requester = &mut self.requester;
        if let Some(repair) = &mut requester.repair
            && packets > 0
        {
            repair.total += packets;
            let (again, in_repair) = (packets, repair.total);
            let loss = Loss::Packets { again, in_repair };
            requester.window.lost(loss, paths);
        }
    }

    /// Tells the window of the packets of a round, which were lost.
    fn count_round(&mut self, paths: &mut Paths) {
        let requester = &mut self.requester;
        if let Some(repair) = &mut requester.repair {
            let in_repair = repair.total;
            let again = repair.rounds_mut().map_or(0, |rounds| rounds.size);
            let loss = Loss::Packets { again, in_repair };
            requester.window.lost(loss, paths);
        }
    }
}

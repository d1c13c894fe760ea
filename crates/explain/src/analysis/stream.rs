//! One direction of requests, and the answers to it.

use std::collections::{BTreeMap, VecDeque};

use wire::{Operation, Psn};

use super::Scene;
use super::trouble::Trouble;
use crate::connection::{Connection, Side};
use crate::id::{ConnectionId, MessageId, PacketId};

/// A sequence number that doesn't wrap: where in the stream something is.
pub(super) type Place = u64;

/// Where a stream starts: far enough from zero for what comes before it.
const BEGIN: Place = 1 << 40;

/// A jump this far is no loss: the queue pair was made anew with the same number.
pub(super) const LONGEST_JUMP: i32 = 1 << 20;

/// How many packets back something is looked for: further than any queue pair goes back.
pub(super) const FAR: usize = 1 << 14;

/// More troubles at a time are those of a hostile capture.
const MOST_TROUBLES: usize = 64;

/// The requests of one end, in their order.
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    /// Who asks.
    pub(super) side: Side,
    /// What a full packet carries; 0 if unknown.
    pub(super) path_mtu: u64,
    pub(super) agreed_psn: Option<Psn>,
    /// What the next new request will have.
    pub(super) next: Option<(Place, Psn)>,
    /// Everything before this place is acknowledged.
    pub(super) acknowledged: Place,
    /// The messages by where they start.
    pub(super) messages: BTreeMap<Place, MessageId>,
    /// Messages that start before this place are settled for good.
    pub(super) settled: Place,
    /// Whether the last message goes on.
    pub(super) goes_on: bool,
    /// Numbers that no packet had, by where they begin.
    pub(super) holes: BTreeMap<Place, Hole>,
    /// Packets that are not acknowledged yet.
    pub(super) under_way: VecDeque<(Place, PacketId)>,
    /// Behind the last place that an answer was seen for.
    pub(super) answered: Place,
    /// Behind the last packet that was sent again.
    pub(super) replayed: Option<Place>,
    pub(super) troubles: Vec<Trouble>,
    /// When the peer was last heard of.
    pub(super) last_heard: Option<u64>,
    /// The request was refused for good.
    pub(super) broken: bool,
    pub(super) ghosts: Few,
    pub(super) orphans: Few,
    pub(super) wrong_sizes: Few,
}

/// Numbers that must have been there but were not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) begin: Place,
    pub(super) end: Place,
    /// The packet behind it.
    pub(super) before: PacketId,
}

/// A message and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: MessageId,
    pub(super) start: Place,
    pub(super) end: Place,
}

/// How many there are, and the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Few {
    pub(super) number: u64,
    pub(super) first: Option<PacketId>,
}

impl Few {
    pub(super) fn add(&mut self, packet: PacketId) {
        self.number += 1;
        self.first.get_or_insert(packet);
    }
}

impl Stream {
    pub(super) fn new(id: ConnectionId, side: Side, connection: &Connection) -> Self {
        Stream {
            connection: id,
            side,
            path_mtu: connection.path_mtu.map_or(0, |mtu| mtu.bytes() as u64),
            agreed_psn: connection.ends[side.index()].agreed_psn,
            next: None,
            acknowledged: BEGIN,
            messages: BTreeMap::new(),
            settled: 0,
            goes_on: false,
            holes: BTreeMap::new(),
            under_way: VecDeque::new(),
            answered: BEGIN,
            replayed: None,
            troubles: Vec::new(),
            last_heard: None,
            broken: false,
            ghosts: Few::default(),
            orphans: Few::default(),
            wrong_sizes: Few::default(),
        }
    }

    /// Begins at a number, behind everything that was before.
    pub(super) fn begin_at(&mut self, psn: Psn) {
        let place = match self.next {
            // Nothing is further back than a number can say.
            Some((place, _)) => place + (1 << 25),
            None => BEGIN,
        };
        self.next = Some((place, psn));
        self.acknowledged = place;
        self.goes_on = false;
        self.answered = place;
        self.replayed = None;
        self.under_way.clear();
        self.settled = place;
    }

    /// Where in the stream a number is, seen from what comes next.
    pub(super) fn place_of(&self, psn: Psn) -> Option<Place> {
        let (place, next) = self.next?;
        Some(place.wrapping_add_signed(psn.since(next).into()))
    }

    /// The number at a place.
    pub(super) fn psn_at(&self, place: Place) -> Psn {
        let (next, psn) = self.next.unwrap_or((BEGIN, Psn::ZERO));
        Psn::new(psn.value().wrapping_sub(next.wrapping_sub(place) as u32))
    }

    /// The message at a place, if it was seen.
    pub(super) fn message_at(&self, place: Place, scene: &Scene<'_>) -> Option<Found> {
        let (&start, &id) = self.messages.range(..=place).next_back()?;
        let end = start + u64::from(scene.messages[id.index()].span);
        (place < end).then_some(Found { id, start, end })
    }

    /// Where there are too many troubles, one more only adds to the last of them. Tells whether it did.
    pub(super) fn joins_the_last(&mut self, add: impl FnOnce(&mut Trouble)) -> bool {
        let too_many = self.troubles.len() >= MOST_TROUBLES;
        if too_many && let Some(last) = self.troubles.last_mut() {
            add(last);
        }
        too_many
    }

    /// Whether the last message is one whose answers take sequence numbers.
    pub(super) fn ends_with_read(&self, scene: &Scene<'_>) -> bool {
        self.messages
            .last_key_value()
            .is_some_and(|(_, id)| scene.messages[id.index()].operation == Operation::ReadRequest)
    }
}

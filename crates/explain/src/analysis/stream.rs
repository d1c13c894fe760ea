//! The requests of one end of a connection, and their answers.

use std::collections::{BTreeMap, VecDeque};

use wire::{Operation, Psn};

use super::Scene;
use super::trouble::Trouble;
use crate::connection::{Connection, Side};
use crate::id::{ConnectionId, MessageId, PacketId};

/// The position in a stream: a PSN that does not wrap.
pub(super) type Place = u64;

/// The position of the first packet. Earlier packets have smaller positions.
const BEGIN: Place = 1 << 40;

/// A larger jump is not a loss: the queue pair was created again with the same number.
pub(super) const LONGEST_JUMP: i32 = 1 << 20;

/// How many packets a search goes back: more than a requester retransmits.
pub(super) const FAR: usize = 1 << 14;

/// The limit of recoveries at the same time, for hostile captures.
const MOST_TROUBLES: usize = 64;

/// The requests of one end, in order.
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    /// The end that sends the requests.
    pub(super) side: Side,
    /// The payload of a full packet; 0 if unknown.
    pub(super) path_mtu: u64,
    pub(super) agreed_psn: Option<Psn>,
    /// The position of the next new request.
    pub(super) next: Option<(Place, Psn)>,
    /// Everything before this position is acknowledged.
    pub(super) acknowledged: Place,
    /// The messages by start position.
    pub(super) messages: BTreeMap<Place, MessageId>,
    /// Messages that start before this position are complete.
    pub(super) settled: Place,
    /// Whether the last message is incomplete.
    pub(super) goes_on: bool,
    /// Missing positions, by start.
    pub(super) holes: BTreeMap<Place, Hole>,
    /// Packets that are not acknowledged yet.
    pub(super) under_way: VecDeque<(Place, PacketId)>,
    /// The position after the last answer.
    pub(super) answered: Place,
    /// The position after the last retransmission.
    pub(super) replayed: Option<Place>,
    pub(super) troubles: Vec<Trouble>,
    /// When the peer last sent a packet.
    pub(super) last_heard: Option<u64>,
    /// A request was rejected with a fatal NAK.
    pub(super) broken: bool,
    pub(super) ghosts: Few,
    pub(super) orphans: Few,
    pub(super) wrong_sizes: Few,
}

/// Positions without a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) begin: Place,
    pub(super) end: Place,
    /// The packet after it.
    pub(super) before: PacketId,
}

/// A message and its positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: MessageId,
    pub(super) start: Place,
    pub(super) end: Place,
}

/// The number of packets, and the first of them.
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

    /// Starts again at a PSN, after all previous positions.
    pub(super) fn begin_at(&mut self, psn: Psn) {
        let place = match self.next {
            // The PSN distance is limited to half of the PSN space.
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

    /// The position of a PSN, relative to the next position.
    pub(super) fn place_of(&self, psn: Psn) -> Option<Place> {
        let (place, next) = self.next?;
        Some(place.wrapping_add_signed(psn.since(next).into()))
    }

    /// The PSN at a position.
    pub(super) fn psn_at(&self, place: Place) -> Psn {
        let (next, psn) = self.next.unwrap_or((BEGIN, Psn::ZERO));
        Psn::new(psn.value().wrapping_sub(next.wrapping_sub(place) as u32))
    }

    /// The message at a position, if it was captured.
    pub(super) fn message_at(&self, place: Place, scene: &Scene<'_>) -> Option<Found> {
        let (&start, &id) = self.messages.range(..=place).next_back()?;
        let end = start + u64::from(scene.messages[id.index()].span);
        (place < end).then_some(Found { id, start, end })
    }

    /// At the limit of recoveries, adds to the last one; returns whether it did.
    pub(super) fn joins_the_last(&mut self, add: impl FnOnce(&mut Trouble)) -> bool {
        let too_many = self.troubles.len() >= MOST_TROUBLES;
        if too_many && let Some(last) = self.troubles.last_mut() {
            add(last);
        }
        too_many
    }

    /// Whether the answers of the last message use PSNs.
    pub(super) fn ends_with_read(&self, scene: &Scene<'_>) -> bool {
        self.messages
            .last_key_value()
            .is_some_and(|(_, id)| scene.messages[id.index()].operation == Operation::ReadRequest)
    }
}

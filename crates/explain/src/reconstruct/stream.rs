//! The requests of one end of a connection, and their responses.

use std::collections::{BTreeMap, VecDeque};

use wire::{Operation, Psn};

use super::Context;
use super::position::{BEGIN, StreamPosition};
use super::recovery::Recovery;
use crate::connection::Connection;
use crate::connection_end::Side;
use crate::typed_index::{ConnectionId, MessageId, PacketId};

/// A larger jump is not a loss: the queue pair was created again with the same number.
pub(super) const LONGEST_JUMP: i32 = 1 << 20;

/// How many packets a search goes back: more than a requester retransmits.
pub(super) const FAR: usize = 1 << 14;

/// The limit of recoveries at the same time, for hostile captures.
const MAX_RECOVERIES: usize = 64;

/// The requests of one end, in order.
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    /// The end that sends the requests.
    pub(super) side: Side,
    /// The payload of a full packet; 0 if unknown.
    pub(super) path_mtu: u64,
    pub(super) agreed_psn: Option<Psn>,
    /// The position of the next new request.
    pub(super) next: Option<(StreamPosition, Psn)>,
    /// Everything before this position is acknowledged.
    pub(super) acknowledged: StreamPosition,
    /// The messages by start position.
    pub(super) messages: BTreeMap<StreamPosition, MessageId>,
    /// Messages that start before this position are complete.
    pub(super) settled: StreamPosition,
    /// Whether the last message is incomplete.
    pub(super) goes_on: bool,
    /// Missing positions, by start.
    pub(super) holes: BTreeMap<StreamPosition, Hole>,
    /// Packets that are not acknowledged yet.
    pub(super) in_flight: VecDeque<(StreamPosition, PacketId)>,
    /// The position after the last response.
    pub(super) answered: StreamPosition,
    /// The position after the last retransmission.
    pub(super) replayed: Option<StreamPosition>,
    pub(super) recoveries: Vec<Recovery>,
    /// When the peer last sent a packet.
    pub(super) last_heard: Option<u64>,
    /// A request was rejected with a fatal NAK.
    pub(super) rejected: bool,
    pub(super) unknown_responses: PacketCount,
    pub(super) orphans: PacketCount,
    pub(super) wrong_sizes: PacketCount,
}

/// Positions without a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) begin: StreamPosition,
    pub(super) end: StreamPosition,
    /// The packet after it.
    pub(super) before: PacketId,
}

/// A message and its positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: MessageId,
    pub(super) start: StreamPosition,
    pub(super) end: StreamPosition,
}

/// The number of packets, and the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketCount {
    pub(super) number: u64,
    pub(super) first: Option<PacketId>,
}

impl PacketCount {
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
            in_flight: VecDeque::new(),
            answered: BEGIN,
            replayed: None,
            recoveries: Vec::new(),
            last_heard: None,
            rejected: false,
            unknown_responses: PacketCount::default(),
            orphans: PacketCount::default(),
            wrong_sizes: PacketCount::default(),
        }
    }

    /// Starts again at a PSN, after all previous positions.
    pub(super) fn begin_at(&mut self, psn: Psn) {
        let position = match self.next {
            // The PSN distance is limited to half of the PSN space.
            Some((position, _)) => position + (1 << 25),
            None => BEGIN,
        };
        self.next = Some((position, psn));
        self.acknowledged = position;
        self.goes_on = false;
        self.answered = position;
        self.replayed = None;
        self.in_flight.clear();
        self.settled = position;
    }

    /// The position of a PSN, relative to the next position.
    pub(super) fn position_of(&self, psn: Psn) -> Option<StreamPosition> {
        let (position, next) = self.next?;
        Some(position.wrapping_add_signed(psn.since(next).into()))
    }

    /// The PSN at a position.
    pub(super) fn psn_at(&self, position: StreamPosition) -> Psn {
        let (next, psn) = self.next.unwrap_or((BEGIN, Psn::ZERO));
        Psn::new(psn.value().wrapping_sub(next.wrapping_sub(position) as u32))
    }

    /// The message at a position, if it was captured.
    pub(super) fn message_at(
        &self,
        position: StreamPosition,
        context: &Context<'_>,
    ) -> Option<Found> {
        let (&start, &id) = self.messages.range(..=position).next_back()?;
        let end = start + u64::from(context.messages[id.index()].span);
        (position < end).then_some(Found { id, start, end })
    }

    /// At the limit of recoveries, adds to the last one; returns whether it did.
    pub(super) fn joins_the_last(&mut self, add: impl FnOnce(&mut Recovery)) -> bool {
        let too_many = self.recoveries.len() >= MAX_RECOVERIES;
        if too_many && let Some(last) = self.recoveries.last_mut() {
            add(last);
        }
        too_many
    }

    /// Whether the responses of the last message use PSNs.
    pub(super) fn ends_with_read(&self, context: &Context<'_>) -> bool {
        self.messages
            .last_key_value()
            .is_some_and(|(_, id)| context.messages[id.index()].operation == Operation::ReadRequest)
    }
}

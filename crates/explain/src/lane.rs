//! Lanes: all packets from one address to one queue pair, before two lanes are paired to a connection.

use std::collections::HashMap;

use wire::{Opcode, Position, Qpn, Transport};

use crate::id::EndpointId;

/// An index in the list of lanes.
pub(crate) type LaneId = usize;

/// All packets from one address to one queue pair at another. A packet of a connection doesn't
/// name the queue pair that sent it.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) from: EndpointId,
    pub(crate) to: EndpointId,
    pub(crate) number: Qpn,
    /// The queue pair that sent it: datagrams and comments name it.
    pub(crate) source: Option<Qpn>,
    pub(crate) transport: Transport,
    /// The handshake that it belongs to, and the side that sends.
    pub(crate) exchange: Option<(usize, Sender)>,
    /// The largest payload of a packet that must be full.
    pub(crate) full: u16,
    /// How many copies of packets arrived.
    pub(crate) copies: u64,
}

/// The side of a handshake that sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Sender {
    Active,
    Passive,
}

/// The key of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LaneKey {
    pub(crate) from: EndpointId,
    pub(crate) to: EndpointId,
    pub(crate) number: Qpn,
    /// Only where a datagram or a comment names it.
    pub(crate) source: Option<Qpn>,
}

impl Lane {
    pub(crate) fn key(&self) -> LaneKey {
        LaneKey {
            from: self.from,
            to: self.to,
            number: self.number,
            source: self.source,
        }
    }
}

impl LaneKey {
    /// The key of the opposite direction, if the sender is known.
    pub(crate) fn reverse(self) -> Option<LaneKey> {
        Some(LaneKey {
            from: self.to,
            to: self.from,
            number: self.source?,
            source: Some(self.number),
        })
    }

    /// The same without the sender.
    pub(crate) fn unnamed(self) -> LaneKey {
        LaneKey {
            source: None,
            ..self
        }
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) list: Vec<Lane>,
    open: HashMap<LaneKey, LaneId>,
    /// The keys of the open ones.
    open_to: HashMap<Target, Vec<LaneKey>>,
    /// The lanes that a handshake defines.
    agreed: HashMap<Target, (usize, Sender)>,
}

/// From one address to a queue pair at another, with any sender.
type Target = (EndpointId, EndpointId, Qpn);

impl Lanes {
    /// The lane of a packet, a new one if there is none.
    pub(crate) fn of(&mut self, key: LaneKey, opcode: Opcode) -> LaneId {
        if let Some(&lane) = self.open.get(&key) {
            return lane;
        }
        if let Some(&lane) = self.open.get(&key.unnamed())
            && self.name(lane, key.source)
        {
            return lane;
        }
        let target = (key.from, key.to, key.number);
        let exchange = self.agreed.get(&target).copied();
        if let (Some((exchange, speaker)), Some(source)) = (exchange, key.source) {
            // The answers to datagrams go to the first sender.
            let back = (key.to, key.from, source);
            self.agreed
                .entry(back)
                .or_insert((exchange, speaker.other()));
        }
        let lane = self.add(key, opcode.transport(), exchange);
        // A packet without a sender belongs to the sender that started last.
        for key in [key, key.unnamed()] {
            self.open.insert(key, lane);
            self.open_to.entry(target).or_default().push(key);
        }
        lane
    }

    /// Sets the sender of a lane, if none is known yet; returns whether it did.
    pub(crate) fn name(&mut self, lane: LaneId, source: Option<Qpn>) -> bool {
        let known = &mut self.list[lane];
        if source.is_none() || known.source.is_some() {
            return false;
        }
        known.source = source;
        let key = known.key();
        self.open.insert(key, lane);
        let target = (key.from, key.to, key.number);
        self.open_to.entry(target).or_default().push(key);
        true
    }

    /// A lane that no other packet will find.
    pub(crate) fn add(
        &mut self,
        key: LaneKey,
        transport: Transport,
        exchange: Option<(usize, Sender)>,
    ) -> LaneId {
        self.list.push(Lane {
            from: key.from,
            to: key.to,
            number: key.number,
            source: key.source,
            transport,
            exchange,
            full: 0,
            copies: 0,
        });
        self.list.len() - 1
    }

    /// From now on, packets to this queue pair belong to a handshake. Earlier packets belong to an
    /// earlier queue pair with the same number.
    pub(crate) fn agree(
        &mut self,
        from: EndpointId,
        to: EndpointId,
        number: Qpn,
        exchange: (usize, Sender),
    ) {
        let target = (from, to, number);
        self.agreed.insert(target, exchange);
        for key in self.open_to.remove(&target).into_iter().flatten() {
            self.open.remove(&key);
        }
    }

    /// Updates the lane of a packet.
    pub(crate) fn learn(&mut self, lane: LaneId, opcode: Opcode, length: u16) {
        let lane = &mut self.list[lane];
        if lane.transport == Transport::Cnp {
            lane.transport = opcode.transport();
        }
        // C9-92: First and Middle carry exactly one path MTU.
        if matches!(opcode.position(), Position::First | Position::Middle) {
            lane.full = lane.full.max(length);
        }
    }
}

impl Sender {
    pub(crate) fn other(self) -> Self {
        match self {
            Sender::Active => Sender::Passive,
            Sender::Passive => Sender::Active,
        }
    }
}

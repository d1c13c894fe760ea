//! Tracks: all packets from one address to one queue pair, before two tracks are paired to a connection.

use std::collections::HashMap;

use wire::{Opcode, Position, Qpn, Transport};

use crate::typed_index::EndpointId;

/// An index in the list of tracks.
pub(crate) type TrackId = usize;

/// All packets from one address to one queue pair at another. A packet of a connection doesn't
/// name the queue pair that sent it.
#[derive(Clone, Debug)]
pub(crate) struct Track {
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

/// The key of a track.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TrackKey {
    pub(crate) from: EndpointId,
    pub(crate) to: EndpointId,
    pub(crate) number: Qpn,
    /// Only where a datagram or a comment names it.
    pub(crate) source: Option<Qpn>,
}

impl Track {
    pub(crate) fn key(&self) -> TrackKey {
        TrackKey {
            from: self.from,
            to: self.to,
            number: self.number,
            source: self.source,
        }
    }
}

impl TrackKey {
    /// The key of the opposite direction, if the sender is known.
    pub(crate) fn reverse(self) -> Option<TrackKey> {
        Some(TrackKey {
            from: self.to,
            to: self.from,
            number: self.source?,
            source: Some(self.number),
        })
    }

    /// The same without the sender.
    pub(crate) fn unnamed(self) -> TrackKey {
        TrackKey {
            source: None,
            ..self
        }
    }
}

/// All tracks.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    pub(crate) list: Vec<Track>,
    open: HashMap<TrackKey, TrackId>,
    /// The keys of the open ones.
    open_to: HashMap<Target, Vec<TrackKey>>,
    /// The tracks that a handshake defines.
    agreed: HashMap<Target, (usize, Sender)>,
}

/// From one address to a queue pair at another, with any sender.
type Target = (EndpointId, EndpointId, Qpn);

impl Tracks {
    /// The track of a packet, a new one if there is none.
    pub(crate) fn of(&mut self, key: TrackKey, opcode: Opcode) -> TrackId {
        if let Some(&track) = self.open.get(&key) {
            return track;
        }
        if let Some(&track) = self.open.get(&key.unnamed())
            && self.name(track, key.source)
        {
            return track;
        }
        let target = (key.from, key.to, key.number);
        let exchange = self.agreed.get(&target).copied();
        if let (Some((exchange, speaker)), Some(source)) = (exchange, key.source) {
            // The responses to datagrams go to the first sender.
            let back = (key.to, key.from, source);
            self.agreed
                .entry(back)
                .or_insert((exchange, speaker.other()));
        }
        let track = self.add(key, opcode.transport(), exchange);
        // A packet without a sender belongs to the sender that started last.
        for key in [key, key.unnamed()] {
            self.open.insert(key, track);
            self.open_to.entry(target).or_default().push(key);
        }
        track
    }

    /// Sets the sender of a track, if none is known yet; returns whether it did.
    pub(crate) fn name(&mut self, track: TrackId, source: Option<Qpn>) -> bool {
        let known = &mut self.list[track];
        if source.is_none() || known.source.is_some() {
            return false;
        }
        known.source = source;
        let key = known.key();
        self.open.insert(key, track);
        let target = (key.from, key.to, key.number);
        self.open_to.entry(target).or_default().push(key);
        true
    }

    /// A track that no other packet will find.
    pub(crate) fn add(
        &mut self,
        key: TrackKey,
        transport: Transport,
        exchange: Option<(usize, Sender)>,
    ) -> TrackId {
        self.list.push(Track {
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

    /// Updates the track of a packet.
    pub(crate) fn learn(&mut self, track: TrackId, opcode: Opcode, length: u16) {
        let track = &mut self.list[track];
        if track.transport == Transport::Cnp {
            track.transport = opcode.transport();
        }
        // C9-92: First and Middle carry exactly one path MTU.
        if matches!(opcode.position(), Position::First | Position::Middle) {
            track.full = track.full.max(length);
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

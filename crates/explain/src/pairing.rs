//! Finds the two tracks of each connection.
//!
//! A packet names its destination queue pair, but not its sender. Messages of the connection manager
//! name both queue pairs. Datagrams and the comments of our own captures name the sender. Otherwise
//! the responses have the PSNs of the requests.

mod by_psn;

use std::collections::HashMap;

use wire::{PathMtu, Qpn, Transport};

use crate::cm_exchanges::Exchange;
use crate::collect::Collection;
use crate::connection::{Connection, End, Pairing, QueuePair};
use crate::connection_end::Side;
use crate::track::{Sender, Track, TrackId, TrackKey};
use crate::typed_index::{ConnectionId, EndpointId, PacketId, QueuePairId};

/// The connections of all tracks.
#[derive(Default)]
pub(crate) struct Paired {
    pub(crate) connections: Vec<Connection>,
    pub(crate) queue_pairs: Vec<QueuePair>,
    /// The connection of each exchange.
    pub(crate) of_exchange: Vec<Option<ConnectionId>>,
    by_number: HashMap<(EndpointId, Qpn), QueuePairId>,
}

/// The connection of a track.
#[derive(Clone, Copy)]
enum TrackConnection {
    /// All of its packets are sent by one side.
    OneSide(ConnectionId, Side),
    /// A queue pair that is connected to itself: requests from the left, responses from the right.
    ToItself(ConnectionId),
}

/// Finds the connections, and sets the connection of every packet.
pub(crate) fn pair(collection: &mut Collection) -> Paired {
    let partners = partners(collection);
    let mut paired = Paired {
        of_exchange: vec![None; collection.exchanges.list.len()],
        ..Paired::default()
    };
    let mut track_connections: Vec<Option<TrackConnection>> =
        vec![None; collection.tracks.list.len()];
    for index in 0..collection.packets.len() {
        let id = PacketId::new(index);
        let track = collection.packets[index].connection.index();
        let track_connection = track_connections[track].unwrap_or_else(|| {
            paired.place(track, id, collection, &partners, &mut track_connections)
        });
        let packet = &mut collection.packets[index];
        (packet.connection, packet.from) = match track_connection {
            TrackConnection::OneSide(connection, side) => (connection, side),
            TrackConnection::ToItself(connection) if packet.opcode.is_response() => {
                (connection, Side::Right)
            }
            TrackConnection::ToItself(connection) => (connection, Side::Left),
        };
        let connection = &mut paired.connections[packet.connection.index()];
        connection.last = id;
        connection.packets += 1;
    }
    for queue_pair in &mut paired.queue_pairs {
        let key = (queue_pair.endpoint, queue_pair.number);
        queue_pair.process = collection.process_of.get(&key).copied();
    }
    paired
}

/// The opposite track of every track without a handshake.
fn partners(collection: &Collection) -> Vec<Option<(TrackId, Pairing)>> {
    let tracks = &collection.tracks.list;
    let mut partners = vec![None; tracks.len()];
    pair_named(tracks, &mut partners);
    let is_open = |id: TrackId| tracks[id].source.is_none() && partners[id].is_none();
    for (one, other) in by_psn::pairs(collection, is_open) {
        partners[one] = Some((other, Pairing::SequenceNumbers));
        partners[other] = Some((one, Pairing::SequenceNumbers));
    }
    pair_the_only_ones(tracks, &mut partners);
    partners
}

/// Pairs a track with a known sender with the track to that sender.
fn pair_named(tracks: &[Track], partners: &mut [Option<(TrackId, Pairing)>]) {
    let open = || {
        tracks
            .iter()
            .enumerate()
            .filter(|(_, track)| track.exchange.is_none())
    };
    let by_key: HashMap<TrackKey, TrackId> = open().map(|(id, track)| (track.key(), id)).collect();
    for (id, track) in open() {
        let Some(back) = track.key().reverse() else {
            continue;
        };
        // A capture at one end names the senders of that end only.
        let unnamed = by_key.get(&back.unnamed()).copied();
        let unnamed = unnamed.filter(|&other| {
            partners[other].is_none() && tracks[other].transport == track.transport
        });
        if let Some(other) = by_key.get(&back).copied().or(unnamed) {
            let paired_by = named_by(track.transport);
            partners[id] = Some((other, paired_by));
            partners[other] = Some((id, paired_by));
        }
    }
}

/// How the sender of a track is known.
fn named_by(transport: Transport) -> Pairing {
    match transport {
        Transport::Ud => Pairing::Datagram,
        _ => Pairing::Comment,
    }
}

/// If one track is left in each direction between two addresses, pairs them.
fn pair_the_only_ones(tracks: &[Track], partners: &mut [Option<(TrackId, Pairing)>]) {
    let mut left: HashMap<(EndpointId, EndpointId, Transport), Vec<TrackId>> = HashMap::new();
    for (id, track) in tracks.iter().enumerate() {
        let connected = track.source.is_none() && track.exchange.is_none();
        if connected && partners[id].is_none() {
            let way = (track.from, track.to, track.transport);
            left.entry(way).or_default().push(id);
        }
    }
    for (&(from, to, transport), forth) in &left {
        let Some(back) = left.get(&(to, from, transport)) else {
            continue;
        };
        let pair = match (forth.as_slice(), back.as_slice()) {
            (&[one], &[other]) if from != to => Some((one, other)),
            (&[one, other], _) if from == to => Some((one, other)),
            _ => None,
        };
        if let Some((one, other)) = pair {
            partners[one] = Some((other, Pairing::OnlyChoice));
            partners[other] = Some((one, Pairing::OnlyChoice));
        }
    }
}

impl Paired {
    /// Creates the connection of a track.
    fn place(
        &mut self,
        track: TrackId,
        packet: PacketId,
        collection: &Collection,
        partners: &[Option<(TrackId, Pairing)>],
        track_connections: &mut [Option<TrackConnection>],
    ) -> TrackConnection {
        let tracks = &collection.tracks.list;
        let track_connection = match (tracks[track].exchange, partners[track]) {
            (Some((exchange, speaker)), _) => {
                let side = match speaker {
                    Sender::Active => Side::Left,
                    Sender::Passive => Side::Right,
                };
                let known = self.of_exchange[exchange];
                let connection = known.unwrap_or_else(|| {
                    self.connect_exchange(&collection.exchanges.list[exchange], packet)
                });
                self.of_exchange[exchange] = Some(connection);
                self.learn(connection, side, &tracks[track]);
                TrackConnection::OneSide(connection, side)
            }
            (None, Some((partner, paired_by))) if partner == track => TrackConnection::ToItself(
                self.connect(&tracks[track], Some(&tracks[track]), paired_by, packet),
            ),
            (None, Some((partner, paired_by))) => {
                let (forth, back) = (&tracks[track], &tracks[partner]);
                let connection = self.connect(forth, Some(back), paired_by, packet);
                track_connections[partner] =
                    Some(TrackConnection::OneSide(connection, Side::Right));
                TrackConnection::OneSide(connection, Side::Left)
            }
            (None, None) => {
                let paired_by = match tracks[track].source {
                    Some(_) => named_by(tracks[track].transport),
                    None => Pairing::Alone,
                };
                let connection = self.connect(&tracks[track], None, paired_by, packet);
                TrackConnection::OneSide(connection, Side::Left)
            }
        };
        track_connections[track] = Some(track_connection);
        track_connection
    }

    fn connect(
        &mut self,
        forth: &Track,
        back: Option<&Track>,
        paired_by: Pairing,
        packet: PacketId,
    ) -> ConnectionId {
        let id = ConnectionId::new(self.connections.len());
        let source = forth.source.or(back.map(|back| back.number));
        let left = source.map(|number| self.queue_pair(forth.from, number, forth.transport, id));
        let right = self.queue_pair(forth.to, forth.number, forth.transport, id);
        let full = forth.full.max(back.map_or(0, |back| back.full));
        self.connections.push(Connection {
            transport: forth.transport,
            ends: [end(forth.from, left), end(forth.to, Some(right))],
            handshake: None,
            paired_by,
            path_mtu: exactly(full),
            first: packet,
            last: packet,
            packets: 0,
        });
        id
    }

    fn connect_exchange(&mut self, exchange: &Exchange, packet: PacketId) -> ConnectionId {
        let id = ConnectionId::new(self.connections.len());
        let ends = exchange.ends.map(|party| {
            let queue_pair = party
                .number
                .map(|number| self.queue_pair(party.endpoint, number, exchange.transport, id));
            End {
                agreed_psn: party.starts_with,
                ..end(party.endpoint, queue_pair)
            }
        });
        self.connections.push(Connection {
            transport: exchange.transport,
            ends,
            handshake: None,
            paired_by: Pairing::Handshake,
            path_mtu: exchange.path_mtu,
            first: packet,
            last: packet,
            packets: 0,
        });
        id
    }

    /// Sets a queue pair number that only datagrams name.
    fn learn(&mut self, connection: ConnectionId, side: Side, track: &Track) {
        let Some(number) = track.source.filter(|&number| number != Qpn::GSI) else {
            return;
        };
        let here = &self.connections[connection.index()].ends[side.index()];
        if here.queue_pair.is_none() {
            let id = self.queue_pair(track.from, number, track.transport, connection);
            self.connections[connection.index()].ends[side.index()].queue_pair = Some(id);
        }
    }

    fn queue_pair(
        &mut self,
        endpoint: EndpointId,
        number: Qpn,
        transport: Transport,
        connection: ConnectionId,
    ) -> QueuePairId {
        let list = &mut self.queue_pairs;
        let id = *self.by_number.entry((endpoint, number)).or_insert_with(|| {
            list.push(QueuePair {
                endpoint,
                number,
                transport,
                connections: Vec::new(),
                process: None,
                states: Vec::new(),
            });
            QueuePairId::new(list.len() - 1)
        });
        let connections = &mut list[id.index()].connections;
        if connections.last() != Some(&connection) {
            connections.push(connection);
        }
        id
    }
}

fn end(endpoint: EndpointId, queue_pair: Option<QueuePairId>) -> End {
    End {
        endpoint,
        queue_pair,
        agreed_psn: None,
        first_psn: None,
    }
}

/// The path MTU, from the size of full packets.
fn exactly(full: u16) -> Option<PathMtu> {
    PathMtu::largest_within(full.into()).filter(|mtu| mtu.bytes() == usize::from(full))
}

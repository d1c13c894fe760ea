//! Finds the two lanes of each connection.
//!
//! A packet names its destination queue pair, but not its sender. Messages of the connection manager
//! name both queue pairs. Datagrams and the comments of our own captures name the sender. Otherwise
//! the answers have the PSNs of the requests.

mod by_psn;

use std::collections::HashMap;

use wire::{PathMtu, Qpn, Transport};

use crate::cm_exchanges::Exchange;
use crate::collect::Collection;
use crate::connection::{Connection, End, Pairing, QueuePair};
use crate::connection_end::Side;
use crate::id::{ConnectionId, EndpointId, PacketId, QueuePairId};
use crate::lane::{Lane, LaneId, LaneKey, Sender};

/// The connections of all lanes.
#[derive(Default)]
pub(crate) struct Paired {
    pub(crate) connections: Vec<Connection>,
    pub(crate) queue_pairs: Vec<QueuePair>,
    /// The connection of each exchange.
    pub(crate) of_exchange: Vec<Option<ConnectionId>>,
    by_number: HashMap<(EndpointId, Qpn), QueuePairId>,
}

/// The connection of a lane.
#[derive(Clone, Copy)]
enum LaneConnection {
    /// All of its packets are sent by one side.
    OneSide(ConnectionId, Side),
    /// A queue pair that is connected to itself: requests from the left, answers from the right.
    ToItself(ConnectionId),
}

/// Finds the connections, and sets the connection of every packet.
pub(crate) fn pair(collection: &mut Collection) -> Paired {
    let partners = partners(collection);
    let mut paired = Paired {
        of_exchange: vec![None; collection.exchanges.list.len()],
        ..Paired::default()
    };
    let mut lane_connections: Vec<Option<LaneConnection>> = vec![None; collection.lanes.list.len()];
    for index in 0..collection.packets.len() {
        let id = PacketId::new(index);
        let lane = collection.packets[index].connection.index();
        let lane_connection = lane_connections[lane].unwrap_or_else(|| {
            paired.place(lane, id, collection, &partners, &mut lane_connections)
        });
        let packet = &mut collection.packets[index];
        (packet.connection, packet.from) = match lane_connection {
            LaneConnection::OneSide(connection, side) => (connection, side),
            LaneConnection::ToItself(connection) if packet.opcode.is_response() => {
                (connection, Side::Right)
            }
            LaneConnection::ToItself(connection) => (connection, Side::Left),
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

/// The opposite lane of every lane without a handshake.
fn partners(collection: &Collection) -> Vec<Option<(LaneId, Pairing)>> {
    let lanes = &collection.lanes.list;
    let mut partners = vec![None; lanes.len()];
    pair_named(lanes, &mut partners);
    let is_open = |id: LaneId| lanes[id].source.is_none() && partners[id].is_none();
    for (one, other) in by_psn::pairs(collection, is_open) {
        partners[one] = Some((other, Pairing::SequenceNumbers));
        partners[other] = Some((one, Pairing::SequenceNumbers));
    }
    pair_the_only_ones(lanes, &mut partners);
    partners
}

/// Pairs a lane with a known sender with the lane to that sender.
fn pair_named(lanes: &[Lane], partners: &mut [Option<(LaneId, Pairing)>]) {
    let open = || {
        lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.exchange.is_none())
    };
    let by_key: HashMap<LaneKey, LaneId> = open().map(|(id, lane)| (lane.key(), id)).collect();
    for (id, lane) in open() {
        let Some(back) = lane.key().reverse() else {
            continue;
        };
        // A capture at one end names the senders of that end only.
        let unnamed = by_key.get(&back.unnamed()).copied();
        let unnamed = unnamed
            .filter(|&other| partners[other].is_none() && lanes[other].transport == lane.transport);
        if let Some(other) = by_key.get(&back).copied().or(unnamed) {
            let paired_by = named_by(lane.transport);
            partners[id] = Some((other, paired_by));
            partners[other] = Some((id, paired_by));
        }
    }
}

/// How the sender of a lane is known.
fn named_by(transport: Transport) -> Pairing {
    match transport {
        Transport::Ud => Pairing::Datagram,
        _ => Pairing::Comment,
    }
}

/// If one lane is left in each direction between two addresses, pairs them.
fn pair_the_only_ones(lanes: &[Lane], partners: &mut [Option<(LaneId, Pairing)>]) {
    let mut left: HashMap<(EndpointId, EndpointId, Transport), Vec<LaneId>> = HashMap::new();
    for (id, lane) in lanes.iter().enumerate() {
        let connected = lane.source.is_none() && lane.exchange.is_none();
        if connected && partners[id].is_none() {
            let way = (lane.from, lane.to, lane.transport);
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
    /// Creates the connection of a lane.
    fn place(
        &mut self,
        lane: LaneId,
        packet: PacketId,
        collection: &Collection,
        partners: &[Option<(LaneId, Pairing)>],
        lane_connections: &mut [Option<LaneConnection>],
    ) -> LaneConnection {
        let lanes = &collection.lanes.list;
        let lane_connection = match (lanes[lane].exchange, partners[lane]) {
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
                self.learn(connection, side, &lanes[lane]);
                LaneConnection::OneSide(connection, side)
            }
            (None, Some((partner, paired_by))) if partner == lane => LaneConnection::ToItself(
                self.connect(&lanes[lane], Some(&lanes[lane]), paired_by, packet),
            ),
            (None, Some((partner, paired_by))) => {
                let (forth, back) = (&lanes[lane], &lanes[partner]);
                let connection = self.connect(forth, Some(back), paired_by, packet);
                lane_connections[partner] = Some(LaneConnection::OneSide(connection, Side::Right));
                LaneConnection::OneSide(connection, Side::Left)
            }
            (None, None) => {
                let paired_by = match lanes[lane].source {
                    Some(_) => named_by(lanes[lane].transport),
                    None => Pairing::Alone,
                };
                let connection = self.connect(&lanes[lane], None, paired_by, packet);
                LaneConnection::OneSide(connection, Side::Left)
            }
        };
        lane_connections[lane] = Some(lane_connection);
        lane_connection
    }

    fn connect(
        &mut self,
        forth: &Lane,
        back: Option<&Lane>,
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
    fn learn(&mut self, connection: ConnectionId, side: Side, lane: &Lane) {
        let Some(number) = lane.source.filter(|&number| number != Qpn::GSI) else {
            return;
        };
        let here = &self.connections[connection.index()].ends[side.index()];
        if here.queue_pair.is_none() {
            let id = self.queue_pair(lane.from, number, lane.transport, connection);
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

//! Who talked with whom: addresses, queue pairs, connections.

use std::net::IpAddr;

use serde::Serialize;
use wire::{PathMtu, Psn, Qpn, Transport};

use crate::handshake::Handshake;
use crate::id::{ConnectionId, EndpointId, PacketId, QueuePairId};

/// An address that sent or received something.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
}

/// A queue pair that sent or received something.
#[derive(Clone, Debug)]
pub struct QueuePair {
    /// Where it is.
    pub endpoint: EndpointId,
    /// Its number.
    pub number: Qpn,
    /// Its service.
    pub transport: Transport,
    /// The connections it took part in; several for datagrams.
    pub connections: Vec<ConnectionId>,
    /// What can be told of its states, in the order of time.
    pub states: Vec<StateChange>,
}

/// A moment at which a queue pair is seen to have come into another state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StateChange {
    /// When, in nanoseconds since the first packet.
    pub time: u64,
    /// Which state.
    pub state: State,
    /// The packet that shows it.
    pub packet: PacketId,
}

/// What the wire tells about the state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The connection manager is at work.
    Connecting,
    /// Data flows, or may flow.
    Established,
    /// It broke.
    Broken,
    /// It was closed in peace.
    Closed,
}

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The one that spoke first in this capture.
    Left,
    /// The other one.
    Right,
}

impl Side {
    /// Both, in the order of [`Connection::ends`].
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// The place in [`Connection::ends`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other one.
    #[inline]
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// Two queue pairs that talk with each other.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its service.
    pub transport: Transport,
    /// Both ends; [`Side`] tells which.
    pub ends: [End; 2],
    /// How the connection manager made and ended it, if the capture has it.
    pub handshake: Option<Handshake>,
    /// How it is known which queue pairs belong together.
    pub paired_by: Pairing,
    /// The path MTU, agreed or seen.
    pub path_mtu: Option<PathMtu>,
    /// The first packet of it.
    pub first: PacketId,
    /// The last packet of it.
    pub last: PacketId,
    /// The number of its packets, messages of the connection manager included.
    pub packets: u64,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Where it is.
    pub endpoint: EndpointId,
    /// Its queue pair; none if nobody ever named it.
    pub queue_pair: Option<QueuePairId>,
    /// The PSN it was told to start with by the connection manager.
    pub agreed_psn: Option<Psn>,
    /// The PSN of its first request in the capture.
    pub first_psn: Option<Psn>,
}

/// How two queue pairs were found to belong together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// The connection manager said so.
    Handshake,
    /// Answers have the sequence numbers of requests.
    SequenceNumbers,
    /// There is no other possibility between these addresses.
    OnlyChoice,
    /// Datagrams name their sender.
    Datagram,
    /// Comments in the capture name the senders.
    Comment,
    /// Nothing came back: one end has no name.
    Alone,
}

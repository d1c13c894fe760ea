//! Addresses, queue pairs and connections.

use std::net::IpAddr;

use serde::Serialize;
use wire::{PathMtu, Psn, Qpn, Transport};

use crate::handshake::Handshake;
use crate::typed_index::{ConnectionId, EndpointId, PacketId, QueuePairId};

/// An address that sent or received packets.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
}

/// A queue pair that sent or received packets.
#[derive(Clone, Debug)]
pub struct QueuePair {
    /// Its address.
    pub endpoint: EndpointId,
    /// Its number.
    pub number: Qpn,
    /// Its service.
    pub transport: Transport,
    /// Its connections; several for datagrams.
    pub connections: Vec<ConnectionId>,
    /// The process that has it, an index in [`CaptureSummary::processes`](crate::CaptureSummary::processes).
    pub process: Option<usize>,
    /// Its states as far as packets show them, sorted by time.
    pub states: Vec<StateChange>,
}

/// A change of a queue pair's state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StateChange {
    /// The time, in nanoseconds since the first packet.
    pub time: u64,
    /// The new state.
    pub state: State,
    /// The packet that shows it.
    pub packet: PacketId,
}

/// The state of a queue pair, as far as packets show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The connection managers exchange messages.
    Connecting,
    /// Data can be sent.
    Established,
    /// It is in ERROR.
    Error,
    /// It was disconnected.
    Closed,
}

/// Two queue pairs that exchange packets.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its service.
    pub transport: Transport,
    /// Both ends, in the order of [`Side`](crate::Side).
    pub ends: [End; 2],
    /// The handshake of the connection managers, if the capture contains it.
    pub handshake: Option<Handshake>,
    /// How the two queue pairs were matched.
    pub paired_by: Pairing,
    /// The path MTU, from the handshake or from packets.
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
    /// Its address.
    pub endpoint: EndpointId,
    /// Its queue pair; none if no packet names it.
    pub queue_pair: Option<QueuePairId>,
    /// Its first PSN according to the handshake.
    pub agreed_psn: Option<Psn>,
    /// The PSN of its first request in the capture.
    pub first_psn: Option<Psn>,
}

/// How two queue pairs were matched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// By the handshake.
    Handshake,
    /// Responses have the PSNs of requests.
    SequenceNumbers,
    /// They are the only ones between these addresses.
    OnlyChoice,
    /// Datagrams name their sender.
    Datagram,
    /// Comments in the capture name the senders.
    Comment,
    /// Not matched: there are no packets of the other end.
    Alone,
}

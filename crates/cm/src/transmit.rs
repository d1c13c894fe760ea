//! Management datagrams to send.

use std::net::IpAddr;

use wire::mad;

use crate::exchange::Peer;

/// A management datagram to send from queue pair 1 to queue pair 1, with Q_Key
/// [`QueueKey::GSI`](wire::QueueKey::GSI).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The local address to send it from.
    pub source: IpAddr,
    /// The peer.
    pub destination: IpAddr,
    /// Traffic class (ToS) of the packet.
    pub traffic_class: u8,
    /// Hop limit of the packet.
    pub hop_limit: u8,
    /// The datagram.
    pub datagram: Box<[u8; mad::LENGTH]>,
}

impl Transmit {
    pub(crate) fn new(peer: Peer, datagram: &[u8; mad::LENGTH]) -> Self {
        Transmit {
            source: peer.source,
            destination: peer.destination,
            traffic_class: peer.traffic_class,
            hop_limit: peer.hop_limit,
            datagram: Box::new(*datagram),
        }
    }
}

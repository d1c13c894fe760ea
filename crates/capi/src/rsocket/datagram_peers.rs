//! The peers of a datagram socket, and how to reach them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use engine::Destination;

/// How many peers are known at most. Anyone can send a datagram in the name of a new one.
const MAX_PEERS: usize = 4096;

/// How to reach a peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Peer {
    /// Our address that reaches it.
    pub(super) ours: IpAddr,
    /// Its queue pair; `None` until it has named it.
    pub(super) known: Option<Destination>,
}

/// The known peers. One that is forgotten is asked again for its queue pair.
#[derive(Debug, Default)]
pub(super) struct Peers {
    peers: HashMap<SocketAddr, Peer>,
    /// Their addresses, the oldest first.
    order: VecDeque<SocketAddr>,
}

impl Peers {
    pub(super) fn find(&self, address: SocketAddr) -> Option<Peer> {
        self.peers.get(&address).copied()
    }

    /// Adds or changes a peer. The oldest one is forgotten if there are too many.
    pub(super) fn insert(&mut self, address: SocketAddr, peer: Peer) {
        if self.peers.insert(address, peer).is_some() {
            return;
        }
        self.order.push_back(address);
        if self.order.len() > MAX_PEERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.peers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> SocketAddr {
        let [high, low] = (number as u16).to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 7000))
    }

    #[test]
    fn the_oldest_peers_are_forgotten_beyond_the_limit() {
        let mut peers = Peers::default();
        let new = Peer {
            ours: address(0).ip(),
            known: None,
        };
        for number in 0..MAX_PEERS {
            peers.insert(address(number), new);
        }
        let changed = Peer {
            ours: address(1).ip(),
            ..new
        };
        peers.insert(address(1), changed);
        assert_eq!(peers.find(address(0)), Some(new));
        assert_eq!(peers.find(address(1)), Some(changed));
        for number in MAX_PEERS..MAX_PEERS + 10 {
            peers.insert(address(number), new);
        }
        assert_eq!(
            (peers.peers.len(), peers.order.len()),
            (MAX_PEERS, MAX_PEERS)
        );
        assert_eq!(peers.find(address(9)), None);
        assert_eq!(peers.find(address(10)), Some(new));
        assert_eq!(peers.find(address(MAX_PEERS + 9)), Some(new));
    }
}

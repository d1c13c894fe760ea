//! Which peers understand lists of the packets that are held behind a gap.
//!
//! The specification has no such lists, so a peer is asked before it gets one: after the first gap, with a management datagram.
//! A peer that knows nothing of this ignores the question, or answers with a status, and gets none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::Flow;

use crate::random::Random;

/// Which peers get lists of the packets that are held behind a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeldLists {
    /// None. Peers that ask learn that this device understands no lists.
    Never,
    /// Those that understand them, according to their answers.
    #[default]
    Negotiated,
    /// All: for tests without management datagrams.
    Always,
}

/// A question to a peer, to be sent from queue pair 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The local address.
    pub source: IpAddr,
    /// The peer.
    pub destination: IpAddr,
    /// A number that nobody can guess, for the answer.
    pub nonce: u32,
}

/// How long an answer counts, and how long a peer that doesn't answer is not asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// How many peers are known. The one that was asked first is forgotten for another one.
const MAX_PEERS: usize = 1024;

/// What the peers understand.
pub(crate) struct Peers {
    known: HashMap<IpAddr, Peer>,
    random: Random,
}

struct Peer {
    asked: Instant,
    nonce: u32,
    understands: bool,
}

/// Whether a peer understands lists, and what to ask it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Understands,
    /// It does not, or has not answered.
    Silent,
    /// It must be asked now.
    Unknown(Question),
}

impl Peers {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            known: HashMap::new(),
            random,
        }
    }

    /// Whether the peer of this flow gets lists. Each peer is asked at most once in [`ASKED_AGAIN_AFTER`].
    pub(crate) fn standing(&mut self, flow: &Flow, now: Instant) -> Standing {
        let is_due = |asked: Instant| now.saturating_duration_since(asked) >= ASKED_AGAIN_AFTER;
        match self.known.get(&flow.destination) {
            Some(peer) if !is_due(peer.asked) && peer.understands => Standing::Understands,
            Some(peer) if !is_due(peer.asked) => Standing::Silent,
            Some(_) | None => Standing::Unknown(self.ask(flow, now)),
        }
    }

    fn ask(&mut self, flow: &Flow, now: Instant) -> Question {
        if self.known.len() >= MAX_PEERS {
            let oldest = self.known.iter().min_by_key(|(_, peer)| peer.asked);
            if let Some(address) = oldest.map(|(address, _)| *address) {
                self.known.remove(&address);
            }
        }
        let nonce = self.random.bits(u32::BITS);
        let peer = Peer {
            asked: now,
            nonce,
            understands: false,
        };
        self.known.insert(flow.destination, peer);
        Question {
            source: flow.source,
            destination: flow.destination,
            nonce,
        }
    }

    /// A peer has answered. An answer to no question changes nothing.
    pub(crate) fn note_answer(&mut self, address: IpAddr, nonce: u32, understands: bool) {
        if let Some(peer) = self.known.get_mut(&address)
            && peer.nonce == nonce
        {
            peer.understands = understands;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "an `Instant` cannot be constructed; any value will do"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    fn flow(number: u32) -> Flow {
        Flow {
            source: [10, 0, 0, 1].into(),
            destination: IpAddr::from(number.to_be_bytes()),
            source_port: 1,
            destination_port: wire::ROCE_PORT,
        }
    }

    fn asked(peers: &mut Peers, number: u32, now: Instant) -> Question {
        match peers.standing(&flow(number), now) {
            Standing::Unknown(question) => question,
            other => panic!("it is {other:?}"),
        }
    }

    #[test]
    fn peer_that_answers_is_known_until_it_is_asked_again() {
        let (mut peers, now) = (Peers::new(Random::new([1; 32])), start());
        let question = asked(&mut peers, 7, now);
        assert_eq!(peers.standing(&flow(7), now), Standing::Silent);
        peers.note_answer(question.destination, question.nonce ^ 1, true);
        assert_eq!(peers.standing(&flow(7), now), Standing::Silent, "a guess");
        peers.note_answer(question.destination, question.nonce, true);
        assert_eq!(peers.standing(&flow(7), now), Standing::Understands);
        asked(&mut peers, 7, now + ASKED_AGAIN_AFTER);
        assert_eq!(peers.standing(&flow(7), now), Standing::Silent);
    }

    #[test]
    fn more_peers_than_the_limit_take_the_place_of_the_oldest() {
        let (mut peers, now) = (Peers::new(Random::new([1; 32])), start());
        for number in 0..=MAX_PEERS as u32 {
            asked(
                &mut peers,
                number,
                now + Duration::from_millis(number.into()),
            );
        }
        assert_eq!(peers.known.len(), MAX_PEERS);
        asked(&mut peers, 0, now + ASKED_AGAIN_AFTER / 2);
    }
}

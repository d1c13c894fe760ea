//! Packets that wait because the socket or the ring to their destination is full.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use engine::Transmit;
use net::socket::SendError;
use wire::{Qpn, Route};

use super::Sent;
use crate::times::LOOK;

/// While this many bytes wait for sockets, the device builds no more packets that leave it: most of them would wait, too.
const MAX_FOR_SOCKETS: usize = 1 << 20;

/// While this many bytes wait for rings, neither does it, because they take up memory. A connected queue pair is [told](SendBacklog::blocks)
/// that its peer's ring is full and adds one send of at most 64 KiB, so other peers are served beside 256 of these.
const MAX_FOR_RINGS: usize = 16 << 20;

/// Packets to each destination stay in order: later ones wait behind those that do not fit.
#[derive(Default)]
pub(crate) struct SendBacklog {
    waiting: VecDeque<(Way, Transmit, Vec<u8>)>,
    ways: HashSet<Way>,
    bytes_for_sockets: usize,
    bytes_for_rings: usize,
    retry_at: Option<Instant>,
}

/// What is full.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    /// A socket. Here are the addresses of the packets.
    Socket(IpAddr, IpAddr),
    /// The ring to the process of this queue pair. Other queue pairs at its address may have another one.
    Ring(IpAddr, Qpn),
}

impl Way {
    fn of_socket(route: &Route) -> Self {
        Self::Socket(route.flow.source, route.flow.destination)
    }

    fn of_ring(route: &Route, destination: Qpn) -> Self {
        Self::Ring(route.flow.destination, destination)
    }
}

impl SendBacklog {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether too much waits, so that the device must build no more packets that leave it.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes_for_sockets >= MAX_FOR_SOCKETS || self.bytes_for_rings >= MAX_FOR_RINGS
    }

    /// Whether packets to the same destination wait.
    pub(crate) fn blocks(&self, route: &Route, destination: Qpn) -> bool {
        !self.is_empty()
            && (self.ways.contains(&Way::of_ring(route, destination))
                || self.ways.contains(&Way::of_socket(route)))
    }

    /// Sends packets, or keeps those that do not fit.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        bytes: &mut [u8],
        send: impl FnOnce(&Transmit, &mut [u8]) -> Sent,
    ) -> Sent {
        match self.offer(transmit, bytes, send) {
            Ok(outcome) => outcome,
            Err((way, sent)) => {
                self.push(now, way, *transmit, bytes[sent..].to_vec());
                Ok(())
            }
        }
    }

    /// Sends packets, unless earlier ones to their destination wait. Those that must wait are the bytes after as many as it returns
    /// together with what is full.
    fn offer(
        &self,
        transmit: &Transmit,
        bytes: &mut [u8],
        send: impl FnOnce(&Transmit, &mut [u8]) -> Sent,
    ) -> Result<Sent, (Way, usize)> {
        let route = &transmit.route;
        let (ring, socket) = (
            Way::of_ring(route, transmit.destination),
            Way::of_socket(route),
        );
        if let Some(way) = [ring, socket].into_iter().find(|it| self.ways.contains(it)) {
            return Err((way, 0));
        }
        match send(transmit, bytes) {
            Err(SendError::RingFull) => Err((ring, 0)),
            Err(SendError::Full { sent }) => Err((socket, sent)),
            outcome => Ok(outcome),
        }
    }

    fn push(&mut self, now: Instant, way: Way, transmit: Transmit, bytes: Vec<u8>) {
        match way {
            Way::Socket(..) => self.bytes_for_sockets += bytes.len(),
            Way::Ring(..) => self.bytes_for_rings += bytes.len(),
        }
        self.ways.insert(way);
        self.waiting.push_back((way, transmit, bytes));
        self.retry_at.get_or_insert(now + 4 * LOOK);
    }

    /// When to [retry](Self::retry); `None` if nothing waits.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Offers the packets again, in order. A packet that fails for another reason is lost. Returns whether fewer bytes wait. Those that
    /// go on waiting are not copied: they may be many megabytes.
    pub(crate) fn retry(
        &mut self,
        now: Instant,
        mut send: impl FnMut(&Transmit, &mut [u8]) -> Sent,
    ) -> bool {
        let before = std::mem::take(self);
        let bytes_before = before.bytes();
        for (_, transmit, mut bytes) in before.waiting {
            if let Err((way, sent)) = self.offer(&transmit, &mut bytes, &mut send) {
                bytes.drain(..sent);
                self.push(now, way, transmit, bytes);
            }
        }
        self.bytes() < bytes_before
    }

    fn bytes(&self) -> usize {
        self.bytes_for_sockets + self.bytes_for_rings
    }
}

#[cfg(test)]
mod tests {
    use wire::Flow;

    use super::*;
    use crate::clock::now;

    fn to(last: u8) -> Transmit {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        Transmit {
            queue_pair: Qpn::new(7),
            route: Route::new(Flow {
                source: address(1),
                destination: address(last),
                source_port: 1,
                destination_port: 4791,
            }),
            segment_size: 2,
            has_icrc: true,
            destination: Qpn::new(8),
            shared_length: None,
        }
    }

    const FULL: Sent = Err(SendError::Full { sent: 0 });

    fn blocks(backlog: &SendBacklog, transmit: &Transmit) -> bool {
        backlog.blocks(&transmit.route, transmit.destination)
    }

    /// Sends packets that do not fit.
    fn send(backlog: &mut SendBacklog, transmit: &Transmit, bytes: &[u8], outcome: Sent) {
        let kept = backlog.send(now(), transmit, &mut bytes.to_vec(), |_, _| outcome);
        kept.expect("they wait");
    }

    #[test]
    fn packets_to_a_full_destination_wait_in_order_and_others_pass() {
        let mut backlog = SendBacklog::default();
        let start = now();
        assert!(backlog.is_empty() && !blocks(&backlog, &to(2)));
        for (destination, bytes) in [(2, b"aa"), (3, b"bb"), (2, b"cc")] {
            send(&mut backlog, &to(destination), bytes, FULL);
        }
        assert!(backlog.retry_at() >= Some(start + 4 * LOOK));
        assert!(blocks(&backlog, &to(2)) && !blocks(&backlog, &to(4)));
        let mut tried = Vec::new();
        let fewer = backlog.retry(start, |transmit, bytes| {
            tried.push(bytes.to_vec());
            if transmit.route == to(2).route {
                FULL
            } else {
                Ok(())
            }
        });
        assert_eq!(tried, [b"aa", b"bb"], "cc must not overtake aa");
        assert!(fewer && blocks(&backlog, &to(2)) && !blocks(&backlog, &to(3)));
        assert!(!backlog.retry(start, |_, _| FULL));
        let mut sent = Vec::new();
        backlog.retry(start, |_, bytes| {
            sent.push(bytes.to_vec());
            Ok(())
        });
        assert_eq!(sent, [b"aa", b"cc"]);
        assert!(backlog.is_empty() && backlog.retry_at().is_none());
    }

    #[test]
    fn a_full_ring_blocks_one_queue_pair_and_a_full_socket_its_address() {
        let mut backlog = SendBacklog::default();
        let other = Transmit {
            destination: Qpn::new(9),
            ..to(2)
        };
        send(&mut backlog, &to(2), b"aa", Err(SendError::RingFull));
        assert!(blocks(&backlog, &to(2)) && !blocks(&backlog, &other));
        send(&mut backlog, &other, b"bb", FULL);
        let mut sent = Vec::new();
        let third = Transmit {
            destination: Qpn::new(10),
            ..to(2)
        };
        assert!(blocks(&backlog, &third) && !blocks(&backlog, &to(3)));
        // Neither ring nor socket is full any more, and the order stays.
        send(&mut backlog, &to(2), b"cc", Ok(()));
        backlog.retry(now(), |_, bytes| {
            sent.push(bytes.to_vec());
            Ok(())
        });
        assert_eq!(sent, [b"aa", b"bb", b"cc"]);
    }

    #[test]
    fn packets_that_go_on_waiting_are_not_copied() {
        let mut backlog = SendBacklog::default();
        for bytes in [b"aa", b"bb"] {
            send(&mut backlog, &to(2), bytes, FULL);
        }
        let places = |backlog: &SendBacklog| {
            let waiting = backlog.waiting.iter();
            waiting
                .map(|(_, _, bytes)| bytes.as_ptr())
                .collect::<Vec<_>>()
        };
        let before = places(&backlog);
        backlog.retry(now(), |_, _| FULL);
        assert_eq!(places(&backlog), before);
    }

    #[test]
    fn what_was_sent_does_not_wait_any_more() {
        let mut backlog = SendBacklog::default();
        send(&mut backlog, &to(2), b"aabbcc", FULL);
        assert!(backlog.retry(now(), |_, _| Err(SendError::Full { sent: 4 })));
        backlog.retry(now(), |_, bytes| {
            assert_eq!(bytes, b"cc");
            Ok(())
        });
        assert!(backlog.is_empty());
    }

    #[test]
    fn backlog_is_full_at_its_limits() {
        let limits: [(usize, fn() -> Sent); 2] = [
            (MAX_FOR_SOCKETS, || FULL),
            (MAX_FOR_RINGS, || Err(SendError::RingFull)),
        ];
        for (max, outcome) in limits {
            let mut backlog = SendBacklog::default();
            send(&mut backlog, &to(2), &vec![0; max - 1], outcome());
            assert!(!backlog.is_full());
            send(&mut backlog, &to(2), &[0], outcome());
            assert!(backlog.is_full());
            backlog.retry(now(), |_, _| Ok(()));
            assert!(!backlog.is_full());
        }
    }
}

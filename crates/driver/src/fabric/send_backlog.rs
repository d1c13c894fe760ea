//! Packets that wait because the socket or the ring to their destination is full.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Instant;

use engine::Transmit;
use net::socket::SendError;

use crate::times::LOOK;

/// While this many bytes wait, the device builds no more packets.
const MAX_BYTES: usize = 1 << 20;

/// Packets to each destination stay in order: later ones wait behind those that do not fit.
#[derive(Default)]
pub(crate) struct SendBacklog {
    waiting: VecDeque<(Transmit, Vec<u8>)>,
    bytes: usize,
    retry_at: Option<Instant>,
}

type Path = (IpAddr, IpAddr);

fn path(transmit: &Transmit) -> Path {
    (transmit.route.flow.source, transmit.route.flow.destination)
}

impl SendBacklog {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether too much waits, so that the device must build no more packets.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Whether packets to the same destination wait.
    pub(crate) fn blocks(&self, transmit: &Transmit) -> bool {
        let path_of_all = || self.waiting.iter().map(|(waiting, _)| path(waiting));
        !self.is_empty() && path_of_all().any(|it| it == path(transmit))
    }

    /// Keeps packets that do not fit.
    pub(crate) fn push(&mut self, now: Instant, transmit: &Transmit, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.waiting.push_back((*transmit, bytes.to_vec()));
        self.retry_at.get_or_insert(now + 4 * LOOK);
    }

    /// When to [retry](Self::retry); `None` if nothing waits.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Offers the packets again, in order. A packet that fails for another reason is lost.
    pub(crate) fn retry(
        &mut self,
        now: Instant,
        mut send: impl FnMut(&Transmit, &mut [u8]) -> Result<(), SendError>,
    ) {
        let mut blocked: Vec<Path> = Vec::new();
        for (transmit, mut bytes) in std::mem::take(self).waiting {
            let sent = if blocked.contains(&path(&transmit)) {
                Err(SendError::Full { sent: 0 })
            } else {
                send(&transmit, &mut bytes)
            };
            if let Err(SendError::Full { sent }) = sent {
                blocked.push(path(&transmit));
                self.push(now, &transmit, &bytes[sent..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Flow, Qpn, Route};

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

    const FULL: Result<(), SendError> = Err(SendError::Full { sent: 0 });

    #[test]
    fn packets_to_a_full_destination_wait_in_order_and_others_pass() {
        let mut backlog = SendBacklog::default();
        let start = now();
        assert!(backlog.is_empty() && !backlog.blocks(&to(2)));
        for (destination, bytes) in [(2, b"aa"), (3, b"bb"), (2, b"cc")] {
            backlog.push(start, &to(destination), bytes);
        }
        assert_eq!(backlog.retry_at(), Some(start + 4 * LOOK));
        assert!(backlog.blocks(&to(2)) && !backlog.blocks(&to(4)));
        let mut tried = Vec::new();
        backlog.retry(start, |transmit, bytes| {
            tried.push(bytes.to_vec());
            if transmit.route == to(2).route {
                FULL
            } else {
                Ok(())
            }
        });
        assert_eq!(tried, [b"aa", b"bb"], "cc must not overtake aa");
        assert!(backlog.blocks(&to(2)) && !backlog.blocks(&to(3)));
        let mut sent = Vec::new();
        backlog.retry(start, |_, bytes| {
            sent.push(bytes.to_vec());
            Ok(())
        });
        assert_eq!(sent, [b"aa", b"cc"]);
        assert!(backlog.is_empty() && backlog.retry_at().is_none());
    }

    #[test]
    fn what_was_sent_does_not_wait_any_more() {
        let mut backlog = SendBacklog::default();
        backlog.push(now(), &to(2), b"aabbcc");
        backlog.retry(now(), |_, _| Err(SendError::Full { sent: 4 }));
        backlog.retry(now(), |_, bytes| {
            assert_eq!(bytes, b"cc");
            Ok(())
        });
        assert!(backlog.is_empty());
    }

    #[test]
    fn queue_is_full_at_max_bytes() {
        let mut backlog = SendBacklog::default();
        backlog.push(now(), &to(2), &vec![0; MAX_BYTES - 1]);
        assert!(!backlog.is_full());
        backlog.push(now(), &to(2), &[0]);
        assert!(backlog.is_full());
        backlog.retry(now(), |_, _| Ok(()));
        assert!(!backlog.is_full());
    }
}

//! What a process tells the others about its requests, in records of a fixed size.

use std::net::{IpAddr, Ipv6Addr};

use engine::Work;
use engine::observation::RemoteAccessKind;
use wire::Qpn;

use crate::local_buffers::Space;
use crate::request_name::operation;

/// The size of a record. A page holds a whole number of them.
pub(crate) const RECORD_BYTES: usize = 128;

/// Begins each record, with the version of the format.
const MAGIC: u32 = 0x524f_4301;

/// No queue pair sends so many messages.
const MAX_MESSAGE: u64 = 1 << 56;

/// A queue pair among those of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QueuePairName {
    pub(crate) address: IpAddr,
    pub(crate) number: Qpn,
}

/// The place of an access in the memory of the process that publishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// What happened at a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It may have learned all that any process has done: it started, or it got a message that the order of messages
    /// does not cover.
    LearnedAll,
    /// It connected a queue pair. Both ends count messages from 0.
    Connected {
        queue_pair: QueuePairName,
        peer: QueuePairName,
    },
    /// It posted the request with this number.
    Posted {
        queue_pair: QueuePairName,
        message: u64,
        /// An index of [`OPERATIONS`].
        operation: u8,
        id: u64,
    },
    /// Its request uses local memory.
    Used {
        queue_pair: QueuePairName,
        message: u64,
        kind: RemoteAccessKind,
        place: Place,
    },
    /// It polled a completion that covers the requests up to this one.
    Polled {
        queue_pair: QueuePairName,
        message: u64,
    },
    /// It polled a message of its peer.
    Received {
        queue_pair: QueuePairName,
        message: u64,
    },
    /// A message of its peer accessed its memory.
    Accessed {
        queue_pair: QueuePairName,
        message: u64,
        kind: RemoteAccessKind,
        place: Place,
    },
}

/// An event, and the process at which it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// A random number, because the system uses process ids again.
    pub(crate) process: u64,
    pub(crate) pid: u32,
    pub(crate) event: Event,
}

/// The operations in records.
pub(crate) const OPERATIONS: [&str; 7] = [
    "SEND",
    "RDMA WRITE",
    "RDMA READ",
    "compare-and-swap",
    "fetch-and-add",
    "atomic write",
    "flush",
];

/// The index of an operation.
pub(crate) fn operation_index(work: &Work) -> u8 {
    let name = operation(work);
    let index = OPERATIONS.iter().position(|known| *known == name);
    index.unwrap_or_default() as u8
}

/// The fields of a record. Not all events use all of them.
#[derive(Default)]
struct Fields {
    event: u8,
    detail: u8,
    queue_pair: Option<QueuePairName>,
    peer: Option<QueuePairName>,
    message: u64,
    id: u64,
    place: Option<Place>,
}

impl Record {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let fields = self.event.fields();
        let mut bytes = [0; RECORD_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&[fields.event, fields.detail, 0, 0]);
        put(&self.process.to_le_bytes());
        put(&self.pid.to_le_bytes());
        for name in [fields.queue_pair, fields.peer] {
            let (address, number) = name.map_or((Ipv6Addr::UNSPECIFIED, 0), |name| {
                (mapped(name.address), name.number.value())
            });
            put(&number.to_le_bytes());
            put(&address.octets());
        }
        put(&fields.message.to_le_bytes());
        put(&fields.id.to_le_bytes());
        let place = fields.place.map(|it| [it.space, it.start, it.length]);
        (place.unwrap_or_default().iter()).for_each(|word| put(&word.to_le_bytes()));
        bytes
    }

    /// The record in these bytes; `None` if another program wrote them, or if the log has forgotten them.
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut rest: &[u8] = bytes;
        if u32::from_le_bytes(take(&mut rest)) != MAGIC {
            return None;
        }
        let [event, detail, _, _] = take(&mut rest);
        let process = u64::from_le_bytes(take(&mut rest));
        let pid = u32::from_le_bytes(take(&mut rest));
        let mut name = || {
            let number = u32::from_le_bytes(take(&mut rest));
            let octets: [u8; 16] = take(&mut rest);
            QueuePairName {
                address: Ipv6Addr::from(octets).to_canonical(),
                number: Qpn::new(number & 0xff_ffff),
            }
        };
        let (queue_pair, peer) = (name(), name());
        let mut word = || u64::from_le_bytes(take(&mut rest));
        let (message, id) = (word(), word());
        if message > MAX_MESSAGE {
            return None;
        }
        let place = Place {
            space: word(),
            start: word(),
            length: word(),
        };
        let kind = match detail {
            0 => RemoteAccessKind::Read,
            1 => RemoteAccessKind::Write,
            _ => RemoteAccessKind::Atomic,
        };
        let event = match event {
            0 => Event::LearnedAll,
            1 => Event::Connected { queue_pair, peer },
            2 => Event::Posted {
                queue_pair,
                message,
                operation: detail,
                id,
            },
            3 => Event::Used {
                queue_pair,
                message,
                kind,
                place,
            },
            4 => Event::Polled {
                queue_pair,
                message,
            },
            5 => Event::Received {
                queue_pair,
                message,
            },
            6 => Event::Accessed {
                queue_pair,
                message,
                kind,
                place,
            },
            _ => return None,
        };
        Some(Self {
            process,
            pid,
            event,
        })
    }
}

impl Event {
    fn fields(self) -> Fields {
        let of = |event, queue_pair, message| Fields {
            event,
            queue_pair: Some(queue_pair),
            message,
            ..Fields::default()
        };
        match self {
            Self::LearnedAll => Fields::default(),
            Self::Connected { queue_pair, peer } => Fields {
                peer: Some(peer),
                ..of(1, queue_pair, 0)
            },
            Self::Posted {
                queue_pair,
                message,
                operation,
                id,
            } => Fields {
                detail: operation,
                id,
                ..of(2, queue_pair, message)
            },
            Self::Used {
                queue_pair,
                message,
                kind,
                place,
            } => Fields {
                detail: kind as u8,
                place: Some(place),
                ..of(3, queue_pair, message)
            },
            Self::Polled {
                queue_pair,
                message,
            } => of(4, queue_pair, message),
            Self::Received {
                queue_pair,
                message,
            } => of(5, queue_pair, message),
            Self::Accessed {
                queue_pair,
                message,
                kind,
                place,
            } => Fields {
                detail: kind as u8,
                place: Some(place),
                ..of(6, queue_pair, message)
            },
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Takes the next bytes of a record, which has all of them.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, later) = rest.split_first_chunk().expect("a record has all fields");
    *rest = later;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_encoding() {
        let queue_pair = QueuePairName {
            address: IpAddr::from([10, 0, 0, 7]),
            number: Qpn::new(0x12_3456),
        };
        let peer = QueuePairName {
            address: "fd00::1".parse().expect("an address"),
            number: Qpn::new(7),
        };
        let place = Place {
            space: 1 << 40,
            start: u64::MAX,
            length: 5,
        };
        let (message, kind) = (1 << 30, RemoteAccessKind::Atomic);
        let events = [
            Event::LearnedAll,
            Event::Connected { queue_pair, peer },
            Event::Posted {
                queue_pair,
                message,
                operation: 3,
                id: u64::MAX,
            },
            Event::Used {
                queue_pair,
                message,
                kind: RemoteAccessKind::Read,
                place,
            },
            Event::Polled {
                queue_pair,
                message,
            },
            Event::Received {
                queue_pair,
                message,
            },
            Event::Accessed {
                queue_pair,
                message,
                kind,
                place,
            },
        ];
        for event in events {
            let record = Record {
                process: 1 << 63,
                pid: 4711,
                event,
            };
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn bytes_of_others_are_no_record() {
        assert_eq!(Record::decode(&[0; RECORD_BYTES]), None);
        assert_eq!(Record::decode(&[0xff; RECORD_BYTES]), None);
    }
}

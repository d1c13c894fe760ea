//! Work requests: what a caller asks of a queue pair.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;
use wire::{FlushPlacement, FlushRange, Key, Qpn, QueueKey};

use crate::address::Address;
use crate::completion::CompletedWork;
use crate::memory::{Binding, Segments};

/// The longest message that any service carries.
pub const MAX_MESSAGE: u64 = 1 << 31;

/// The most segments that one request may have.
pub const MAX_SEGMENTS: u32 = 32;

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Where, in the peer region's own addresses.
    pub address: u64,
    /// The remote key that the peer gave out.
    pub key: Key,
}

impl Remote {
    /// How many bytes [`to_bytes`](Self::to_bytes) gives.
    pub const LENGTH: usize = 12;

    /// The address and then the key, both in network byte order: for a message to the peer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..].copy_from_slice(&self.key.value().to_be_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) gave.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3] = bytes;
        Self {
            address: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            key: Key::new(u32::from_be_bytes([k0, k1, k2, k3])),
        }
    }
}

impl fmt::Display for Remote {
    /// Without spaces; [`FromStr`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.address, self.key.value())
    }
}

/// A text that does not name memory of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name remote memory: write 0xADDRESS/0xKEY")]
pub struct RemoteParseError(String);

impl FromStr for Remote {
    type Err = RemoteParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (address, key) = text.trim().split_once('/')?;
            let digits = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            Some(Self {
                address: digits(address)?,
                key: Key::new(u32::try_from(digits(key)?).ok()?),
            })
        };
        parse().ok_or_else(|| RemoteParseError(text.to_owned()))
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Put the data into the peer's next receive.
    Send,
    /// SEND, and show these four bytes in the completion of the receive.
    SendImmediate([u8; 4]),
    /// SEND, and invalidate this key of the peer's.
    SendInvalidate(Key),
    /// Put the data into the peer's memory.
    Write(Remote),
    /// WRITE, then consume a receive whose completion shows these four bytes.
    WriteImmediate(Remote, [u8; 4]),
    /// Get data from the peer's memory.
    Read(Remote),
    /// If the peer's eight bytes equal `compare`, replace them with `swap`; get what they were.
    CompareSwap {
        /// The eight bytes.
        remote: Remote,
        /// What they must be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
    /// Add to the peer's eight bytes; get what they were.
    FetchAdd {
        /// The eight bytes.
        remote: Remote,
        /// What is added, wrapping.
        add: u64,
    },
    /// Write eight bytes at once: nobody sees a half of them.
    AtomicWrite(Remote),
    /// Make earlier writes visible or durable at the peer.
    Flush {
        /// The first byte.
        remote: Remote,
        /// How many bytes, unless the range is the whole region.
        length: u32,
        /// Visible, durable, or both.
        placement: FlushPlacement,
        /// The bytes named, or the whole region.
        range: FlushRange,
    },
    /// Make a key of this side's unusable.
    LocalInvalidate(Key),
    /// Open a memory window: for type 2 under the key given, for type 1 under one of the device's.
    BindWindow {
        /// The window.
        window: Key,
        /// The key it gets, which differs from the window's in the low 8 bits; none for type 1.
        key: Option<Key>,
        /// What it opens.
        binding: Binding,
    },
}

impl Work {
    /// How its completion is labelled.
    #[must_use]
    pub const fn kind(&self) -> CompletedWork {
        match self {
            Work::Send | Work::SendImmediate(_) | Work::SendInvalidate(_) => CompletedWork::Send,
            Work::Write(_) | Work::WriteImmediate(..) => CompletedWork::Write,
            Work::Read(_) => CompletedWork::Read,
            Work::CompareSwap { .. } => CompletedWork::CompareSwap,
            Work::FetchAdd { .. } => CompletedWork::FetchAdd,
            Work::AtomicWrite(_) => CompletedWork::AtomicWrite,
            Work::Flush { .. } => CompletedWork::Flush,
            Work::LocalInvalidate(_) => CompletedWork::LocalInvalidate,
            Work::BindWindow { .. } => CompletedWork::BindWindow,
        }
    }

    /// Whether a receive of the peer's is consumed.
    #[must_use]
    pub const fn takes_receive(&self) -> bool {
        matches!(
            self,
            Work::Send
                | Work::SendImmediate(_)
                | Work::SendInvalidate(_)
                | Work::WriteImmediate(..)
        )
    }

    /// Whether the peer answers with more than an acknowledgement, out of a limited resource.
    #[must_use]
    pub const fn has_response(&self) -> bool {
        matches!(
            self,
            Work::Read(_)
                | Work::CompareSwap { .. }
                | Work::FetchAdd { .. }
                | Work::AtomicWrite(_)
                | Work::Flush { .. }
        )
    }

    /// Whether nothing goes over the wire.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Work::LocalInvalidate(_) | Work::BindWindow { .. })
    }
}

bitflags::bitflags! {
    /// How to do it. The values are those of `enum ibv_send_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Begin only when all earlier reads and atomics are done.
        const FENCE = 1 << 0;
        /// Tell its completion even if it succeeds.
        const SIGNALED = 1 << 1;
        /// Raise a notification at a peer who waits for solicited ones.
        const SOLICITED = 1 << 2;
    }
}

/// The data of a send request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Registered memory; read while the request is under way.
    Segments(Segments),
    /// A copy made when the request was posted.
    Inline(SmallVec<[u8; 16]>),
}

impl Payload {
    /// No data.
    #[must_use]
    pub fn empty() -> Self {
        Self::Segments(Segments::new())
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Payload::Segments(segments) => segments
                .iter()
                .map(|segment| u64::from(segment.length))
                .sum(),
            Payload::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The peer's address.
    pub address: Address,
    /// The peer's queue pair, or [`Qpn::MULTICAST`].
    pub queue_pair: Qpn,
    /// The key that the peer's queue pair asks for. A privileged one stands for our own.
    pub queue_key: QueueKey,
}

/// A request for the send queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendRequest {
    /// The caller's own number for it.
    pub id: u64,
    /// What to do.
    pub work: Work,
    /// The data: sent, or for reads and atomics where the result goes.
    pub payload: Payload,
    /// How to do it.
    pub flags: SendFlags,
    /// For datagrams: where to.
    pub destination: Option<Destination>,
    /// For XRC: the number of the peer's shared receive queue.
    pub shared_receive: Option<Qpn>,
}

impl SendRequest {
    /// A signaled request without data.
    #[must_use]
    pub fn new(id: u64, work: Work) -> Self {
        Self {
            id,
            work,
            payload: Payload::empty(),
            flags: SendFlags::SIGNALED,
            destination: None,
            shared_receive: None,
        }
    }

    /// With this data.
    #[must_use]
    pub fn with(mut self, segments: impl IntoIterator<Item = crate::Segment>) -> Self {
        self.payload = Payload::Segments(segments.into_iter().collect());
        self
    }

    /// With a copy of this data.
    #[must_use]
    pub fn inline(mut self, bytes: &[u8]) -> Self {
        self.payload = Payload::Inline(SmallVec::from_slice(bytes));
        self
    }

    /// With these flags instead.
    #[must_use]
    pub fn flags(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self
    }

    /// To this datagram queue pair.
    #[must_use]
    pub fn to(mut self, destination: Destination) -> Self {
        self.destination = Some(destination);
        self
    }
}

/// A request for a receive queue: where the next message may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The caller's own number for it.
    pub id: u64,
    /// The memory to fill, in order.
    pub segments: Segments,
}

impl ReceiveRequest {
    /// A receive into these segments.
    pub fn new(id: u64, segments: impl IntoIterator<Item = crate::Segment>) -> Self {
        Self {
            id,
            segments: segments.into_iter().collect(),
        }
    }

    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::from(segment.length))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_memory_survives_text_and_bytes() {
        let remote = Remote {
            address: 0x7f12_3456_789a,
            key: Key::new(0xfedc_ba98),
        };
        assert_eq!(remote.to_string().parse(), Ok(remote));
        assert_eq!(Remote::from_bytes(remote.to_bytes()), remote);
        assert_eq!(remote.to_bytes()[6..], [0x78, 0x9a, 0xfe, 0xdc, 0xba, 0x98]);
    }

    #[test]
    fn other_texts_are_not_remote_memory() {
        for text in [
            "",
            "0x10",
            "16/0x1",
            "0x10/1",
            "0x10/0x100000000",
            "0x10/0x1/0x1",
        ] {
            let error = text.parse::<Remote>().expect_err(text);
            assert_eq!(error, RemoteParseError(text.to_owned()));
        }
    }
}

//! Work requests.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;
use wire::{FlushPlacement, FlushRange, Key, Qpn, QueueKey, Srqn};

use crate::address::Address;
use crate::completion::CompletedWork;
use crate::memory::{Binding, Segment, Segments};

/// The maximum length of a message.
pub const MAX_MESSAGE: u64 = 1 << 31;

/// The maximum number of segments in a request.
pub const MAX_SEGMENTS: u32 = 32;

/// An address in the peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The address, in the address space of the peer's region.
    pub address: u64,
    /// The R_Key of the peer.
    pub key: Key,
}

impl RemoteMemory {
    /// The first bytes there.
    #[inline]
    pub(crate) const fn segment(self, length: u32) -> Segment {
        Segment {
            address: self.address,
            length,
            key: self.key,
        }
    }

    /// The length of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 12;

    /// The address and then the key, both in network byte order: for a message to the peer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..].copy_from_slice(&self.key.value().to_be_bytes());
        bytes
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes).
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3] = bytes;
        Self {
            address: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            key: Key::new(u32::from_be_bytes([k0, k1, k2, k3])),
        }
    }
}

impl fmt::Display for RemoteMemory {
    /// Without spaces. [`FromStr`] parses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.address, self.key.value())
    }
}

/// A text is not an address and a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name remote memory: write 0xADDRESS/0xKEY")]
pub struct RemoteMemoryParseError(String);

impl FromStr for RemoteMemory {
    type Err = RemoteMemoryParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (address, key) = text.trim().split_once('/')?;
            let digits = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            Some(Self {
                address: digits(address)?,
                key: Key::new(u32::try_from(digits(key)?).ok()?),
            })
        };
        parse().ok_or_else(|| RemoteMemoryParseError(text.to_owned()))
    }
}

/// The operation of a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// SEND: fills the peer's next receive.
    Send,
    /// SEND with immediate data, which the completion of the receive reports.
    SendImmediate([u8; 4]),
    /// SEND with invalidate: also invalidates this key of the peer.
    SendInvalidate(Key),
    /// RDMA WRITE to the peer's memory.
    Write(RemoteMemory),
    /// RDMA WRITE with immediate data: also consumes a receive, whose completion reports the data.
    WriteImmediate(RemoteMemory, [u8; 4]),
    /// RDMA READ from the peer's memory.
    Read(RemoteMemory),
    /// Atomic compare-and-swap: if the peer's eight bytes equal `compare`, replaces them with
    /// `swap`. Returns the previous value.
    CompareSwap {
        /// The address of the eight bytes.
        remote: RemoteMemory,
        /// The value to compare with.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Atomic fetch-and-add to the peer's eight bytes. Returns the previous value.
    FetchAdd {
        /// The address of the eight bytes.
        remote: RemoteMemory,
        /// The value to add, with wrapping.
        add: u64,
    },
    /// Atomic write of eight bytes: no reader sees a part of them.
    AtomicWrite(RemoteMemory),
    /// Makes earlier writes visible or persistent at the peer.
    Flush {
        /// The address of the first byte.
        remote: RemoteMemory,
        /// The length in bytes. Ignored if the range is the whole region.
        length: u32,
        /// Global visibility, persistence, or both.
        placement: FlushPlacement,
        /// The given bytes, or the whole region.
        range: FlushRange,
    },
    /// Invalidates a local key.
    LocalInvalidate(Key),
    /// Binds a memory window. Type 2 gets the given key; type 1 gets a key that the device chooses.
    BindWindow {
        /// The window.
        window: Key,
        /// The new key of a type-2 window, which differs from the present one in the low 8 bits.
        /// `None` for type 1.
        key: Option<Key>,
        /// The range and the rights.
        binding: Binding,
    },
}

impl Work {
    /// Whether it sends data of local memory to the peer.
    #[must_use]
    pub const fn sends_data(&self) -> bool {
        matches!(
            self,
            Work::Send
                | Work::SendImmediate(_)
                | Work::SendInvalidate(_)
                | Work::Write(_)
                | Work::WriteImmediate(..)
                | Work::AtomicWrite(_)
        )
    }

    /// The kind of work that its completion reports.
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

    /// Whether it consumes a receive of the peer.
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

    /// The immediate data.
    #[inline]
    pub(crate) const fn immediate(&self) -> Option<[u8; 4]> {
        match *self {
            Work::SendImmediate(immediate) | Work::WriteImmediate(_, immediate) => Some(immediate),
            _ => None,
        }
    }

    /// Whether the peer sends a response other than an acknowledgement, which takes a limited
    /// resource.
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

    /// Whether it sends no packets.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Work::LocalInvalidate(_) | Work::BindWindow { .. })
    }
}

bitflags::bitflags! {
    /// Flags of a send request. The values are those of `enum ibv_send_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Begins only after all earlier reads and atomics have completed.
        const FENCE = 1 << 0;
        /// Reports a completion even on success.
        const SIGNALED = 1 << 1;
        /// Notifies a peer that is armed for solicited completions.
        const SOLICITED = 1 << 2;
    }
}

/// The data of a send request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Registered memory. It is read while the request is outstanding.
    Segments(Segments),
    /// A copy that was made when the request was posted.
    Inline(SmallVec<[u8; 16]>),
}

impl Payload {
    /// No data.
    #[must_use]
    pub fn empty() -> Self {
        Self::Segments(Segments::new())
    }

    /// Its length in bytes.
    #[inline]
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Payload::Segments(segments) => length_of(segments),
            Payload::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// The segments of a request. Most requests have one, which needs no loop.
#[inline]
fn collect_segments(segments: impl IntoIterator<Item = Segment>) -> Segments {
    let mut segments = segments.into_iter();
    let Some(first) = segments.next() else {
        return Segments::new();
    };
    let mut all = Segments::from_buf([first]);
    if let Some(second) = segments.next() {
        all.push(second);
        all.extend(segments);
    }
    all
}

/// How many bytes the segments have. Most requests have one.
#[inline]
fn length_of(segments: &[Segment]) -> u64 {
    match segments {
        [segment] => segment.length.into(),
        segments => segments.iter().map(|it| u64::from(it.length)).sum(),
    }
}

/// The destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The peer's address.
    pub address: Address,
    /// The peer's queue pair number, or [`Qpn::MULTICAST`].
    pub queue_pair: Qpn,
    /// The Q_Key of the peer's queue pair. A privileged key stands for the Q_Key of the sending
    /// queue pair.
    pub queue_key: QueueKey,
}

/// A work request for a send queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendRequest {
    /// The caller's id for the request.
    pub id: u64,
    /// The operation.
    pub work: Work,
    /// The data to send, or the memory for the result of a read or atomic.
    pub payload: Payload,
    /// The flags.
    pub flags: SendFlags,
    /// The destination of a datagram.
    pub destination: Option<Destination>,
    /// For XRC: the number of the peer's shared receive queue.
    pub remote_srqn: Option<Srqn>,
}

impl SendRequest {
    /// A signaled request without data.
    #[must_use]
    #[inline]
    pub fn new(id: u64, work: Work) -> Self {
        Self {
            id,
            work,
            payload: Payload::empty(),
            flags: SendFlags::SIGNALED,
            destination: None,
            remote_srqn: None,
        }
    }

    /// The request, with the data that this one has no more.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            payload: std::mem::replace(&mut self.payload, Payload::empty()),
            ..*self
        }
    }

    /// Sets the data: registered memory.
    #[must_use]
    #[inline]
    pub fn with(mut self, segments: impl IntoIterator<Item = Segment>) -> Self {
        self.payload = Payload::Segments(collect_segments(segments));
        self
    }

    /// Sets the data: an inline copy of `bytes`.
    #[must_use]
    pub fn inline(mut self, bytes: &[u8]) -> Self {
        self.payload = Payload::Inline(SmallVec::from_slice(bytes));
        self
    }

    /// Replaces the flags.
    #[must_use]
    pub fn flags(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Sets the destination of a datagram.
    #[must_use]
    pub fn to(mut self, destination: Destination) -> Self {
        self.destination = Some(destination);
        self
    }
}

/// A work request for a receive queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The caller's id for the request.
    pub id: u64,
    /// The memory to fill, in order.
    pub segments: Segments,
}

impl ReceiveRequest {
    /// A receive into these segments.
    #[inline]
    pub fn new(id: u64, segments: impl IntoIterator<Item = Segment>) -> Self {
        Self {
            id,
            segments: collect_segments(segments),
        }
    }

    /// The capacity in bytes.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> u64 {
        length_of(&self.segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_memory_round_trips_through_text_and_bytes() {
        let remote = RemoteMemory {
            address: 0x7f12_3456_789a,
            key: Key::new(0xfedc_ba98),
        };
        assert_eq!(remote.to_string().parse(), Ok(remote));
        assert_eq!(RemoteMemory::from_bytes(remote.to_bytes()), remote);
        assert_eq!(remote.to_bytes()[6..], [0x78, 0x9a, 0xfe, 0xdc, 0xba, 0x98]);
    }

    #[test]
    fn invalid_texts_are_rejected() {
        for text in [
            "",
            "0x10",
            "16/0x1",
            "0x10/1",
            "0x10/0x100000000",
            "0x10/0x1/0x1",
        ] {
            let error = text.parse::<RemoteMemory>().expect_err(text);
            assert_eq!(error, RemoteMemoryParseError(text.to_owned()));
        }
    }
}

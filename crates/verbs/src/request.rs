//! Builders of work requests.

use engine::{Destination, Payload, RemoteMemory, Segment, SendFlags, SendRequest, Work};
use wire::{FlushPlacement, FlushRange, Key, Srqn};

/// A send request.
///
/// ```
/// use rocinante::Request;
///
/// let request = Request::send().inline(b"hello").id(7).solicited();
/// ```
#[derive(Debug, Clone)]
pub struct Request(SendRequest);

impl Request {
    /// SEND: puts data into the peer's next receive.
    #[must_use]
    #[inline]
    pub fn send() -> Self {
        Self::of(Work::Send)
    }

    /// SEND with immediate: the peer's completion has four bytes of immediate data.
    #[must_use]
    #[inline]
    pub fn send_with_immediate(immediate: [u8; 4]) -> Self {
        Self::of(Work::SendImmediate(immediate))
    }

    /// SEND with invalidate: also invalidates a key of the peer.
    #[must_use]
    #[inline]
    pub fn send_with_invalidate(key: Key) -> Self {
        Self::of(Work::SendInvalidate(key))
    }

    /// RDMA WRITE: writes data to the peer's memory.
    #[must_use]
    #[inline]
    pub fn write(remote: RemoteMemory) -> Self {
        Self::of(Work::Write(remote))
    }

    /// RDMA WRITE with immediate: also consumes a receive, whose completion has four bytes of immediate data.
    #[must_use]
    #[inline]
    pub fn write_with_immediate(remote: RemoteMemory, immediate: [u8; 4]) -> Self {
        Self::of(Work::WriteImmediate(remote, immediate))
    }

    /// RDMA READ: reads data from the peer's memory.
    #[must_use]
    #[inline]
    pub fn read(remote: RemoteMemory) -> Self {
        Self::of(Work::Read(remote))
    }

    /// Compare-and-swap of eight bytes at the peer. Returns the previous value.
    #[must_use]
    #[inline]
    pub fn compare_swap(remote: RemoteMemory, compare: u64, swap: u64) -> Self {
        Self::of(Work::CompareSwap {
            remote,
            compare,
            swap,
        })
    }

    /// Fetch-and-add to eight bytes at the peer. Returns the previous value.
    #[must_use]
    #[inline]
    pub fn fetch_add(remote: RemoteMemory, add: u64) -> Self {
        Self::of(Work::FetchAdd { remote, add })
    }

    /// Atomic write of eight bytes at the peer.
    #[must_use]
    #[inline]
    pub fn atomic_write(remote: RemoteMemory) -> Self {
        Self::of(Work::AtomicWrite(remote))
    }

    /// Flush: makes earlier writes visible or persistent at the peer.
    #[must_use]
    #[inline]
    pub fn flush(
        remote: RemoteMemory,
        length: u32,
        placement: FlushPlacement,
        range: FlushRange,
    ) -> Self {
        Self::of(Work::Flush {
            remote,
            length,
            placement,
            range,
        })
    }

    /// Local invalidate of a type 2 memory window.
    #[must_use]
    #[inline]
    pub fn local_invalidate(key: Key) -> Self {
        Self::of(Work::LocalInvalidate(key))
    }

    #[inline]
    pub(crate) fn of(work: Work) -> Self {
        Self(SendRequest::new(0, work))
    }

    /// Adds a segment of registered memory. Several segments make one message.
    #[must_use]
    #[inline]
    pub fn data(mut self, segment: Segment) -> Self {
        match &mut self.0.payload {
            Payload::Segments(segments) => segments.push(segment),
            Payload::Inline(_) => {
                self.0.payload = Payload::Segments([segment].into_iter().collect());
            }
        }
        self
    }

    /// Sends a copy of these bytes, which need not be registered.
    #[must_use]
    #[inline]
    pub fn inline(self, bytes: &[u8]) -> Self {
        Self(self.0.inline(bytes))
    }

    /// Sets the id (`wr_id`) that its completion has.
    #[must_use]
    #[inline]
    pub fn id(mut self, id: u64) -> Self {
        self.0.id = id;
        self
    }

    /// Unsignaled: no completion on success.
    #[must_use]
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.0.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Fence: starts after all earlier reads and atomics are completed.
    #[must_use]
    #[inline]
    pub fn fenced(mut self) -> Self {
        self.0.flags.insert(SendFlags::FENCE);
        self
    }

    /// Solicited event: wakes a peer that waits for solicited completions.
    #[must_use]
    #[inline]
    pub fn solicited(mut self) -> Self {
        self.0.flags.insert(SendFlags::SOLICITED);
        self
    }

    pub(crate) fn to(mut self, destination: Destination) -> Self {
        self.0.destination = Some(destination);
        self
    }

    pub(crate) fn naming_receive_queue(mut self, queue: Srqn) -> Self {
        self.0.remote_srqn = Some(queue);
        self
    }

    #[inline]
    pub(crate) fn into_engine(self) -> SendRequest {
        self.0
    }
}

//! Builders of work requests.

use engine::{Destination, RemoteMemory, Segment, SendFlags, SendRequest, Work};
use wire::{FlushPlacement, FlushRange, Key, Srqn};

/// A send request.
///
/// SEND and WRITE take their data from registered memory or carry it inline, so they begin as [`Outgoing`]. READ and the
/// atomics put their result into registered memory, so they begin as [`Incoming`]. Naming the data makes the request:
///
/// ```
/// use rocinante::Request;
///
/// let request = Request::send().inline(b"hello").id(7).solicited();
/// ```
#[derive(Debug, Clone)]
pub struct Request(SendRequest);

/// A SEND or WRITE whose data is not named yet.
///
/// A message is in registered memory or inline, not both:
/// ```compile_fail,E0599
/// # fn demo(segment: rocinante::Segment) {
/// rocinante::Request::send().data(segment).inline(b"hello");
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn demo(segment: rocinante::Segment) {
/// rocinante::Request::send().inline(b"hello").data(segment);
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is a request after `data`, `segments`, `inline` or `empty`"]
pub struct Outgoing(SendRequest);

/// A READ or an atomic whose place for the result is not named yet.
///
/// The result can't be inline:
/// ```compile_fail,E0599
/// # fn demo(remote: rocinante::RemoteMemory) {
/// rocinante::Request::read(remote).inline(b"hello");
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is a request after `data` or `segments`"]
pub struct Incoming(SendRequest);

impl Request {
    /// SEND: puts data into the peer's next receive.
    #[inline]
    pub fn send() -> Outgoing {
        Outgoing::of(Work::Send)
    }

    /// SEND with immediate: the peer's completion has four bytes of immediate data.
    #[inline]
    pub fn send_with_immediate(immediate: [u8; 4]) -> Outgoing {
        Outgoing::of(Work::SendImmediate(immediate))
    }

    /// SEND with invalidate: also invalidates a key of the peer.
    #[inline]
    pub fn send_with_invalidate(key: Key) -> Outgoing {
        Outgoing::of(Work::SendInvalidate(key))
    }

    /// RDMA WRITE: writes data to the peer's memory.
    #[inline]
    pub fn write(remote: RemoteMemory) -> Outgoing {
        Outgoing::of(Work::Write(remote))
    }

    /// RDMA WRITE with immediate: also consumes a receive, whose completion has four bytes of immediate data.
    #[inline]
    pub fn write_with_immediate(remote: RemoteMemory, immediate: [u8; 4]) -> Outgoing {
        Outgoing::of(Work::WriteImmediate(remote, immediate))
    }

    /// RDMA READ: reads data from the peer's memory.
    #[inline]
    pub fn read(remote: RemoteMemory) -> Incoming {
        Incoming::of(Work::Read(remote))
    }

    /// Compare-and-swap of eight bytes at the peer. Returns the previous value.
    #[inline]
    pub fn compare_swap(remote: RemoteMemory, compare: u64, swap: u64) -> Incoming {
        Incoming::of(Work::CompareSwap {
            remote,
            compare,
            swap,
        })
    }

    /// Fetch-and-add to eight bytes at the peer. Returns the previous value.
    #[inline]
    pub fn fetch_add(remote: RemoteMemory, add: u64) -> Incoming {
        Incoming::of(Work::FetchAdd { remote, add })
    }

    /// Atomic write of eight bytes at the peer.
    #[inline]
    pub fn atomic_write(remote: RemoteMemory) -> Outgoing {
        Outgoing::of(Work::AtomicWrite(remote))
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

    #[cfg(feature = "async")]
    pub(crate) fn signaled(mut self) -> Self {
        self.0.flags.insert(SendFlags::SIGNALED);
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

    /// The same, in its place: it is larger than what is done with it.
    #[inline]
    pub(crate) fn as_engine(&mut self) -> &mut SendRequest {
        &mut self.0
    }
}

impl Outgoing {
    #[inline]
    fn of(work: Work) -> Self {
        Self(SendRequest::new(0, work))
    }

    /// The message is a segment of registered memory.
    #[must_use]
    #[inline]
    pub fn data(self, segment: Segment) -> Request {
        self.segments([segment])
    }

    /// The message is several segments of registered memory, one after the other.
    #[must_use]
    #[inline]
    pub fn segments(self, segments: impl IntoIterator<Item = Segment>) -> Request {
        Request(self.0.with(segments))
    }

    /// The message is a copy of these bytes, which need not be registered.
    #[must_use]
    #[inline]
    pub fn inline(self, bytes: &[u8]) -> Request {
        Request(self.0.inline(bytes))
    }

    /// The message has no bytes.
    #[must_use]
    #[inline]
    pub fn empty(self) -> Request {
        Request(self.0)
    }
}

impl Incoming {
    #[inline]
    fn of(work: Work) -> Self {
        Self(SendRequest::new(0, work))
    }

    /// The result goes to a segment of registered memory.
    #[must_use]
    #[inline]
    pub fn data(self, segment: Segment) -> Request {
        self.segments([segment])
    }

    /// The result goes to several segments of registered memory, one after the other.
    #[must_use]
    #[inline]
    pub fn segments(self, segments: impl IntoIterator<Item = Segment>) -> Request {
        Request(self.0.with(segments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_id_zero_until_it_gets_another() {
        let remote = RemoteMemory {
            address: 0,
            key: Key::new(1),
        };
        let requests = [
            Request::local_invalidate(Key::new(1)),
            Request::send().empty(),
            Request::read(remote).segments([]),
        ];
        for request in requests {
            assert_eq!(request.clone().into_engine().id, 0);
            assert_eq!(request.id(7).into_engine().id, 7);
        }
    }
}

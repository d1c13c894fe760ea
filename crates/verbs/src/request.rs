//! Work requests, as sentences: what, with which data, how.

use engine::{Destination, Payload, Remote, Segment, SendFlags, SendRequest, Work};
use wire::{FlushPlacement, FlushRange, Key, Qpn};

/// Something to ask of a queue pair.
///
/// ```
/// use rocinante::Request;
///
/// let request = Request::send().inline(b"hello").id(7).solicited();
/// ```
#[derive(Debug, Clone)]
pub struct Request(SendRequest);

impl Request {
    /// Puts data into the peer's next receive.
    #[must_use]
    pub fn send() -> Self {
        Self::of(Work::Send)
    }

    /// SEND whose receive completion shows four bytes.
    #[must_use]
    pub fn send_with_immediate(immediate: [u8; 4]) -> Self {
        Self::of(Work::SendImmediate(immediate))
    }

    /// SEND that also invalidates a memory window of the peer's.
    #[must_use]
    pub fn send_with_invalidate(key: Key) -> Self {
        Self::of(Work::SendInvalidate(key))
    }

    /// Puts data into the peer's memory.
    #[must_use]
    pub fn write(remote: Remote) -> Self {
        Self::of(Work::Write(remote))
    }

    /// WRITE that then consumes a receive whose completion shows four bytes.
    #[must_use]
    pub fn write_with_immediate(remote: Remote, immediate: [u8; 4]) -> Self {
        Self::of(Work::WriteImmediate(remote, immediate))
    }

    /// Gets data from the peer's memory.
    #[must_use]
    pub fn read(remote: Remote) -> Self {
        Self::of(Work::Read(remote))
    }

    /// Replaces eight bytes of the peer's if they are what is expected, and gets what they were.
    #[must_use]
    pub fn compare_swap(remote: Remote, compare: u64, swap: u64) -> Self {
        Self::of(Work::CompareSwap {
            remote,
            compare,
            swap,
        })
    }

    /// Adds to eight bytes of the peer's, and gets what they were.
    #[must_use]
    pub fn fetch_add(remote: Remote, add: u64) -> Self {
        Self::of(Work::FetchAdd { remote, add })
    }

    /// Writes eight bytes of the peer's at once.
    #[must_use]
    pub fn atomic_write(remote: Remote) -> Self {
        Self::of(Work::AtomicWrite(remote))
    }

    /// Makes earlier writes visible or durable at the peer.
    #[must_use]
    pub fn flush(
        remote: Remote,
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

    /// Makes a type-2 memory window of this side's unusable.
    #[must_use]
    pub fn invalidate(key: Key) -> Self {
        Self::of(Work::LocalInvalidate(key))
    }

    fn of(work: Work) -> Self {
        Self(SendRequest::new(0, work))
    }

    /// With this piece of registered memory; several pieces are one message.
    #[must_use]
    pub fn data(mut self, segment: Segment) -> Self {
        match &mut self.0.payload {
            Payload::Segments(segments) => segments.push(segment),
            Payload::Inline(_) => {
                self.0.payload = Payload::Segments([segment].into_iter().collect());
            }
        }
        self
    }

    /// With a copy of these bytes, which need not be registered.
    #[must_use]
    pub fn inline(self, bytes: &[u8]) -> Self {
        Self(self.0.inline(bytes))
    }

    /// Under this number, which its completion will show.
    #[must_use]
    pub fn id(mut self, id: u64) -> Self {
        self.0.id = id;
        self
    }

    /// Without a completion if it succeeds.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.0.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Only after all earlier reads and atomics.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.0.flags.insert(SendFlags::FENCE);
        self
    }

    /// Waking a peer that waits for solicited completions.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.0.flags.insert(SendFlags::SOLICITED);
        self
    }

    pub(crate) fn to(mut self, destination: Destination) -> Self {
        self.0.destination = Some(destination);
        self
    }

    pub(crate) fn naming_receive_queue(mut self, queue: Qpn) -> Self {
        self.0.shared_receive = Some(queue);
        self
    }

    pub(crate) fn bind(work: Work) -> Self {
        Self::of(work)
    }

    pub(crate) fn into_engine(self) -> SendRequest {
        self.0
    }
}

//! A future for each request.
//!
//! [`Requests`] is a queue pair whose requests are awaited one by one, so it owns its completion queue. [`Core`](core::Core) is what it
//! shares with its futures; [`Slots`](slots::Slots) are their states.

mod builder;
mod core;
mod outstanding;
mod slots;

use std::fmt;
use std::sync::Arc;

use engine::{Completion, ModifyError, ReceiveRequest, RemoteMemory, Segment, State};
use smallvec::SmallVec;
use wire::Qpn;

pub use builder::{PreparedRequests, RequestsBuilder};
pub use outstanding::{Outstanding, Received, RequestError};

use self::core::Core;
use self::slots::Work;
use crate::queue_pair::{Endpoint, QueuePair};
use crate::request::{Outgoing, Request};

/// A connected queue pair with a future for each request. [`ProtectionDomain::requests_builder`](crate::ProtectionDomain::requests_builder) makes one.
///
/// Each method posts a request, and returns an [`Outstanding`] to await, or to wait for on this thread. Any number may be outstanding:
/// those for which the queue has no room are posted later, in the order of the calls.
///
/// ```
/// use rocinante::{Access, Context};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::open("127.0.0.1")?;
/// let domain = context.allocate_protection_domain()?;
/// let memory = domain.allocate_memory(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)?;
/// let prepare = || domain.requests_builder().create_reliable();
/// let (left, right) = (prepare()?, prepare()?);
/// let (here, there) = (left.endpoint(), right.endpoint());
/// let (left, right) = (left.connect(there)?, right.connect(here)?);
///
/// rocinante::block_on(async {
///     let message = right.receive(memory.slice(..32));
///     left.send(b"hello").await?;
///     assert_eq!(message.await?.length, 5);
///     left.write(memory.slice(..5), memory.remote(32)).await
/// })?;
/// assert_eq!(memory.to_vec(32..37), b"hello");
/// let previous = left.fetch_add(memory.remote(40), 7).wait()?; // without async
/// assert_eq!(previous, 0);
/// # Ok(())
/// # }
/// ```
///
/// Dropping it fails what is outstanding ([`RequestError::Closed`]), and destroys the queue pair.
///
/// Its completions can't be taken by others, and a queue pair that the program polls has no futures:
/// ```compile_fail,E0599
/// # fn demo(requests: rocinante::Requests) {
/// requests.post_send(rocinante::Request::send().inline(b"hello"));
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn demo(queue_pair: rocinante::QueuePair) {
/// queue_pair.send(b"hello");
/// # }
/// ```
#[must_use = "dropping it destroys the queue pair"]
pub struct Requests {
    // Dropped first: its requests fail before the queue pair is gone.
    open: Open,
    queue_pair: QueuePair,
}

/// Ends the requests when it is dropped.
struct Open(Arc<Core>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.end(&RequestError::Closed);
    }
}

/// What a SEND or WRITE carries: a [`Segment`] of registered memory, several of them, or a copy of a few bytes that need not be registered.
#[derive(Debug)]
pub struct Message<'m>(Data<'m>);

#[derive(Debug)]
enum Data<'m> {
    Segments(SmallVec<[Segment; 4]>),
    Inline(&'m [u8]),
}

impl Message<'_> {
    fn of(self, request: Outgoing) -> Work {
        Work::Send(match self.0 {
            Data::Segments(segments) => request.segments(segments),
            Data::Inline(bytes) => request.inline(bytes),
        })
    }
}

impl From<Segment> for Message<'_> {
    fn from(segment: Segment) -> Self {
        Self::from([segment])
    }
}

impl<const N: usize> From<[Segment; N]> for Message<'_> {
    fn from(segments: [Segment; N]) -> Self {
        Self(Data::Segments(SmallVec::from_slice(&segments)))
    }
}

impl<'m> From<&'m [u8]> for Message<'m> {
    fn from(bytes: &'m [u8]) -> Self {
        Self(Data::Inline(bytes))
    }
}

impl<'m, const N: usize> From<&'m [u8; N]> for Message<'m> {
    fn from(bytes: &'m [u8; N]) -> Self {
        Self(Data::Inline(bytes))
    }
}

impl Requests {
    /// Sends a message to the peer's next receive.
    pub fn send<'m>(&self, message: impl Into<Message<'m>>) -> Outstanding<()> {
        self.begin(message.into().of(Request::send()), |_| ())
    }

    /// Writes to the peer's memory.
    pub fn write<'m>(
        &self,
        message: impl Into<Message<'m>>,
        remote: RemoteMemory,
    ) -> Outstanding<()> {
        self.begin(message.into().of(Request::write(remote)), |_| ())
    }

    /// Reads from the peer's memory into a segment, or into several, one after the other.
    pub fn read(
        &self,
        remote: RemoteMemory,
        into: impl IntoIterator<Item = Segment>,
    ) -> Outstanding<()> {
        let request = Request::read(remote).segments(into);
        self.begin(Work::Send(request), |_| ())
    }

    /// Receives the next message into a segment, or into several, one after the other. Receives are filled in the order of the calls. One that
    /// must be there before the peer sends is posted by [`PreparedRequests::receive`].
    pub fn receive(&self, into: impl IntoIterator<Item = Segment>) -> Outstanding<Received> {
        receive(&self.open.0, into)
    }

    /// Replaces eight bytes at the peer by `new` if they are `expected`. Returns what they were before.
    pub fn compare_and_swap(
        &self,
        remote: RemoteMemory,
        expected: u64,
        new: u64,
    ) -> Outstanding<u64> {
        let request = Request::compare_swap(remote, expected, new);
        self.begin(Work::Atomic(request), |finished| finished.previous)
    }

    /// Adds to eight bytes at the peer. Returns what they were before.
    pub fn fetch_add(&self, remote: RemoteMemory, add: u64) -> Outstanding<u64> {
        let request = Request::fetch_add(remote, add);
        self.begin(Work::Atomic(request), |finished| finished.previous)
    }

    /// Any other request, or one with flags. It gets an id of ours, and always has a completion.
    pub fn request(&self, request: Request) -> Outstanding<Completion> {
        self.begin(Work::Send(request), |finished| finished.completion)
    }

    fn begin<T>(&self, work: Work, result: fn(&outstanding::Finished) -> T) -> Outstanding<T> {
        Outstanding::new(&self.open.0, work, result)
    }

    /// The queue pair number.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.queue_pair.number()
    }

    /// The peer's endpoint.
    #[must_use]
    pub fn peer(&self) -> Endpoint {
        self.queue_pair.peer()
    }

    /// The state: [`State::ReadyToSend`] unless there was an error.
    #[must_use]
    pub fn state(&self) -> State {
        self.queue_pair.state()
    }

    /// Moves it to the error state. Outstanding requests fail.
    pub fn move_to_error(&self) -> Result<(), ModifyError> {
        self.queue_pair.move_to_error()
    }

    pub(crate) fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Takes the completions that the device has now, for [`Outstanding::take`].
    pub(crate) fn take_completions(&self) {
        self.open.0.take_present();
    }
}

fn receive(core: &Arc<Core>, into: impl IntoIterator<Item = Segment>) -> Outstanding<Received> {
    // Its id is that of its slot, which it gets later.
    let request = ReceiveRequest::new(0, into);
    Outstanding::new(core, Work::Receive(request), Received::of)
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requests").field(&self.queue_pair).finish()
    }
}

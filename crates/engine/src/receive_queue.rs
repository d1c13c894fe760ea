//! Receive queues: of one queue pair, or shared by several.

mod srq_numbers;

pub(crate) use srq_numbers::SrqNumbers;

use std::collections::VecDeque;

use parking_lot::Mutex;
use wire::Srqn;

use crate::address::AddressError;
use crate::completion::CompletionQueue;
use crate::memory::ProtectionDomain;
use crate::object_error::ObjectError;
use crate::slab::Id;
use crate::state::State;
use crate::system_refusal::SystemRefusal;
use crate::work_request::{MAX_MESSAGE, ReceiveRequest};

/// Why a work request is rejected when it is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full.
    #[error("the queue is full: poll completions, or create it larger")]
    QueueFull,
    /// The process has no memory for another request.
    #[error("the process has no memory for another request")]
    NoMemory,
    /// The request has more segments than the queue was created for.
    #[error("the request has more segments than the {max} that the queue was created for")]
    TooManySegments {
        /// The maximum.
        max: u32,
    },
    /// The message has more than 2^31 bytes.
    #[error("a message has at most 2^31 bytes")]
    MessageTooLong,
    /// The request has more inline data than the queue was created for.
    #[error("at most {max} bytes may be inline in this queue")]
    InlineTooLong {
        /// The maximum.
        max: u32,
    },
    /// A READ or an atomic has inline data, but its segments receive the result.
    #[error("the result of a READ or an atomic can't be inline: name registered memory for it")]
    InlineResult,
    /// The state of the queue pair does not allow it.
    #[error("the queue pair is in state {0}, which does not accept this request")]
    WrongState(State),
    /// The queue pair type does not support the work.
    #[error("this queue pair type does not support the work")]
    Unsupported,
    /// A datagram has no destination, or another request has one.
    #[error(
        "a datagram needs an address handle and a queue key, and other requests must not have them"
    )]
    Destination,
    /// The destination of a datagram cannot be used.
    #[error("the destination cannot be used: {0}")]
    Address(#[from] AddressError),
    /// An atomic needs eight bytes of local memory.
    #[error("an atomic needs 8 bytes of local memory")]
    AtomicShape,
    /// The queue pair receives from a shared receive queue.
    #[error("this queue pair uses a shared receive queue: post the receive there")]
    SharedReceive,
    /// The parent process opened the device.
    #[error("the device was opened before a fork and stays with the parent: open it again")]
    OpenedBeforeFork,
    /// The queue does not exist.
    #[error("no such queue: it was destroyed or belongs to another device")]
    Unknown,
    /// A device of the system refused it.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

/// The requests of one receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: u32,
    max_segments: u32,
    /// What was in the memory of each request when it was posted, if that is compared.
    contents: Option<VecDeque<Contents>>,
}

/// A checksum of the first bytes of memory; `None` if they could not be read.
pub(crate) type Contents = Option<u32>;

impl ReceiveQueue {
    pub(crate) fn new(capacity: u32, max_segments: u32) -> Self {
        Self {
            requests: VecDeque::new(),
            capacity,
            max_segments,
            contents: None,
        }
    }

    pub(crate) fn post(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.make_room(&request)?;
        self.push(request);
        Ok(())
    }

    /// Checks whether the request can be posted, and reserves memory for it.
    #[inline]
    pub(crate) fn make_room(&mut self, request: &ReceiveRequest) -> Result<(), PostError> {
        if self.requests.len() >= self.capacity as usize {
            return Err(PostError::QueueFull);
        }
        if request.segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments {
                max: self.max_segments,
            });
        }
        if request.capacity() > MAX_MESSAGE {
            return Err(PostError::MessageTooLong);
        }
        let reserved = self.requests.try_reserve(1);
        reserved.map_err(|_| PostError::NoMemory)
    }

    /// Adds a request for which there is room.
    #[inline]
    pub(crate) fn push(&mut self, request: ReceiveRequest) {
        self.requests.push_back(request);
    }

    /// As [`push`](Self::push). All requests of the queue are added in this way, or none.
    pub(crate) fn push_with_contents(&mut self, request: ReceiveRequest, before: Contents) {
        self.contents.get_or_insert_default().push_back(before);
        self.push(request);
    }

    pub(crate) fn take(&mut self) -> Option<ReceiveRequest> {
        self.take_with_contents().map(|(request, _)| request)
    }

    /// Takes a request. Also returns what was in its memory when it was posted, if that is known.
    pub(crate) fn take_with_contents(&mut self) -> Option<(ReceiveRequest, Contents)> {
        let request = self.requests.pop_front()?;
        let contents = self.contents.as_mut().and_then(VecDeque::pop_front);
        Some((request, contents.flatten()))
    }

    /// The request that the next message will fill.
    pub(crate) fn front(&self) -> Option<&ReceiveRequest> {
        self.requests.front()
    }

    /// Returns a receive whose message did not complete.
    pub(crate) fn put_back(&mut self, request: ReceiveRequest) {
        self.requests.push_front(request);
        if let Some(contents) = &mut self.contents {
            // A part of a message may be there.
            contents.push_front(None);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// The values that a shared receive queue is created with.
#[derive(Debug, Clone, Copy)]
pub struct SharedReceiveInit {
    /// The protection domain of its memory.
    pub domain: Id<ProtectionDomain>,
    /// The maximum number of requests.
    pub capacity: u32,
    /// The maximum number of segments in a request.
    pub max_segments: u32,
    /// For XRC: its XRC domain, and the completion queue of its receives.
    pub xrc: Option<(Id<XrcDomain>, Id<CompletionQueue>)>,
}

/// An XRC domain, in which processes share XRC target queue pairs.
#[derive(Debug)]
pub struct XrcDomain {
    pub(crate) users: u32,
}

/// A receive queue that several queue pairs share.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pub(crate) id: Id<Self>,
    pub(crate) init: SharedReceiveInit,
    number: Option<Srqn>,
    requests: Mutex<LimitedQueue>,
}

#[derive(Debug)]
struct LimitedQueue {
    queue: ReceiveQueue,
    limit: u32,
}

impl SharedReceiveQueue {
    pub(crate) fn new(id: Id<Self>, init: SharedReceiveInit, number: Option<Srqn>) -> Self {
        Self {
            id,
            init,
            number,
            requests: Mutex::new(LimitedQueue {
                queue: ReceiveQueue::new(init.capacity, init.max_segments),
                limit: 0,
            }),
        }
    }

    /// The number by which XRC requests name it. Other shared receive queues have none.
    #[must_use]
    pub fn number(&self) -> Option<Srqn> {
        self.number
    }

    /// The armed limit, or 0.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.requests.lock().limit
    }

    /// The maximum number of requests.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.requests.lock().queue.capacity
    }

    /// How many requests it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.lock().queue.len()
    }

    /// Whether it holds no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.lock().queue.is_empty()
    }

    /// Posts a request. An observer of the device does not see it.
    pub fn post(&self, request: ReceiveRequest) -> Result<(), PostError> {
        self.requests.lock().queue.post(request)
    }

    /// Returns a receive whose message did not complete.
    pub(crate) fn put_back(&self, request: ReceiveRequest) {
        self.requests.lock().queue.put_back(request);
    }

    /// Changes the capacity and the limit; `None` keeps the present value. If one of them is rejected, neither changes.
    pub(crate) fn modify(
        &self,
        capacity: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), ObjectError> {
        let mut requests = self.requests.lock();
        let capacity = capacity.unwrap_or(requests.queue.capacity);
        let limit = limit.unwrap_or(requests.limit);
        if requests.queue.len() > capacity as usize {
            let too_small = "more receives wait in the queue than would fit";
            return Err(ObjectError::Mismatch(too_small));
        }
        if limit > capacity {
            return Err(ObjectError::OutOfRange {
                what: "the limit",
                max: capacity,
            });
        }
        requests.queue.capacity = capacity;
        requests.limit = limit;
        Ok(())
    }

    /// Takes a request. Also returns whether the queue fell below its limit.
    pub(crate) fn take(&self) -> Option<(ReceiveRequest, bool)> {
        let mut requests = self.requests.lock();
        let request = requests.queue.take()?;
        let reached = requests.queue.len() < requests.limit as usize;
        if reached {
            // One-shot: the application must arm it again.
            requests.limit = 0;
        }
        Some((request, reached))
    }
}

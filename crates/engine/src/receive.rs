//! Receive queues: of one queue pair, or shared by several.

mod numbers;

pub(crate) use numbers::ReceiveNumbers;

use std::collections::VecDeque;

use wire::Qpn;

use crate::completion::CompletionQueue;
use crate::memory::ProtectionDomain;
use crate::table::Id;
use crate::work::{MAX_MESSAGE, ReceiveRequest};

/// Why a work request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// All slots are taken.
    #[error("the queue is full: poll completions, or create it larger")]
    QueueFull,
    /// The process has no memory for another one.
    #[error("the process has no memory for another request")]
    NoMemory,
    /// More segments than the queue was created for.
    #[error("the request has more segments than the {max} that the queue was created for")]
    TooManySegments {
        /// How many would be taken.
        max: u32,
    },
    /// More than 2^31 bytes.
    #[error("a message may have at most 2^31 bytes")]
    MessageTooLong,
    /// More inline data than the queue was created for.
    #[error("at most {max} bytes may be inline in this queue")]
    InlineTooLong {
        /// How many would be taken.
        max: u32,
    },
    /// The queue pair's state forbids it.
    #[error("the queue pair is in state {0:?}: it takes such requests only later")]
    WrongState(crate::State),
    /// The kind of queue pair can't do that.
    #[error("this kind of queue pair can't do that work")]
    Unsupported,
    /// A datagram without destination, or another request with one.
    #[error("a datagram needs an address handle and queue key, other requests take none")]
    Destination,
    /// A datagram's address can't be reached.
    #[error("the destination can't be used: {0}")]
    Address(#[from] crate::AddressError),
    /// An atomic works on eight aligned bytes.
    #[error("an atomic needs an 8-byte aligned remote address and 8 bytes of local memory")]
    AtomicShape,
    /// The queue pair receives from a shared receive queue.
    #[error("this queue pair receives from a shared queue: post there")]
    SharedReceive,
    /// The device was opened by the parent process.
    #[error("the device was opened before a fork and stays with the parent: open it again")]
    Abandoned,
    /// No such object.
    #[error("no such queue: it was destroyed or belongs to another device")]
    Unknown,
}

/// The requests of one receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: u32,
    max_segments: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(capacity: u32, max_segments: u32) -> Self {
        Self {
            requests: VecDeque::new(),
            capacity,
            max_segments,
        }
    }

    pub(crate) fn post(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
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
        reserved.map_err(|_| PostError::NoMemory)?;
        self.requests.push_back(request);
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Option<ReceiveRequest> {
        self.requests.pop_front()
    }

    /// The request that the next message goes into.
    pub(crate) fn front(&self) -> Option<&ReceiveRequest> {
        self.requests.front()
    }

    /// Gives back a receive whose message did not come to its end.
    pub(crate) fn put_back(&mut self, request: ReceiveRequest) {
        self.requests.push_front(request);
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// What a shared receive queue is created with.
#[derive(Debug, Clone, Copy)]
pub struct SharedReceiveInit {
    /// The domain of its memory.
    pub domain: Id<ProtectionDomain>,
    /// How many requests it holds.
    pub capacity: u32,
    /// How many segments each may have.
    pub max_segments: u32,
    /// For XRC: the domain it belongs to, and where its receives complete.
    pub extended: Option<(Id<XrcDomain>, Id<CompletionQueue>)>,
}

/// Lets processes share XRC target queue pairs.
#[derive(Debug)]
pub struct XrcDomain {
    pub(crate) users: u32,
}

/// Receives that several queue pairs take from.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pub(crate) init: SharedReceiveInit,
    pub(crate) queue: ReceiveQueue,
    limit: u32,
    pub(crate) users: u32,
    number: Option<Qpn>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(init: SharedReceiveInit, number: Option<Qpn>) -> Self {
        Self {
            init,
            number,
            queue: ReceiveQueue::new(init.capacity, init.max_segments),
            limit: 0,
            users: 0,
        }
    }

    /// The number by which XRC requests name it on the wire; others have none.
    #[must_use]
    pub fn number(&self) -> Option<Qpn> {
        self.number
    }

    /// The limit that is armed, or 0.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How many requests it holds at most.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.queue.capacity
    }

    /// How many requests wait in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no request waits in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Asks for one event when fewer than `limit` requests are left; 0 disarms.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// False when more requests wait than the new capacity holds.
    pub(crate) fn resize(&mut self, capacity: u32) -> bool {
        let fits = self.queue.len() <= capacity as usize;
        if fits {
            self.queue.capacity = capacity;
        }
        fits
    }

    /// A request, and whether taking it fell below the limit.
    pub(crate) fn take(&mut self) -> Option<(ReceiveRequest, bool)> {
        let request = self.queue.take()?;
        let reached = self.queue.len() < self.limit as usize;
        if reached {
            // One-shot: the consumer arms it again.
            self.limit = 0;
        }
        Some((request, reached))
    }
}

//! Observations: what a program asks of the device, and what the device does with the program's memory.
//!
//! A checker reads them and finds mistakes of the program. They are recorded only if
//! [`Config::observations`](crate::Config::observations) is set.

use std::collections::VecDeque;
use std::net::IpAddr;

use wire::{Key, Qpn, RnrTimer};

use crate::completion::{Completion, CompletionQueue, Status};
use crate::event::AsyncEvent;
use crate::memory::{Access, MappingChange, ProtectionDomain, Registration, Segments};
use crate::receive_queue::SharedReceiveQueue;
use crate::slab::Id;
use crate::state::QueuePairType;
use crate::work_request::Work;

/// Something that happened at a device.
#[derive(Debug, Clone)]
pub enum Observation {
    /// A protection domain was allocated.
    DomainAllocated(Id<ProtectionDomain>),
    /// A protection domain was freed, or left to a library that keeps it.
    DomainFreed(Id<ProtectionDomain>),
    /// Memory was registered, or the region changed.
    Registered {
        /// The region.
        region: Registration,
        /// Its access rights.
        access: Access,
        /// The address of its first byte in this process; `None` if there is no memory.
        memory: Option<u64>,
        /// Whether it is memory of an accelerator, which this process cannot access.
        accelerated: bool,
    },
    /// A region was deregistered.
    Deregistered {
        /// Its L_Key.
        key: Key,
        /// The first address at which the program had changed the mapping before, and how.
        changed: Option<(u64, MappingChange)>,
    },
    /// A completion queue was created with this capacity, or got it later.
    CompletionQueue(Id<CompletionQueue>, u32),
    /// A completion queue was destroyed.
    CompletionQueueDestroyed(Id<CompletionQueue>),
    /// A shared receive queue was created.
    SharedReceiveQueue(Id<SharedReceiveQueue>),
    /// A shared receive queue was destroyed.
    SharedReceiveQueueDestroyed(Id<SharedReceiveQueue>),
    /// A queue pair was created.
    QueuePair(Qpn, QueuePairSizes),
    /// A queue pair was connected with a peer.
    Connected(Qpn, Peer),
    /// A queue pair may have this many reads and atomics outstanding, in either direction.
    ReadDepth(Qpn, u8),
    /// A queue pair entered the error state.
    QueuePairFailed(Qpn),
    /// A queue pair was destroyed.
    QueuePairDestroyed(Discarded),
    /// A queue pair was reset.
    QueuePairReset(Discarded),
    /// A request was posted to a send queue.
    SendPosted(PostedSend),
    /// The oldest request of a send queue ended. The device needs its memory no more.
    SendEnded {
        /// The queue pair.
        queue_pair: Qpn,
        /// How it ended.
        status: Status,
        /// The first packet of the message, by its offset, that was found changed when it was sent.
        changed_at: Option<u32>,
    },
    /// A message was changed after its request was posted and before the program polled a completion that covers it.
    MessageChanged {
        /// The queue pair.
        queue_pair: Qpn,
        /// The number of the request, counted from the creation or the reset of the queue pair.
        serial: u64,
        /// The first packet that is changed, by its offset in the message.
        offset: u32,
    },
    /// A receive was posted.
    ReceivePosted {
        /// Where it was posted.
        queue: ReceiveQueueId,
        /// The caller's id for the request.
        id: u64,
        /// The memory for the message.
        segments: Segments,
    },
    /// The memory of a receive was changed after its post and before the first packet of its message.
    ReceiveChanged {
        /// The queue pair.
        queue_pair: Qpn,
        /// The caller's id for the receive, which is the oldest one.
        id: u64,
    },
    /// A message consumed a receive. Its completion follows.
    MessageReceived {
        /// The queue pair.
        queue_pair: Qpn,
        /// The number of the message, as in [`RemoteAccess::message`].
        message: u32,
    },
    /// A completion was added to its queue.
    Completed(Id<CompletionQueue>, Completion),
    /// The program took a completion.
    Polled(Id<CompletionQueue>, Completion),
    /// A peer accessed memory.
    RemoteAccess(RemoteAccess),
    /// A queue pair has answered all requests of its peer.
    Answered(Qpn),
    /// An access of a peer was rejected: its key does not grant it.
    AccessRejected(RemoteAccess),
    /// A message of the peer found no receive. The peer waits as long as this timer says.
    ReceiverNotReady(Qpn, RnrTimer),
    /// An asynchronous event was raised.
    EventRaised(AsyncEvent),
    /// The program took an asynchronous event.
    EventFetched(AsyncEvent),
    /// The connection manager has an event for the program.
    ConnectionEvent,
}

/// The sizes of a queue pair.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairSizes {
    /// The queue pair type.
    pub kind: QueuePairType,
    /// The completion queue of send requests.
    pub send_completions: Id<CompletionQueue>,
    /// The completion queue of receive requests.
    pub receive_completions: Id<CompletionQueue>,
    /// The shared receive queue, if it has one.
    pub shared_receive: Option<Id<SharedReceiveQueue>>,
    /// The maximum number of outstanding send requests.
    pub max_sends: u32,
    /// The maximum number of outstanding receive requests.
    pub max_receives: u32,
    /// The maximum number of segments in a send request.
    pub max_send_segments: u32,
    /// The maximum number of segments in a receive request.
    pub max_receive_segments: u32,
    /// The maximum number of inline bytes in a send request.
    pub max_inline: u32,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address of this end.
    pub own: IpAddr,
    /// The address of the peer.
    pub address: IpAddr,
    /// The peer's queue pair.
    pub queue_pair: Qpn,
}

/// What was lost when a queue pair was destroyed or reset.
#[derive(Debug, Clone, Copy)]
pub struct Discarded {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// How many send requests were outstanding.
    pub sends: usize,
    /// The first completion with an error, other than a flush, that the program had not polled.
    pub failure: Option<Completion>,
}

/// A request that was posted to a send queue.
#[derive(Debug, Clone)]
pub struct PostedSend {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The address of its peer, if it is connected.
    pub peer: Option<IpAddr>,
    /// The caller's id for the request.
    pub id: u64,
    /// The operation.
    pub work: Work,
    /// The local memory. Inline data has none.
    pub segments: Segments,
    /// The length of the message.
    pub length: u64,
    /// Whether it is signaled.
    pub signaled: bool,
    /// Whether it waits for earlier reads and atomics.
    pub fenced: bool,
}

/// Where a receive is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiveQueueId {
    /// The receive queue of a queue pair.
    Own(Qpn),
    /// A shared receive queue.
    Shared(Id<SharedReceiveQueue>),
}

/// An access of a peer to memory of this device.
#[derive(Debug, Clone, Copy)]
pub struct RemoteAccess {
    /// The queue pair that executes it.
    pub queue_pair: Qpn,
    /// What it does.
    pub kind: RemoteAccessKind,
    /// The R_Key.
    pub key: Key,
    /// The address of the first byte.
    pub address: u64,
    /// The length in bytes.
    pub length: u32,
    /// The number of the message among those of its connection, modulo 2^24, if the connection is reliable.
    pub message: u32,
}

impl RemoteAccess {
    /// Whether another one is the next part of the same WRITE.
    fn is_continued_by(&self, next: &Self) -> bool {
        let of_message = |it: &Self| (it.queue_pair, it.kind, it.key, it.message);
        self.kind == RemoteAccessKind::Write
            && of_message(self) == of_message(next)
            && self.address.wrapping_add(self.length.into()) == next.address
    }
}

/// What an access of a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAccessKind {
    /// RDMA READ.
    Read,
    /// RDMA WRITE, or a part of one.
    Write,
    /// An atomic operation.
    Atomic,
}

/// Observations that have not been polled.
#[derive(Debug)]
pub(crate) struct Observations {
    waiting: Option<VecDeque<Observation>>,
}

impl Observations {
    pub(crate) fn new(recorded: bool) -> Self {
        Self {
            waiting: recorded.then(VecDeque::new),
        }
    }

    /// Whether observations are recorded.
    #[inline]
    pub(crate) fn are_recorded(&self) -> bool {
        self.waiting.is_some()
    }

    /// Records the result of `describe` if observations are recorded.
    #[inline]
    pub(crate) fn note(&mut self, describe: impl FnOnce() -> Observation) {
        if let Some(waiting) = &mut self.waiting {
            waiting.push_back(describe());
        }
    }

    /// Records an access of a peer. The packets of a WRITE that arrive in succession make one.
    #[inline]
    pub(crate) fn note_access(&mut self, access: impl FnOnce() -> RemoteAccess) {
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let access = access();
        match waiting.back_mut() {
            Some(Observation::RemoteAccess(before)) if before.is_continued_by(&access) => {
                before.length = before.length.saturating_add(access.length);
            }
            _ => waiting.push_back(Observation::RemoteAccess(access)),
        }
    }

    pub(crate) fn take(&mut self) -> VecDeque<Observation> {
        self.waiting
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.as_ref().is_none_or(VecDeque::is_empty)
    }
}

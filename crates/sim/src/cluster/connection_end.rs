//! One end of a connection, and the model of its requests.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use engine::{Access, CompletedWork, CompletionQueue, Id, QueuePairType, RemoteMemory, Status};
use wire::{Key, PathMtu, Qpn};

use crate::model_memory::Block;
use crate::packet_observer::HostQueuePair;

/// A queue pair and the model of its send queue.
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) number: Qpn,
    pub(crate) kind: QueuePairType,
    /// The index of the other end.
    pub(crate) peer: usize,
    /// The memory of its requests and results, and its local key.
    pub(crate) local: (usize, Key),
    /// A region without local write access.
    pub(crate) constant: (usize, Key),
    /// Memory that its peer may access; the first has all rights.
    pub(crate) targets: Vec<Target>,
    /// The access rights that the queue pair grants.
    pub(crate) access: Access,
    /// Keys that were valid for the peer, or are valid for others.
    pub(crate) stale: Vec<RemoteMemory>,
    /// The completion queues of its sends and receives.
    pub(crate) completions: Option<[Id<CompletionQueue>; 2]>,
    /// The pools that receive messages to it.
    pub(crate) pools: Vec<usize>,
    pub(crate) limits: Limits,
    /// The stream of its requests in the tap.
    pub(crate) stream: usize,
    /// Requests without a completion yet, oldest first.
    pub(crate) outstanding: VecDeque<Posted>,
    /// Messages for the peer's receives, oldest first.
    pub(crate) in_flight: VecDeque<Message>,
    /// Received messages of an unreliable service, to detect duplicates.
    pub(crate) came: Vec<Message>,
    /// How many requests are left to post.
    pub(crate) quota: usize,
    /// A request that must fail is posted: later requests have no effect.
    pub(crate) doomed: bool,
    /// Why it is in ERROR, if it is.
    pub(crate) failure: Option<Cause>,
    /// A request completed with an error: all others are flushed.
    pub(crate) flushing: bool,
    /// Errors that its completed requests may still cause at the peer.
    pub(crate) provoked: Vec<Fault>,
    /// The asynchronous error that the peer's request caused here.
    pub(crate) raised: Option<Fault>,
    pub(crate) drain: Drain,
    /// The last request that was posted before the drain.
    pub(crate) last_before_drain: u64,
    pub(crate) windows: Vec<Window>,
}

/// The attributes of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) mtu: PathMtu,
    pub(crate) ack_timeout: Option<Duration>,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_sends: usize,
    pub(crate) max_segments: usize,
    pub(crate) max_inline: usize,
    pub(crate) signal_all: bool,
}

/// Memory that the peer of an end may access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) memory: usize,
    pub(crate) key: Key,
    pub(crate) access: Access,
}

/// A memory window of an end.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) kind: engine::WindowKind,
    /// Its key for the next bind.
    pub(crate) handle: Key,
    pub(crate) opening: Opening,
}

/// The state of a window.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    Closed,
    /// The bind is posted and has no completion.
    Posted(View),
    Open(View),
    /// The invalidation is posted and has no completion. Until then this key may still be valid.
    Closing(RemoteMemory),
}

/// The range and rights of a bound window.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) key: Key,
    pub(crate) memory: usize,
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
}

/// Why an end is in ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It rejected a request of its peer.
    RejectedPeer,
    /// A request of its own failed.
    OwnRequest(Status),
    /// A receive of its own failed.
    OwnReceive(Status),
    /// The application moved it there.
    Application,
}

/// The asynchronous error that a rejected request causes at the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Access,
    Request,
    Fatal,
}

/// The send queue is being drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drain {
    No,
    /// Draining; the event has not come.
    Asked,
    /// The event came.
    Done,
}

/// A request that was posted.
pub(crate) struct Posted {
    pub(crate) id: u64,
    pub(crate) signaled: bool,
    pub(crate) work: CompletedWork,
    pub(crate) length: usize,
    pub(crate) expected: Expected,
    /// What it changes, here or at the peer.
    pub(crate) effects: Vec<Effect>,
    /// What it reads at the peer.
    pub(crate) reads: Option<(usize, Range<usize>)>,
    /// The local memory that it uses.
    pub(crate) block: Option<Block>,
    /// Whether the block receives a result.
    pub(crate) has_result: bool,
    /// The index of the window that it binds.
    pub(crate) binds: Option<usize>,
    /// The index of the window that it invalidates.
    pub(crate) invalidates: Option<usize>,
}

/// Bytes that a request writes.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) memory: usize,
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
}

/// How a request must complete, unless the transport fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Success,
    /// With this status, and this asynchronous error at the responder.
    Failure(Status, Option<Fault>),
}

/// A message for a receive of the peer.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) pool: usize,
    pub(crate) work: CompletedWork,
    /// The content of the receive.
    pub(crate) data: Vec<u8>,
    pub(crate) length: usize,
    pub(crate) immediate: Option<[u8; 4]>,
    pub(crate) invalidates: Option<Key>,
    pub(crate) solicited: bool,
    /// The status with which its receive must fail, if any.
    pub(crate) receive_failure: Option<Status>,
}

impl End {
    /// A new queue pair without memory, receives or a peer.
    pub(crate) fn new(host: usize, number: Qpn, kind: QueuePairType, limits: Limits) -> Self {
        Self {
            host,
            number,
            kind,
            limits,
            peer: 0,
            local: (0, Key::default()),
            constant: (0, Key::default()),
            targets: Vec::new(),
            access: Access::empty(),
            stale: Vec::new(),
            completions: None,
            pools: Vec::new(),
            stream: 0,
            outstanding: VecDeque::new(),
            in_flight: VecDeque::new(),
            came: Vec::new(),
            quota: 0,
            doomed: false,
            failure: None,
            flushing: false,
            provoked: Vec::new(),
            raised: None,
            drain: Drain::No,
            last_before_drain: 0,
            windows: Vec::new(),
        }
    }

    pub(crate) fn endpoint(&self) -> HostQueuePair {
        HostQueuePair {
            host: self.host,
            queue_pair: self.number,
        }
    }

    /// Whether it is not in ERROR.
    pub(crate) fn is_alive(&self) -> bool {
        self.failure.is_none()
    }

    /// Whether it can send at all.
    pub(crate) fn sends(&self) -> bool {
        self.kind != QueuePairType::XrcTarget
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.kind != QueuePairType::Uc
    }

    /// Whether posted reads may still read these bytes of the peer.
    pub(crate) fn is_reading(&self, memory: usize, range: &Range<usize>) -> bool {
        let read = |posted: &Posted| posted.reads.clone();
        self.outstanding
            .iter()
            .filter_map(read)
            .any(|(other, reading)| {
                other == memory && crate::model_memory::overlap(&reading, range)
            })
    }
}

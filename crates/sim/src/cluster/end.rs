//! One end of a connection, and what is known to be under way from it.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use engine::{Access, CompletedWork, CompletionQueue, Id, Kind, Remote, Status};
use wire::{Key, PathMtu, Qpn};

use crate::arena::Block;
use crate::tap::Endpoint;

/// A queue pair and the model of its send queue.
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) number: Qpn,
    pub(crate) kind: Kind,
    /// The other end's place among all ends.
    pub(crate) peer: usize,
    /// Where its requests take data from and put results: the arena and its local key.
    pub(crate) local: (usize, Key),
    /// A region of its own that the device may not write for it.
    pub(crate) constant: (usize, Key),
    /// Memory that it opens to its peer; the first has all rights.
    pub(crate) targets: Vec<Target>,
    /// What the queue pair lets its peer do at all.
    pub(crate) access: Access,
    /// Places that were open to the peer once, or that are open to others.
    pub(crate) stale: Vec<Remote>,
    /// Where its sends and its receives complete.
    pub(crate) completions: Option<[Id<CompletionQueue>; 2]>,
    /// Where messages to it go: places among all pools.
    pub(crate) pools: Vec<usize>,
    pub(crate) limits: Limits,
    /// The number of its requests' stream on the wire.
    pub(crate) stream: usize,
    /// Requests without a completion yet, oldest first.
    pub(crate) outstanding: VecDeque<Posted>,
    /// Messages for the peer's receives, oldest first.
    pub(crate) under_way: VecDeque<Message>,
    /// Messages of an unreliable service that came, for duplicates.
    pub(crate) came: Vec<Message>,
    /// How many requests it will still post.
    pub(crate) quota: usize,
    /// A request that must fail is posted: nothing behind it takes effect.
    pub(crate) doomed: bool,
    /// Why it is in the error state, when it is known to be.
    pub(crate) failure: Option<Cause>,
    /// A request has ended in an error: all others are flushed.
    pub(crate) flushing: bool,
    /// Errors that its requests may still raise at the peer, though they ended here.
    pub(crate) provoked: Vec<Fault>,
    /// The asynchronous error that the peer's request caused here.
    pub(crate) raised: Option<Fault>,
    pub(crate) drain: Drain,
    /// The last request that was posted before the send queue was told to drain.
    pub(crate) last_before_drain: u64,
    pub(crate) windows: Vec<Window>,
}

/// What a queue pair was told.
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

/// Memory that an end opens to its peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) arena: usize,
    pub(crate) key: Key,
    pub(crate) access: Access,
}

/// A memory window of an end.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) kind: engine::WindowKind,
    /// The key that names it in the next binding.
    pub(crate) handle: Key,
    pub(crate) opening: Opening,
}

/// How far a window is open.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    Closed,
    /// The binding is posted, but not known to be done.
    Posted(View),
    Open(View),
    /// Invalidation is under way.
    Closing,
}

/// What a window opens.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) key: Key,
    pub(crate) arena: usize,
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
}

/// Why an end is in the error state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It refused a request of its peer.
    RefusedPeer,
    /// A request of its own failed.
    OwnRequest(Status),
    /// A receive of its own failed.
    OwnReceive(Status),
    /// The application put it there.
    Told,
}

/// An asynchronous error that a refused request raises at the responder.
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
    /// The event is awaited.
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
    /// What it reads at the peer while it is under way.
    pub(crate) reads: Option<(usize, Range<usize>)>,
    /// What it uses of the local arena.
    pub(crate) block: Option<Block>,
    /// Whether the block receives a result.
    pub(crate) has_result: bool,
    /// The window that it opens, by its place.
    pub(crate) binds: Option<usize>,
    /// The window of this end that it closes.
    pub(crate) invalidates: Option<usize>,
}

/// Bytes that a request puts somewhere.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) arena: usize,
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
}

/// How a request must end, unless the transport fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Success,
    /// With this status, and this fault at the responder.
    Failure(Status, Option<Fault>),
}

/// A message for a receive of the peer.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) pool: usize,
    pub(crate) work: CompletedWork,
    /// What the receive gets.
    pub(crate) data: Vec<u8>,
    pub(crate) length: usize,
    pub(crate) immediate: Option<[u8; 4]>,
    pub(crate) invalidates: Option<Key>,
    pub(crate) solicited: bool,
    /// How its receive must fail, if it must.
    pub(crate) receive_failure: Option<Status>,
}

impl End {
    /// A queue pair that was just made: without memory, receives or a peer.
    pub(crate) fn new(host: usize, number: Qpn, kind: Kind, limits: Limits) -> Self {
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
            under_way: VecDeque::new(),
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

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            host: self.host,
            queue_pair: self.number,
        }
    }

    /// Whether it still works.
    pub(crate) fn is_alive(&self) -> bool {
        self.failure.is_none()
    }

    /// Whether it can send at all.
    pub(crate) fn sends(&self) -> bool {
        self.kind != Kind::XrcTarget
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.kind != Kind::Uc
    }

    /// Whether posted reads may still look at these bytes of the peer.
    pub(crate) fn is_reading(&self, arena: usize, range: &Range<usize>) -> bool {
        let read = |posted: &Posted| posted.reads.clone();
        self.outstanding
            .iter()
            .filter_map(read)
            .any(|(other, reading)| other == arena && crate::arena::overlap(&reading, range))
    }
}

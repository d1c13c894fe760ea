//! What went wrong, with all that is known of it: for whoever explains it to the user.
//!
//! Nothing here changes what happens. Incidents are recorded only when somebody asked for them, and
//! only where something fails, so packets that fare well pay nothing.

use std::collections::VecDeque;
use std::net::IpAddr;

use wire::{AckTimeout, Key, NakCode, Operation, Psn, Qpn, QueueKey};

use crate::completion::{CompletedWork, Status};
use crate::memory::{Access, AccessError, BindError, MemoryError, Segment};
use crate::queue_pair::{Attribute, Attributes, Kind, ModifyError, State};
use crate::receive::PostError;
use crate::work::Work;

/// Something that a call, a work request or a peer's packet ran into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incident {
    /// A queue pair was not modified.
    ModifyRefused(Box<RefusedChange>),
    /// A work request was not taken.
    PostRefused {
        /// The queue pair.
        queue_pair: Qpn,
        /// Its state.
        state: State,
        /// The caller's own number for the request.
        id: u64,
        /// What it was to do.
        work: CompletedWork,
        /// Why not.
        error: PostError,
    },
    /// Memory was not registered.
    RegisterRefused {
        /// The rights that were asked for.
        access: Access,
        /// Why not.
        error: MemoryError,
    },
    /// A send request ended in an error.
    SendFailed(FailedSend),
    /// A peer's request was refused.
    RequestRefused(RefusedRequest),
    /// A completion queue had no room, and its queue pairs are broken.
    CompletionsOverran {
        /// The queue's place among all.
        queue: u32,
        /// How many completions fit.
        capacity: u32,
        /// The queue pair whose completion was lost.
        queue_pair: Qpn,
    },
    /// A request came for a queue pair that never was. Late packets for one that was are no news.
    UnknownQueuePair {
        /// The number it names.
        number: Qpn,
        /// Who sent it.
        from: IpAddr,
    },
    /// A request came from another address than the peer's.
    WrongPath {
        /// The queue pair.
        queue_pair: Qpn,
        /// Who sent it.
        from: IpAddr,
        /// Whom it is connected with.
        peer: Peer,
    },
    /// A datagram came with the wrong queue key.
    WrongQueueKey {
        /// The queue pair.
        queue_pair: Qpn,
        /// Who sent it.
        sender: Peer,
        /// The key it came with.
        given: QueueKey,
        /// The key it should have.
        wanted: QueueKey,
    },
    /// A datagram did not fit into its receive, or the receive can't be written.
    DatagramFailed {
        /// The queue pair.
        queue_pair: Qpn,
        /// Who sent it.
        sender: Peer,
        /// What is wrong with the receive.
        fault: ReceiveFault,
    },
}

/// A change of a queue pair that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChange {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// Its kind.
    pub kind: Kind,
    /// The state it is in.
    pub state: State,
    /// What it was to be told.
    pub attributes: Attributes,
    /// All that the transition needs besides.
    pub missing: Attribute,
    /// All that the transition does not take.
    pub surplus: Attribute,
    /// Why not.
    pub error: ModifyError,
}

/// The other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair.
    pub queue_pair: Qpn,
}

/// A send request that ended in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedSend {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// Where its address is in the GID table, and the peer; none for a datagram without destination.
    pub path: Option<(IpAddr, Peer)>,
    /// The caller's own number for the request.
    pub id: u64,
    /// What it was to do.
    pub work: Work,
    /// The length of its data.
    pub length: u32,
    /// How it ended.
    pub status: Status,
    /// What was wrong.
    pub fault: SendFault,
}

/// What was wrong with a send request, as far as this end can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFault {
    /// A local segment can't be used.
    Segment(SegmentFault),
    /// The peer did not answer.
    NoAnswer {
        /// How often it was tried again.
        retries: u8,
        /// How long each time.
        timeout: Option<AckTimeout>,
        /// What was heard of the peer.
        heard: Heard,
    },
    /// The peer had no receive, as often as it was tried again.
    NotReady {
        /// How often that was.
        retries: u8,
    },
    /// The queue pair may have no reads or atomics under way.
    NoReads,
    /// A datagram is longer than so many bytes.
    TooLong {
        /// How many fit.
        max: u32,
    },
    /// What the status says.
    Other,
}

/// What was heard of a peer that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing at all.
    Nothing,
    /// Answers to earlier requests.
    EarlierAnswers,
    /// Answers that fit nothing ever sent.
    Misfit {
        /// The sequence number that the peer seems to expect.
        expected: Psn,
        /// The one that we began with.
        started: Psn,
    },
}

/// A segment that can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFault {
    /// The segment.
    pub segment: Segment,
    /// Why not.
    pub error: AccessError,
    /// What its key opens, if anything.
    pub opened: Option<Opened>,
}

/// What a key opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The first byte.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// For what.
    pub access: Access,
}

/// A peer's request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// Who asked.
    pub peer: Option<Peer>,
    /// What for.
    pub operation: Operation,
    /// Its sequence number.
    pub psn: Psn,
    /// The memory that it names.
    pub target: Option<Target>,
    /// What it was answered; nothing on an unreliable connection.
    pub nak: Option<NakCode>,
    /// What was wrong.
    pub fault: RequestFault,
}

/// Memory that a peer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The remote key.
    pub key: Key,
    /// The first byte.
    pub address: u64,
    /// How many bytes.
    pub length: u32,
}

/// What was wrong with a peer's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// The queue pair does not let its peer do that.
    NotGranted(Access),
    /// The key does not open that memory for that.
    Memory {
        /// Why not.
        error: AccessError,
        /// What the key opens, if anything.
        opened: Option<Opened>,
    },
    /// The key that a SEND should invalidate can't be.
    Invalidate {
        /// The key.
        key: Key,
        /// Why not.
        error: BindError,
    },
    /// An atomic is not aligned.
    Unaligned,
    /// More reads and atomics are under way than were agreed.
    TooManyReads {
        /// How many were.
        limit: u8,
    },
    /// A packet's payload does not fit the path MTU.
    PacketLength {
        /// How long it is.
        length: usize,
        /// The path MTU here.
        mtu: usize,
    },
    /// The message's receive is wrong.
    Receive(ReceiveFault),
    /// Packets or lengths of a message don't fit together.
    Malformed,
}

/// What is wrong with a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveFault {
    /// The message is longer.
    TooSmall {
        /// The caller's own number for the receive.
        id: u64,
        /// How many bytes fit.
        capacity: u64,
        /// How many have come, at least.
        needed: u64,
    },
    /// A segment can't be written.
    Unusable {
        /// The caller's own number for the receive.
        id: u64,
        /// The segment, if it still can't.
        fault: Option<SegmentFault>,
    },
}

/// Incidents that nobody has asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    recorded: bool,
    waiting: VecDeque<Incident>,
}

/// So many may wait: hostile packets must not fill the memory.
const MOST: usize = 64;

impl Incidents {
    pub(crate) fn new(recorded: bool) -> Self {
        Self {
            recorded,
            waiting: VecDeque::new(),
        }
    }

    /// Records what `describe` says, if anybody wants to know.
    #[cold]
    pub(crate) fn note(&mut self, describe: impl FnOnce() -> Incident) {
        if self.recorded && self.waiting.len() < MOST {
            self.waiting.push_back(describe());
        }
    }

    /// Whether anybody wants to know.
    pub(crate) fn are_recorded(&self) -> bool {
        self.recorded
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<Incident> {
        self.waiting.pop_front()
    }
}

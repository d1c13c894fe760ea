//! Incidents: the facts behind a failure, for the diagnostic text.
//!
//! Recording an incident does not change the behaviour of the device. Incidents are recorded only
//! on request and only where something fails, so successful packets cost nothing.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use wire::{Key, NakCode, Operation, PathMtu, Psn, Qpn, QueueKey};

use crate::completion::{CompletedWork, Status};
use crate::memory::{Access, AccessError, BindError, MemoryError};
use crate::receive_queue::PostError;
use crate::state::{Attribute, Attributes, ModifyError, QueuePairType, State};
use crate::work_request::Work;

pub use crate::memory::{KeyRange, SegmentFault};

/// A failure of a call, a work request or a peer's packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incident {
    /// A change of a queue pair was rejected.
    ModifyRejected(Box<RejectedModify>),
    /// A work request was rejected when it was posted.
    PostRejected {
        /// The queue pair.
        queue_pair: Qpn,
        /// The queue pair's state.
        state: State,
        /// The caller's id for the request.
        id: u64,
        /// The kind of work.
        work: CompletedWork,
        /// Why it was rejected.
        error: PostError,
    },
    /// Memory could not be registered.
    RegisterRejected {
        /// The requested access rights.
        access: Access,
        /// Why it was rejected.
        error: MemoryError,
    },
    /// A send request completed with an error.
    SendFailed(FailedSend),
    /// A send request is retried for long without progress. It may still succeed.
    StillRetrying(RetriedSend),
    /// A request arrived for a queue pair that is not ready to receive yet.
    NotReady {
        /// The queue pair.
        queue_pair: Qpn,
        /// The queue pair's state.
        state: State,
        /// The sender.
        from: IpAddr,
    },
    /// Messages of the peer find no receive for long.
    NoReceive {
        /// The queue pair.
        queue_pair: Qpn,
        /// The peer.
        peer: Option<Peer>,
        /// How many RNR NAKs were sent.
        naks: u64,
        /// How long there was no receive.
        waited: Duration,
        /// Whether receives must be posted to a shared receive queue.
        is_shared: bool,
    },
    /// An object was not destroyed, because others use it.
    DestroyRejected {
        /// The kind of the object.
        object: ObjectKind,
        /// How many others use it.
        users: u32,
    },
    /// A peer's request was rejected.
    RequestRejected(RejectedRequest),
    /// A completion queue overran, and its queue pairs are in the error state.
    CompletionsOverran {
        /// The index of the queue.
        queue: u32,
        /// The queue's capacity.
        capacity: u32,
        /// The queue pair whose completion was lost.
        queue_pair: Qpn,
    },
    /// A request arrived for a queue pair that never existed. Late packets for a destroyed queue
    /// pair are not reported.
    UnknownQueuePair {
        /// The destination number.
        number: Qpn,
        /// The sender.
        from: IpAddr,
    },
    /// A request arrived from an address other than the peer's.
    WrongPath {
        /// The queue pair.
        queue_pair: Qpn,
        /// The sender.
        from: IpAddr,
        /// The peer that the queue pair is connected to.
        peer: Peer,
    },
    /// A datagram arrived with a wrong Q_Key.
    WrongQueueKey {
        /// The queue pair.
        queue_pair: Qpn,
        /// The sender.
        sender: Peer,
        /// The Q_Key of the datagram.
        given: QueueKey,
        /// The Q_Key of the queue pair.
        wanted: QueueKey,
    },
    /// A datagram did not fit its receive, or the receive's memory is not writable.
    DatagramFailed {
        /// The queue pair.
        queue_pair: Qpn,
        /// The sender.
        sender: Peer,
        /// What is wrong with the receive.
        fault: ReceiveFault,
    },
}

/// A rejected change of a queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedModify {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The queue pair's type.
    pub kind: QueuePairType,
    /// The queue pair's state.
    pub state: State,
    /// The attributes of the call.
    pub attributes: Attributes,
    /// All attributes that the transition needs and the call lacks.
    pub missing: Attribute,
    /// All attributes that the transition does not allow.
    pub surplus: Attribute,
    /// Why it was rejected.
    pub error: ModifyError,
}

/// The other end of a connection, or the sender of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair number.
    pub queue_pair: Qpn,
}

/// The way from a queue pair to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The local address.
    pub source: IpAddr,
    /// The other end.
    pub peer: Peer,
    /// The largest payload of a packet.
    pub mtu: PathMtu,
}

/// A send request that completed with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedSend {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// `None` for a datagram without a destination.
    pub path: Option<Path>,
    /// The caller's id for the request.
    pub id: u64,
    /// The work of the request.
    pub work: Work,
    /// The length of its data in bytes.
    pub length: u32,
    /// The completion status.
    pub status: Status,
    /// The cause.
    pub fault: SendFault,
}

/// A send request that is retried for long without progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetriedSend {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The local address and the peer.
    pub path: Option<Path>,
    /// The caller's id for the request.
    pub id: u64,
    /// The work of the request.
    pub work: Work,
    /// The length of its data in bytes.
    pub length: u32,
    /// Since the first attempt.
    pub waited: Duration,
    /// Why it is retried.
    pub reason: RetryReason,
}

/// Why a send request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// The peer does not answer.
    NoResponse {
        /// How many timeouts there were.
        timeouts: u32,
        /// Which responses arrived from the peer.
        responses: PeerResponses,
    },
    /// The peer has no receive posted.
    NotReady {
        /// How many RNR NAKs came.
        naks: u32,
        /// Whether it is retried without a limit.
        endless: bool,
    },
}

/// A kind of object that can't be destroyed while others use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A protection domain.
    ProtectionDomain,
    /// An XRC domain.
    XrcDomain,
    /// A completion queue.
    CompletionQueue,
    /// A shared receive queue.
    SharedReceiveQueue,
}

/// The cause of a failed send request, as far as the local side knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFault {
    /// A local segment cannot be used.
    Segment(SegmentFault),
    /// The peer did not answer.
    NoResponse {
        /// How often the request was retried.
        retries: u8,
        /// From the first attempt to the last timeout.
        waited: Duration,
        /// Which responses arrived from the peer.
        responses: PeerResponses,
    },
    /// The peer had no receive posted, and the RNR retries are exhausted.
    NotReady {
        /// How often the request was retried.
        retries: u8,
    },
    /// The queue pair's depth for outstanding reads and atomics is zero.
    NoReads,
    /// A datagram exceeds the path MTU.
    TooLong {
        /// The maximum length in bytes.
        max: u32,
    },
    /// The status says all that is known.
    Other,
}

/// Which responses arrived from a peer that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerResponses {
    /// None.
    None,
    /// Responses to earlier requests.
    ToEarlierRequests,
    /// Responses with a PSN that was never sent.
    WrongPsn {
        /// The PSN that the peer seems to expect.
        expected: Psn,
        /// The first PSN that this side sent.
        started: Psn,
    },
}

/// A rejected request of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRequest {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The peer.
    pub peer: Option<Peer>,
    /// The operation of the request.
    pub operation: Operation,
    /// The PSN of the request.
    pub psn: Psn,
    /// The memory that the request names.
    pub target: Option<Target>,
    /// The NAK that was sent; `None` on an unreliable connection.
    pub nak: Option<NakCode>,
    /// The cause.
    pub fault: RequestFault,
}

/// Memory that a peer's request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The R_Key.
    pub key: Key,
    /// The address of the first byte.
    pub address: u64,
    /// The length in bytes.
    pub length: u32,
}

/// Why a peer's request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// The queue pair does not grant these rights to its peer.
    NotGranted(Access),
    /// The key does not grant this access to this memory.
    Memory {
        /// Why not.
        error: AccessError,
        /// The memory of the key, if the key is valid.
        key_range: Option<KeyRange>,
    },
    /// The key that a SEND invalidates cannot be invalidated.
    Invalidate {
        /// The key.
        key: Key,
        /// Why not.
        error: BindError,
    },
    /// The address of an atomic is not aligned to eight bytes.
    Unaligned,
    /// The peer has more reads and atomics outstanding than the queue pair allows.
    TooManyReads {
        /// The maximum.
        limit: u8,
    },
    /// The length of a packet's payload contradicts the path MTU.
    PacketLength {
        /// The length of the payload in bytes.
        length: usize,
        /// The local path MTU in bytes.
        mtu: usize,
    },
    /// The receive of the message is unusable.
    Receive(ReceiveFault),
    /// The packets or lengths of a message are inconsistent.
    Malformed,
}

/// What is wrong with a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveFault {
    /// The message is longer than the receive.
    TooSmall {
        /// The caller's id for the receive.
        id: u64,
        /// The receive's capacity in bytes.
        capacity: u64,
        /// The length of the message in bytes, as far as it is known.
        needed: u64,
    },
    /// A segment is not writable.
    Unusable {
        /// The caller's id for the receive.
        id: u64,
        /// The segment, if it is still not writable.
        fault: Option<SegmentFault>,
    },
}

/// Incidents that have not been polled.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    recorded: bool,
    waiting: VecDeque<Incident>,
}

/// The maximum number of waiting incidents. Hostile packets must not fill the memory.
const MAX_INCIDENTS: usize = 64;

impl Incidents {
    pub(crate) fn new(recorded: bool) -> Self {
        Self {
            recorded,
            waiting: VecDeque::new(),
        }
    }

    /// Records the result of `describe` if incidents are recorded.
    #[cold]
    pub(crate) fn note(&mut self, describe: impl FnOnce() -> Incident) {
        if self.recorded && self.waiting.len() < MAX_INCIDENTS {
            self.waiting.push_back(describe());
        }
    }

    /// Whether incidents are recorded.
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

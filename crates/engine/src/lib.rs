//! The RDMA device without I/O or clock.
//!
//! [`Device`] is a complete RoCEv2 device without sockets or a clock. The caller passes received
//! datagrams and the time, and polls for packets to send and for the next deadline. So the same
//! code runs over real UDP and in a simulator where one seed decides everything.
//!
//! # Sending
//!
//! A post puts a request into the send queue and schedules its queue pair. Each [`Device::poll_transmit`] lets the next scheduled queue
//! pair fill one buffer with packets of equal size for one peer, ready for one segmented send. Responses with data come first, then
//! requests, then an acknowledgement. It is always in the first send. A receiver that gets such a send in one piece handles the
//! acknowledgement first (`wire::split_acknowledgement`), so its program learns that a message was received before it gets the reply.
//!
//! A send of many packets costs hardly more than a send of one. So a window that is nearly full waits until a quarter of it is open, and
//! behind sixteen outstanding requests small requests wait for each other, for at most 50 µs (`queue_pair::requester::coalescing`).
//!
//! If both ends are queue pairs of this device, idle and in step, a request is executed when it is posted, without packets
//! (`queue_pair::direct`; `tests/direct_execution.rs` compares both ways).
//!
//! # Losses
//!
//! A responder keeps what arrives behind a gap (`queue_pair::kept_packets`) and executes it in order when the gap closes. It reports a gap
//! with one NAK, when a packet more than three places behind it arrives, or one that requests an acknowledgement. The requester then
//! sends the missing packet again (`requester::repair`). If the acknowledgement shows that the peer dropped what was behind it, as the
//! kernel does, it sends more in rounds of double size. A peer of our kind lists what it keeps (`wire::held`), so the holes are
//! known (`requester::holes`). A device asks a peer before it sends lists to it (`peers`).
//!
//! The requester measures round trips (`requester::round_trip`). When a response is overdue, it sends the oldest packet again, which takes
//! no retry. After the timeout of the queue pair it goes back to the oldest packet and uses a retry. Responses of READs are kept as requests
//! are; the missing ones are requested again.
//!
//! # Congestion
//!
//! Queue pairs to one address of another host share a path (`paths`): one control, one estimate of the round trip and one pace. The control
//! (`paths::congestion`) is told what is acknowledged, lost and marked, and is asked for a window and a pause between packets. A queue pair
//! that its path does not admit stands in a line (`paths::line`). Its turn lasts for one call and nobody holds it, so a queue pair that
//! fails or waits for its receiver delays no other. To a peer on this host each queue pair has a window of its own
//! (`requester::local`), because only the buffer of the receiver can overflow.
//!
//! # Modules
//!
//! Modules import in one direction, from `slab` and `limits` over `memory`, `state`, `device_state` and `queue_pair` up to `device`.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Nothing in this crate may be excepted from the bans in clippy.toml, apart from tests of its locks.
#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types)
)]

pub mod transmit;

mod address;
mod checksums;
mod completion;
mod counters;
mod device;
mod device_state;
mod event;
pub mod incident;
mod limits;
#[allow(unsafe_code, reason = "registered memory belongs to the application")]
mod memory;
mod now;
mod object_counts;
mod object_error;
pub mod observation;
mod paths;
mod peers;
#[cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub))]
mod planted_bug;
mod qpn_range;
mod queue_pair;
mod queue_pair_init;
mod random;
mod receive_queue;
mod shared_objects;
mod slab;
mod state;
mod sync;
mod system_refusal;
mod work_request;

pub use address::{Address, AddressError, SourcePort};
pub use completion::{
    CompletedWork, Completion, CompletionQueue, Notify, Source, Status, WorkError,
};
pub use counters::{Counters, QueuePairCounters};
pub use device::{Config, Device, MovingQueuePairs, MulticastError};
pub use event::{AsyncEvent, Event};
pub use incident::Incident;
pub use limits::{Limits, MAX_COMPLETIONS, MAX_INLINE, MAX_REQUESTS, MAX_RESPONDER_RESOURCES};
pub use memory::{
    AcceleratorMemory, Access, AccessError, BindError, Binding, Buffer, Extent, InMessage,
    MappingChange, MemoryError, OwnedMemory, ProgramMemoryAccess, ProtectionDomain, RawMemory,
    RegionState, Registration, Segment, Segments, WindowKind,
};
pub use now::Now;
pub use object_counts::ObjectCounts;
pub use object_error::ObjectError;
pub use observation::Observation;
pub use paths::{Congestion, WindowLimits};
pub use peers::{HeldLists, Question};
#[cfg(feature = "planted-bugs")]
pub use planted_bug::Bug;
pub use qpn_range::QpnRange;
pub use queue_pair::{QueuePair, QueuePairUsage};
pub use queue_pair_init::QueuePairInit;
pub use receive_queue::{PostError, SharedReceiveInit, SharedReceiveQueue, XrcDomain};
pub use shared_objects::SharedObjects;
pub use slab::Id;
pub use state::{Attribute, Attributes, ModifyError, QueuePairType, State};
pub use system_refusal::SystemRefusal;
pub use transmit::{BatchLimits, SharedRoom, Transmit};
pub use work_request::{
    Destination, MAX_MESSAGE, MAX_SEGMENTS, Payload, ReceiveRequest, RemoteMemory,
    RemoteMemoryParseError, SendFlags, SendRequest, Work,
};

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The RDMA device without I/O or clock.
//!
//! [`Device`] is a complete RoCEv2 device without sockets or a clock. The caller passes received
//! datagrams and the time, and polls for packets to send and for the next deadline. So the same
//! code runs over real UDP and in a simulator where one seed decides everything.
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
pub use state::{AlternatePath, Attribute, Attributes, ModifyError, QueuePairType, State};
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

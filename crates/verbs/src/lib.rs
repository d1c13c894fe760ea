//! RDMA for any Linux machine: the safe API of a RoCEv2 device in user space.
//!
//! No RDMA hardware, no kernel module, no root, no daemon. Every network interface is a device, and
//! on the wire it speaks the same bytes as the kernel's Soft-RoCE and as hardware NICs.
//!
//! A whole program, two ends in one process:
//!
//! ```
//! use rocinante::{Access, Context, Request, Status};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open("127.0.0.1")?;
//! let domain = context.protection_domain()?;
//! let completions = context.completion_queue(16)?;
//! let memory = domain.register(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!
//! // Two queue pairs, each told where the other is.
//! let (left, right) = (
//!     domain.queue_pair(&completions).reliable()?,
//!     domain.queue_pair(&completions).reliable()?,
//! );
//! let (here, there) = (left.endpoint(), right.endpoint());
//! let left = left.connect(there)?;
//! let right = right.connect(here)?;
//!
//! // SEND needs a receive on the other side.
//! right.post_receive(1, [memory.slice(0..32)])?;
//! left.post(Request::send().inline(b"hello").id(2))?;
//! for _ in 0..2 {
//!     assert_eq!(completions.wait().status, Status::Success);
//! }
//! assert_eq!(memory.to_vec(0..5), b"hello");
//!
//! // RDMA WRITE needs only an address and a key.
//! left.post(Request::write(memory.remote(32)).inline(b"one-sided"))?;
//! assert_eq!(completions.wait().status, Status::Success);
//! assert_eq!(memory.to_vec(32..41), b"one-sided");
//! # Ok(())
//! # }
//! ```
//!
//! The handles own what they stand on and can be dropped in any order. What must not be done has no
//! method: a queue pair without a peer can't send, and registered memory can't be borrowed as a
//! slice, because the wire may write it at any moment:
//!
//! ```compile_fail
//! # fn demo(memory: rocinante::MemoryRegion) {
//! let bytes: &[u8] = memory.as_ref();
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "async")]
mod asynchronous;
mod channel;
mod clock;
mod completion;
mod connection;
mod context;
mod datagram;
mod domain;
mod driver;
mod extended;
mod memory;
mod queue_pair;
pub mod raw;
pub mod rdma_cm;
mod request;
mod shared_receive;

#[cfg(feature = "async")]
pub use asynchronous::Next;
pub use channel::{CompletionChannel, QueueToken};
pub use completion::CompletionQueue;
pub use connection::{
    ConnectError, Connection, ConnectionRequest, Connector, Listener, PreparedAccept,
    PreparedConnect,
};
pub use context::{Context, OpenError, Options};
pub use datagram::{AddressHandle, DatagramQueuePair, JoinGroupError};
pub use domain::ProtectionDomain;
pub use extended::{
    PreparedInitiator, PreparedTarget, XrcDomain, XrcInitiator, XrcReceiveQueue, XrcTarget,
};
pub use memory::{MemoryRegion, MemoryWindow};
pub use queue_pair::{
    Builder, Endpoint, EndpointParseError, Prepared, QueuePair, SetupError, Terms,
};
pub use request::Request;
pub use shared_receive::SharedReceiveQueue;

pub use engine::{
    Access, Address, AddressError, AsyncEvent, Attribute, Attributes, CompletedWork, Completion,
    Counters, MemoryError, ModifyError, MulticastError, Notify, ObjectError, PostError, Remote,
    Segment, State, Status, WindowKind,
};
pub use wire::{
    AckTimeout, FlushPlacement, FlushRange, Gid, Key, PathMtu, Psn, Qpn, QueueKey, RnrTimer,
};

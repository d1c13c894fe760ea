//! The system's verbs: objects of libibverbs behind safe handles.
//!
//! An object keeps alive what it was made from, so objects can be dropped in any order. Requests, completions, attributes
//! and access rights are the engine's types, whose values are those of `verbs.h`. Calls on the fast path go through the
//! table of the provider, as the inline functions of the header do.

mod address_handles;
mod completion_channel;
mod completion_queue;
mod context;
mod convert;
mod datagram_requests;
mod descriptor;
mod device_memory;
mod error;
mod extended;
mod extended_requests;
mod library;
mod protection_domain;
mod queue_pair;
mod region;
mod registered_buffers;
mod shared_receive_queue;
mod window;
mod xrc_domain;

pub use completion_channel::CompletionChannel;
pub use completion_queue::CompletionQueue;
pub(crate) use context::device_name;
pub use context::{AsyncEvent, Context, DeviceAttributes, PortAttributes};
pub(crate) use convert::{address_from, attributes_from};
pub use device_memory::DeviceMemory;
pub use error::OpenError;
pub(crate) use error::last_error;
pub(crate) use library::is_used_by;
pub use protection_domain::Domain;
pub use queue_pair::{QueuePair, QueuePairInit};
pub use region::Region;
pub use shared_receive_queue::SharedReceiveQueue;
pub use window::Window;
pub use xrc_domain::XrcDomain;

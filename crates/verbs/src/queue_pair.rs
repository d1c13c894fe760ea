//! Queue pairs: builder, prepared, connected.
//!
//! A queue pair that is not connected cannot send, so it has no method for it. A
//! [`QueuePairBuilder`] describes one. A [`PreparedQueuePair`] has a number and takes receives.
//! Only a [`QueuePair`] can post sends. An [`Endpoint`] is what each side must know of the other;
//! [`ConnectOptions`] are the access rights, timeouts and retries. All of them own a [`Handle`],
//! which destroys the engine's object when it is dropped.

mod builder;
mod connect_options;
mod connected;
mod endpoint;
mod handle;
mod prepared;

pub use builder::QueuePairBuilder;
pub use connect_options::ConnectOptions;
pub use connected::QueuePair;
pub use endpoint::{Endpoint, EndpointParseError};
pub use prepared::PreparedQueuePair;

pub(crate) use handle::Handle;
#[cfg(feature = "async")]
pub(crate) use {builder::Depth, handle::Object};

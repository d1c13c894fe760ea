//! Queue pairs: described, prepared, connected.
//!
//! A queue pair that is not connected can't send, so it has no method for it: [`Builder`] describes
//! one, [`Prepared`] has a number and takes receives, and only [`QueuePair`] can post sends.
//! [`Endpoint`] is what the two sides must know of each other, and [`Terms`] say how patient and how
//! generous the connection is. Behind all of them stands a [`Handle`], with which the engine's
//! object ends.

mod builder;
mod connected;
mod endpoint;
mod error;
mod handle;
mod prepared;
mod terms;

pub use builder::Builder;
pub use connected::QueuePair;
pub use endpoint::{Endpoint, EndpointParseError};
pub use error::SetupError;
pub use prepared::Prepared;
pub use terms::Terms;

pub(crate) use handle::Handle;

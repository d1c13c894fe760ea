//! Connections with the interface of `rdma_cm`: ids, event channels, and an event for every step.
//!
//! [`Listener`](crate::Listener) and [`Connector`](crate::Connector) are easier to use and are
//! built on this module. Here the application performs every step itself, as `librdmacm` and
//! event-driven programs need it:
//!
//! ```
//! use std::time::Duration;
//!
//! use rocinante::Context;
//! use rocinante::rdma_cm::{EventChannel, EventKind, PortSpace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = EventChannel::new()?;
//! let listener = channel.create_id(PortSpace::Tcp);
//! let address = listener.bind("127.0.0.1:0".parse()?)?;
//! listener.listen(16)?;
//!
//! let client = channel.create_id(PortSpace::Tcp);
//! client.resolve_address(None, address, Duration::from_secs(1))?;
//! assert_eq!(channel.wait().kind, EventKind::AddressResolved);
//! client.resolve_route(Duration::from_secs(1))?;
//! assert_eq!(channel.wait().kind, EventKind::RouteResolved);
//! let context = Context::from_id(&client).expect("its address is resolved");
//! assert!(context.device().gid_of(address.ip()).is_some());
//! # Ok(())
//! # }
//! ```

pub use driver::rdma_cm::*;

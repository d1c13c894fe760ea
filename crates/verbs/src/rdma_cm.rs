//! Connections with the interface of `rdma_cm`: ids, event channels, and an event for every step.
//!
//! An id is at a software device or at one of the system. [`CmId::choose`] decides it, and without that `ROCI_DEVICES` does. Ids of
//! both kinds can have one channel.
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

mod channel;
mod cm_id;
mod system_id;

pub use channel::{Event, EventChannel};
#[cfg(feature = "async")]
pub use channel::{EventUntil, NextEvent};
pub use cm_id::CmId;
pub use driver::rdma_cm::{
    BindError, CallError, CmError, DEFAULT_QUEUE_KEY, EventKind, Failure, Group, Parameters,
    PathAttributes, PeerParameters, PortSpace, RejectReason, Request, ServiceFound, ServiceStatus,
    ServiceType, State, Token, TooManyIds, Unreachable, address_of, listed_devices, private_data,
    reachable_devices,
};

//! Connections with the interface of `rdma_cm`: ids, event channels, and an event for every step.
//!
//! An [`EventChannel`] creates ids. A [`CmId`] binds to an address, listens, resolves and connects; each
//! result is an [`Event`] of its channel. The connection manager of the id's device exchanges the messages.

pub(crate) mod event_queue;

mod attributes;
mod channel;
mod cm_id;
mod devices;
mod id_on_device;

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use net::sharing::ServiceError;

#[cfg(feature = "async")]
pub use channel::NextEvent;
pub use channel::{Event, EventChannel, Token};
pub use cm::{
    BindError, CallError, DEFAULT_QUEUE_KEY, EventKind, Failure, Group, Parameters, PathAttributes,
    PeerParameters, Request, ServiceFound, ServiceType, State, TooManyIds, Unreachable,
    private_data,
};
pub use cm_id::CmId;
pub use devices::offer;
pub use wire::cm::{PortSpace, RejectReason, ServiceStatus};

use crate::Driver;
use crate::options::OpenError;
use engine::{Address, SystemRefusal};

/// Why an operation on an id failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// No device has this address.
    #[error(
        "no RDMA device has the address {0}: `roci gids` shows those there are, and ROCI_DEVICES \
         says what there should be"
    )]
    NoDevice(IpAddr),
    /// There may be a route, but it begins at no device.
    #[error(
        "no RDMA device that this program uses has a route to {0}: begin at an address that one of them has, which `roci gids` \
         shows, or change ROCI_DEVICES"
    )]
    NoDeviceTowards(IpAddr),
    /// The kernel has no route to the peer.
    #[error("there is no route to {peer}: {source}")]
    NoRoute {
        /// The peer.
        peer: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another process has the port.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The address can't be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The id has an address already.
    #[error("the id is already bound")]
    AlreadyBound,
    /// The id has no device yet.
    #[error("the id has no device yet: bind it or resolve an address first")]
    NotBound,
    /// The manager refuses the operation.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There is no room for another id.
    #[error(transparent)]
    TooManyIds(#[from] TooManyIds),
    /// The device was opened before a fork.
    #[error("the device was opened before a fork and stays with the parent: open it again")]
    Inherited,
    /// The connection manager of the system can't be used.
    #[error("the connection manager of the system can't be used: {0}")]
    SystemManager(#[source] Box<dyn Error + Send + Sync>),
    /// The connection manager of the system refuses the operation.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

/// The devices that programs choose from. Each is opened once.
pub fn listed_devices() -> Result<Vec<Arc<Driver>>, CmError> {
    devices::listed()
}

/// The devices that ids of this process can use. Each is opened once: [those](listed_devices) that
/// programs choose from, and loopback.
pub fn reachable_devices() -> Result<Vec<Arc<Driver>>, CmError> {
    devices::all()
}

/// The content of an address handle for a datagram service or a multicast group.
#[must_use]
pub fn address_of(driver: &Driver, path: &PathAttributes) -> Address {
    attributes::address(driver, path)
}

//! The types of queue pairs that the connection manager connects.

use wire::cm::{PortSpace, Service};

/// The extended transport type that means XRC.
const EXTENDED_RELIABLE: u8 = 1;

/// The type of queue pair that an id connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// A reliable connection.
    ReliableConnection,
    /// An unreliable connection.
    UnreliableConnection,
    /// An extended reliable connection (XRC): the active side sends, the passive side receives.
    ExtendedConnection,
    /// Datagrams: no connection. The peer names its queue pair number and its Q_Key.
    Datagram,
}

impl ServiceType {
    /// The default kind of a port space. In the InfiniBand port space the application may choose another.
    pub const fn of(space: PortSpace) -> ServiceType {
        match space {
            PortSpace::Udp => ServiceType::Datagram,
            PortSpace::Tcp | PortSpace::Infiniband => ServiceType::ReliableConnection,
        }
    }

    pub(crate) const fn service(self) -> Service {
        match self {
            ServiceType::UnreliableConnection => Service::UnreliableConnection,
            ServiceType::ExtendedConnection => Service::Extended,
            ServiceType::ReliableConnection | ServiceType::Datagram => Service::ReliableConnection,
        }
    }

    /// The extended transport type that accompanies [`Service::Extended`].
    pub(crate) const fn extended_transport(self) -> u8 {
        match self {
            ServiceType::ExtendedConnection => EXTENDED_RELIABLE,
            _ => 0,
        }
    }

    /// The kind that a peer requests; none if we do not support it.
    pub(crate) const fn asked_for(service: Service, extended_transport: u8) -> Option<ServiceType> {
        match (service, extended_transport) {
            (Service::ReliableConnection, _) => Some(ServiceType::ReliableConnection),
            (Service::UnreliableConnection, _) => Some(ServiceType::UnreliableConnection),
            (Service::Extended, EXTENDED_RELIABLE) => Some(ServiceType::ExtendedConnection),
            _ => None,
        }
    }
}

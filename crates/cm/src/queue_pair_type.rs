//! The types of queue pairs that the connection manager connects.

use wire::cm::{PortSpace, Service};

/// The extended transport type that means XRC.
const EXTENDED_RELIABLE: u8 = 1;

/// The type of queue pair that an id connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePairType {
    /// A reliable connection.
    ReliableConnection,
    /// An unreliable connection.
    UnreliableConnection,
    /// An extended reliable connection (XRC): the active side sends, the passive side receives.
    ExtendedConnection,
    /// Datagrams: no connection. The peer names its queue pair number and its Q_Key.
    Datagram,
}

impl QueuePairType {
    /// The default kind of a port space. In the InfiniBand port space the application may choose another.
    pub const fn of(space: PortSpace) -> QueuePairType {
        match space {
            PortSpace::Udp => QueuePairType::Datagram,
            PortSpace::Tcp | PortSpace::Infiniband => QueuePairType::ReliableConnection,
        }
    }

    pub(crate) const fn service(self) -> Service {
        match self {
            QueuePairType::UnreliableConnection => Service::UnreliableConnection,
            QueuePairType::ExtendedConnection => Service::Extended,
            QueuePairType::ReliableConnection | QueuePairType::Datagram => {
                Service::ReliableConnection
            }
        }
    }

    /// The extended transport type that accompanies [`Service::Extended`].
    pub(crate) const fn extended_transport(self) -> u8 {
        match self {
            QueuePairType::ExtendedConnection => EXTENDED_RELIABLE,
            _ => 0,
        }
    }

    /// The kind that a peer requests; none if we do not support it.
    pub(crate) const fn asked_for(
        service: Service,
        extended_transport: u8,
    ) -> Option<QueuePairType> {
        match (service, extended_transport) {
            (Service::ReliableConnection, _) => Some(QueuePairType::ReliableConnection),
            (Service::UnreliableConnection, _) => Some(QueuePairType::UnreliableConnection),
            (Service::Extended, EXTENDED_RELIABLE) => Some(QueuePairType::ExtendedConnection),
            _ => None,
        }
    }
}

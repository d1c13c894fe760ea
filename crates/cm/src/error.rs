//! Errors of calls.

use std::net::SocketAddr;

use wire::cm::PrivateDataTooLong;

use crate::id::State;

/// Why a call failed. A failed call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such id; it may have been destroyed.
    #[error("there is no such id")]
    UnknownId,
    /// The call is not possible in this state.
    #[error("the id is in state \"{0}\", where this is not possible")]
    WrongState(State),
    /// The call is not possible in this phase of the exchange with the peer.
    #[error("the exchange with the peer is in a phase where this is not possible")]
    WrongPhase,
    /// The private data does not fit.
    #[error(transparent)]
    PrivateData(#[from] PrivateDataTooLong),
    /// Only an id for datagram queue pairs can do this.
    #[error("only an id for datagram queue pairs can do this")]
    NotDatagram,
    /// The Q_Key differs from the one that the id already has.
    #[error("the id already has another Q_Key")]
    QueueKeyMismatch,
    /// The id is already a member of the group.
    #[error("the id is already a member of this group")]
    AlreadyJoined,
    /// The id is not a member of the group.
    #[error("the id is not a member of this group")]
    NotJoined,
    /// Source and destination, or id and group, are of different address families.
    #[error("IPv4 and IPv6 addresses cannot be mixed")]
    FamilyMismatch,
    /// The id could not be bound to the source address.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Why an id could not be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no such id; it may have been destroyed.
    #[error("there is no such id")]
    UnknownId,
    /// The id is already bound.
    #[error("the id is in state \"{0}\": only an idle one can be bound")]
    WrongState(State),
    /// Another id has exactly this address.
    #[error("{0} is in use by another id")]
    AddressInUse(SocketAddr),
    /// The address is not local, or overlaps with the address of another id.
    #[error("{0} is not available: it is not a local address, or another id has the port")]
    AddressNotAvailable(SocketAddr),
    /// All ephemeral ports are in use.
    #[error("no port is left")]
    NoPortLeft,
}

/// The configured maximum of ids is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are already {0} ids")]
pub struct TooManyIds(pub usize);

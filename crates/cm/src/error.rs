//! What a caller can do wrong.

use std::net::SocketAddr;

use wire::cm::PrivateDataTooLong;

use crate::id::State;

/// Why an operation was refused. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no such id; it may have been destroyed.
    #[error("there is no such id")]
    UnknownId,
    /// The operation has no place in this state.
    #[error("the id is in state {0:?}, where this is not possible")]
    WrongState(State),
    /// The conversation with the peer has not come to this point, or is past it.
    #[error("the conversation with the peer is not at a point where this is possible")]
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
    /// The source address cannot be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Why an id could not be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// There is no such id; it may have been destroyed.
    #[error("there is no such id")]
    UnknownId,
    /// The id is already bound.
    #[error("the id is in state {0:?}: only an idle one can be bound")]
    WrongState(State),
    /// Another id has exactly this address.
    #[error("{0} is in use by another id")]
    AddressInUse(SocketAddr),
    /// The address is not ours, or overlaps with that of another id.
    #[error("{0} is not available: it is not a local address, or another id has the port")]
    AddressNotAvailable(SocketAddr),
    /// All ephemeral ports are taken.
    #[error("no port is left")]
    NoPortLeft,
}

/// There are as many ids as the configuration allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are already {0} ids")]
pub struct TooManyIds(pub usize);

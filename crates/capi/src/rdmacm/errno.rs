//! How errors of the connection manager map to error numbers.

use driver::rdma_cm::{BindError, CallError, ConnectionError};

use crate::errno::Errno;

impl From<ConnectionError> for Errno {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::NoDevice(_) => Self::NO_DEVICE,
            ConnectionError::NoRoute { source, .. } => Self::from(source),
            ConnectionError::Open(error) => Self::from_open_error(&error),
            ConnectionError::Service(error) => {
                Self::from_system(&error).unwrap_or(Self(libc::EADDRINUSE))
            }
            ConnectionError::Bind(error) => Self::from(error),
            ConnectionError::Call(error) => Self::from(error),
            ConnectionError::TooManyIds(_) => Self::NO_MEMORY,
            ConnectionError::Inherited => Self::INHERITED,
            // The id is already bound, or not bound yet.
            _ => Self::INVALID,
        }
    }
}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Bind(error) => Self::from(error),
            CallError::AlreadyJoined => Self(libc::EADDRINUSE),
            CallError::NotJoined => Self(libc::EADDRNOTAVAIL),
            _ => Self::INVALID,
        }
    }
}

impl From<BindError> for Errno {
    fn from(error: BindError) -> Self {
        match error {
            BindError::AddressInUse(_) => Self(libc::EADDRINUSE),
            BindError::AddressNotAvailable(_) | BindError::NoPortLeft => Self(libc::EADDRNOTAVAIL),
            BindError::UnknownId | BindError::WrongState(_) => Self::INVALID,
        }
    }
}

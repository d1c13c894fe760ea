//! How errors of the connection manager map to error numbers.

use std::ffi::c_int;

use driver::rdma_cm::{BindError, CallError, CmError, EventKind, Failure, Unreachable};

use crate::errno::Errno;

impl From<CmError> for Errno {
    fn from(error: CmError) -> Self {
        match error {
            CmError::NoDevice(_) => Self::NO_DEVICE,
            CmError::NoRoute { source, .. } => Self::from(source),
            CmError::Open(error) => Self::from_open_error(&error),
            CmError::Service(error) => Self::from_system(&error).unwrap_or(Self(libc::EADDRINUSE)),
            CmError::Bind(error) => Self::from(error),
            CmError::Call(error) => Self::from(error),
            CmError::TooManyIds(_) => Self::NO_MEMORY,
            CmError::Inherited => Self::inherited(),
            // The id is already bound, or not bound yet.
            _ => Self::INVALID,
        }
    }
}

/// The number for a bind that failed. As in the kernel, an address of another host has one of its own.
pub(crate) fn of_bind(error: CmError) -> Errno {
    match error {
        CmError::NoDevice(address) if !net::socket::interface::is_own(address) => {
            Errno(libc::EADDRNOTAVAIL)
        }
        error => error.into(),
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
            _ => Self::INVALID,
        }
    }
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TimedOut => Self(libc::ETIMEDOUT),
            Failure::QueueKeyMismatch => Self::INVALID,
            Failure::NoDevice => Self::NO_DEVICE,
            Failure::Os(number) => Self(number.saturating_abs()),
        }
    }
}

/// The `status` of an event: 0, a negative error number, or the peer's reason code.
pub(super) fn status(kind: &EventKind) -> c_int {
    match kind {
        EventKind::AddressError(failure)
        | EventKind::RouteError(failure)
        | EventKind::ConnectError(failure)
        | EventKind::MulticastError { failure, .. } => -Errno::from(*failure).0,
        EventKind::Unreachable(Unreachable::TimedOut)
        | EventKind::Disconnected { timed_out: true } => -libc::ETIMEDOUT,
        EventKind::Unreachable(Unreachable::Rejected { status, .. }) => status.code().into(),
        EventKind::Rejected { reason, .. } => reason.code().into(),
        EventKind::Application { status, .. } => *status,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use wire::cm::{RejectReason, ServiceStatus};

    use super::*;

    #[test]
    fn bind_without_a_device_tells_own_addresses_from_others() {
        let bound_to = |address: [u8; 4]| of_bind(CmError::NoDevice(address.into())).0;
        assert_eq!(bound_to([127, 0, 0, 1]), libc::ENODEV);
        assert_eq!(bound_to([192, 0, 2, 77]), libc::EADDRNOTAVAIL);
    }

    #[test]
    fn event_status_is_a_negative_errno_or_a_reason_code() {
        let rejected = EventKind::Rejected {
            reason: RejectReason::Consumer,
            private_data: Vec::new(),
        };
        let not_supported = Unreachable::Rejected {
            status: ServiceStatus::NotSupported,
            private_data: Vec::new(),
        };
        let cases = [
            (EventKind::AddressError(Failure::NoDevice), -19),
            (EventKind::AddressError(Failure::QueueKeyMismatch), -22),
            (EventKind::RouteError(Failure::TimedOut), -110),
            (EventKind::ConnectError(Failure::Os(12)), -12),
            (EventKind::Unreachable(Unreachable::TimedOut), -110),
            (EventKind::Unreachable(not_supported), 1),
            (rejected, 28),
            (EventKind::Disconnected { timed_out: true }, -110),
            (EventKind::Disconnected { timed_out: false }, 0),
            (EventKind::Established, 0),
        ];
        for (kind, expected) in cases {
            assert_eq!(status(&kind), expected, "{kind:?}");
        }
    }
}

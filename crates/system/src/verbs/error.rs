//! Why the system's verbs fail.

use std::io;

use engine::SystemRefusal;

use crate::loader::LibraryError;

/// Why a device of the system can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The libraries can't be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// No device has this name.
    #[error(
        "the system's libibverbs knows no device `{0}`; is the library of its provider installed (ibverbs-providers)?"
    )]
    Unknown(String),
    /// A function failed.
    #[error("{0}; `roci doctor` checks the device and its files")]
    Refused(#[from] SystemRefusal),
}

/// A call that reported its error in `errno`.
pub(crate) fn last_error(call: &'static str) -> SystemRefusal {
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    SystemRefusal::Call { call, number }
}

/// As [`last_error`], or what the device lacks, if it has no such call.
pub(crate) fn last_error_or_lack(call: &'static str, lack: &'static str) -> SystemRefusal {
    match last_error(call) {
        SystemRefusal::Call {
            number: libc::EOPNOTSUPP | libc::ENOSYS,
            ..
        } => SystemRefusal::Lacks(lack),
        refusal => refusal,
    }
}

/// As [`error_number`], or what the device lacks, if it has no such call.
pub(crate) fn error_number_or_lack(
    call: &'static str,
    number: i32,
    lack: &'static str,
) -> SystemRefusal {
    match number.abs() {
        libc::EOPNOTSUPP | libc::ENOSYS => SystemRefusal::Lacks(lack),
        number => SystemRefusal::Call { call, number },
    }
}

/// A call that returned an error number; some return its negative.
pub(crate) fn error_number(call: &'static str, number: i32) -> SystemRefusal {
    let number = number.abs();
    SystemRefusal::Call { call, number }
}

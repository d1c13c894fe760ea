//! Why the system's verbs fail.

use std::io;

use engine::SystemRefusal;

/// Why the system's libraries can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// The library is not installed, or one of its own libraries is missing.
    #[error(
        "libibverbs can't be loaded: {0}; install rdma-core (on Debian: `apt install libibverbs1 ibverbs-providers`)"
    )]
    Missing(String),
    /// The library lacks a function.
    #[error("libibverbs has no function `{0}`; install a newer rdma-core")]
    Incomplete(&'static str),
    /// The library is the one of this project, which has software devices only.
    #[error(
        "the libibverbs of this process is Rocinante's own, which has no devices of the system; start the program \
         without `roci run`"
    )]
    Ours,
}

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
pub(super) fn last_error(call: &'static str) -> SystemRefusal {
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    SystemRefusal::Call { call, number }
}

/// A call that returned an error number; some return its negative.
pub(super) fn error_number(call: &'static str, number: i32) -> SystemRefusal {
    let number = number.abs();
    SystemRefusal::Call { call, number }
}

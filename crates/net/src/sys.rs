//! System calls that the standard library and `socket2` do not offer, each behind a safe function.
//!
//! This is the only directory of the crate with unsafe code. Work that safe code can do, such as
//! reading socket addresses and control messages from their bytes, is not done here with pointers.
//!
//! Datagrams are sent and received with `syscall` and not with the C library's functions of the
//! same names: those are cancellation points, where a thread of a C program can be cancelled while
//! it holds our lock. The check for cancellation also costs time for every packet.

pub(crate) mod exit;
pub(crate) mod fatal_signals;
pub(crate) mod file_hole;
pub(crate) mod file_size;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod option;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod receive;
#[cfg(test)]
pub(crate) mod seccomp;
pub(crate) mod send;
pub(crate) mod shared_memory;
pub(crate) mod signal;
pub(crate) mod thread_sanitizer;
pub(crate) mod watcher;

use std::io;

/// Whether a system call failed because the system does not have it or forbids it, as a system call
/// filter in a container does.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::ENOPROTOOPT | libc::EAFNOSUPPORT)
    )
}

/// The result of a system call that returns -1 and sets `errno` when it fails.
fn check(result: impl Into<libc::c_long>) -> io::Result<usize> {
    usize::try_from(result.into()).map_err(|_| io::Error::last_os_error())
}

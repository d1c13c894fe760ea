//! System calls for epoll, without the C library.
//!
//! rdma-core's librspreload replaces the epoll functions of the C library by `repoll_*`. Our own calls must
//! not come back to us.

use std::ffi::{c_int, c_long};

use libc::epoll_event;

use crate::errno::Errno;

pub(super) fn epoll_create(flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: takes no pointers.
    checked(unsafe { libc::syscall(libc::SYS_epoll_create1, flags) })
}

/// # Safety
/// The event is null or a live event.
pub(super) unsafe fn epoll_control(
    set: c_int,
    operation: c_int,
    member: c_int,
    event: *mut epoll_event,
) -> Result<(), Errno> {
    let call = libc::SYS_epoll_ctl;
    // SAFETY: the caller's promise; the kernel checks the rest.
    checked(unsafe { libc::syscall(call, set, operation, member, event) }).map(drop)
}

/// Waits up to this many milliseconds, or without limit if negative. Returns the number of events.
pub(super) fn epoll_wait(
    set: c_int,
    events: &mut [epoll_event],
    milliseconds: c_int,
) -> Result<usize, Errno> {
    let count = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let no_mask: *const libc::sigset_t = std::ptr::null();
    // Not every architecture has `epoll_wait`.
    let call = libc::SYS_epoll_pwait;
    let buffer = events.as_mut_ptr();
    // SAFETY: the kernel writes at most as many events as the live slice has.
    let ready = unsafe { libc::syscall(call, set, buffer, count, milliseconds, no_mask, 0_usize) };
    checked(ready).map(|ready| ready as usize)
}

/// # Safety
/// No other code closes or uses it.
pub(super) unsafe fn close(descriptor: c_int) -> Result<(), Errno> {
    // SAFETY: takes no pointers, and by the caller's promise it is ours to close.
    checked(unsafe { libc::syscall(libc::SYS_close, descriptor) }).map(drop)
}

fn checked(result: c_long) -> Result<c_int, Errno> {
    match result {
        0.. => Ok(result as c_int),
        _ => Err(Errno::last()),
    }
}

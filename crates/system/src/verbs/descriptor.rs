//! Descriptors of the library: making them non-blocking, and waiting for them.

use std::ffi::c_int;
use std::time::Duration;

use engine::SystemRefusal;

use super::error::last_error;

/// Makes reads of a descriptor return an error instead of waiting.
pub(super) fn set_nonblocking(fd: c_int) -> Result<(), SystemRefusal> {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: takes no pointers.
    let set = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if flags < 0 || set < 0 {
        return Err(last_error("fcntl"));
    }
    Ok(())
}

/// Waits until a descriptor is readable, at most this long. Returns whether it is.
pub(super) fn wait_readable(fd: c_int, time: Option<Duration>) -> bool {
    let mut descriptor = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // Rounded up, so that a short time is not a busy loop.
    let milliseconds = time.map_or(-1, |time| {
        c_int::try_from(time.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    });
    // SAFETY: one descriptor, which the caller keeps open.
    let ready = unsafe { libc::poll(&raw mut descriptor, 1, milliseconds) };
    ready > 0
}

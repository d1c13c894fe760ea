//! `sendmmsg` and `recvmmsg`: several messages by one call.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, Instant};

use libc::{mmsghdr, msghdr, timespec};

use super::data::{recvmsg, sendmsg};
use super::table;
use crate::original_functions::next;

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    descriptor: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if table::socket(descriptor).is_none() {
        return next!(
            c"sendmmsg": (c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
            descriptor, list, count, flags
        );
    }
    for done in 0..count {
        // SAFETY: the caller's promise: there are `count` messages.
        let message = unsafe { list.add(done as usize) };
        // SAFETY: as above; nobody else uses it during the call.
        let message = unsafe { &mut *message };
        // SAFETY: a message of the caller.
        let sent = unsafe { sendmsg(descriptor, &raw const message.msg_hdr, flags) };
        if sent < 0 {
            return done_or_failed(done);
        }
        message.msg_len = sent as c_uint;
        // What follows would be sent in place of the rest.
        if (sent as usize) < length_of(&message.msg_hdr) {
            return (done + 1) as c_int;
        }
    }
    count as c_int
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    descriptor: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if table::socket(descriptor).is_none() {
        return next!(
            c"recvmmsg": (c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
            descriptor, list, count, flags, timeout
        );
    }
    // SAFETY: null, or a time of the caller.
    let until = unsafe { timeout.as_ref() }.and_then(deadline);
    let mut flags_now = flags & !libc::MSG_WAITFORONE;
    for done in 0..count {
        // SAFETY: the caller's promise: there are `count` messages.
        let message = unsafe { list.add(done as usize) };
        // SAFETY: as above; nobody else uses it during the call.
        let message = unsafe { &mut *message };
        // SAFETY: a message of the caller.
        let received = unsafe { recvmsg(descriptor, &raw mut message.msg_hdr, flags_now) };
        if received < 0 {
            return done_or_failed(done);
        }
        message.msg_len = received as c_uint;
        // As in the kernel: the time ends no wait, but the next message is not waited for.
        if until.is_some_and(|until| Instant::now() >= until) {
            return (done + 1) as c_int;
        }
        if flags & libc::MSG_WAITFORONE != 0 {
            flags_now |= libc::MSG_DONTWAIT;
        }
    }
    count as c_int
}

/// The end of a time from now; `None` for one without an end.
fn deadline(time: &timespec) -> Option<Instant> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
    Instant::now().checked_add(Duration::new(seconds, nanoseconds))
}

/// An error counts only if no message came before it.
fn done_or_failed(done: c_uint) -> c_int {
    if done == 0 { -1 } else { done as c_int }
}

fn length_of(message: &msghdr) -> usize {
    let count: usize = message.msg_iovlen as _;
    if count == 0 {
        return 0;
    }
    // SAFETY: not empty, so by the caller's promise a list of this length.
    let parts = unsafe { std::slice::from_raw_parts(message.msg_iov, count) };
    parts.iter().map(|part| part.iov_len).sum()
}

//! The calls that close, copy and configure a descriptor.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use super::names::{Name, to_family};
use super::table::{self, Entry};
use crate::original_functions::next;

/// The level of the options of rsockets, and that of ours which counts the bytes that can be read.
const SOL_RDMA: c_int = 0x10000;
const UNREAD: c_int = 0x726f_6369;

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    match table::take(descriptor) {
        // The descriptor of a set is its number.
        Entry::Set => close_rsocket(descriptor),
        Entry::Socket(number) => {
            close_rsocket(number);
            plain_close(descriptor)
        }
        Entry::Plain => plain_close(descriptor),
    }
}

pub(super) fn plain_close(descriptor: c_int) -> c_int {
    next!(c"close": (c_int) -> c_int; descriptor)
}

pub(super) fn close_rsocket(number: c_int) -> c_int {
    next!(c"rclose": (c_int) -> c_int; number)
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    copied(descriptor, next!(c"dup": (c_int) -> c_int; descriptor))
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        replace(from, to);
    }
    let made = next!(c"dup2": (c_int, c_int) -> c_int; from, to);
    if from == to { made } else { copied(from, made) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to {
        replace(from, to);
    }
    copied(
        from,
        next!(c"dup3": (c_int, c_int, c_int) -> c_int; from, to, flags),
    )
}

/// Closes what a descriptor stands for before another one takes its number.
fn replace(from: c_int, to: c_int) {
    let is_open = next!(c"fcntl": (c_int, c_int, c_long) -> c_int; from, libc::F_GETFD, 0) >= 0;
    if is_open && let Entry::Socket(number) = table::take(to) {
        close_rsocket(number);
    }
}

fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && table::entry(from) != Entry::Plain {
        table::copy(from, to);
    }
    to
}

/// Defines `fcntl` and `fcntl64`. The last argument is variadic: a number or a pointer, passed as a fixed one is.
macro_rules! fcntls {
    ($($name:literal $function:ident;)+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
            let result = next!(
                $name: (c_int, c_int, c_long) -> c_int; descriptor, command, argument
            );
            match (command, table::socket(descriptor)) {
                (libc::F_SETFL, Some(number)) if result >= 0 => {
                    set_status_flags(descriptor, number);
                    result
                }
                (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, Some(_)) => copied(descriptor, result),
                _ => result,
            }
        }
    )+};
}

fcntls! {
    c"fcntl" fcntl;
    c"fcntl64" fcntl64;
}

/// Gives an rsocket the flags of its descriptor: whether it blocks.
pub(super) fn set_status_flags(descriptor: c_int, number: c_int) {
    let flags = next!(c"fcntl": (c_int, c_int, c_long) -> c_int; descriptor, libc::F_GETFL, 0);
    let flags = c_long::from(flags & libc::O_NONBLOCK);
    next!(c"rfcntl": (c_int, c_int, c_long) -> c_int; number, libc::F_SETFL, flags);
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let plain =
        || next!(c"ioctl": (c_int, c_ulong, *mut c_void) -> c_int; descriptor, request, argument);
    let Some(number) = table::socket(descriptor) else {
        return plain();
    };
    // The width of requests differs between C libraries.
    if request == libc::FIONREAD as c_ulong {
        let mut length = size_of::<c_int>() as socklen_t;
        return next!(
            c"rgetsockopt": (c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
            number, SOL_RDMA, UNREAD, argument, &raw mut length
        );
    }
    let result = plain();
    if request == libc::FIONBIO as c_ulong && result == 0 {
        set_status_flags(descriptor, number);
    }
    result
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    type Value = *mut c_void;
    match table::socket(descriptor) {
        // The state of the connection. The kernel's socket has everything else.
        Some(number)
            if level == libc::SOL_SOCKET
                && [libc::SO_ERROR, libc::SO_ACCEPTCONN].contains(&name) =>
        {
            next!(
                c"rgetsockopt": (c_int, c_int, c_int, Value, *mut socklen_t) -> c_int;
                number, level, name, value, length
            )
        }
        _ => next!(
            c"getsockopt": (c_int, c_int, c_int, Value, *mut socklen_t) -> c_int;
            descriptor, level, name, value, length
        ),
    }
}

/// A number among the options of the kernel's socket.
pub(super) fn option(descriptor: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    let result = next!(
        c"getsockopt": (c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
        descriptor, level, name, (&raw mut value).cast(), &raw mut length
    );
    (result == 0).then_some(value)
}

pub(super) fn family(descriptor: c_int) -> c_int {
    option(descriptor, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(libc::AF_INET)
}

/// Defines `getsockname` and `getpeername`.
macro_rules! names {
    ($($name:literal $function:ident = $ours:literal;)+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(
            descriptor: c_int,
            address: *mut sockaddr,
            length: *mut socklen_t,
        ) -> c_int {
            let Some(number) = table::socket(descriptor) else {
                return next!(
                    $name: (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
                    descriptor, address, length
                );
            };
            let mut found = Name::empty();
            let result = next!(
                $ours: (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
                number, found.pointer_mut(), &raw mut found.length
            );
            if let Some(known) = found.address().filter(|_| result == 0) {
                // SAFETY: the caller's promises.
                unsafe { Name::of(to_family(known, family(descriptor))).put(address, length) };
            }
            result
        }
    )+};
}

names! {
    c"getsockname" getsockname = c"rgetsockname";
    c"getpeername" getpeername = c"rgetpeername";
}

//! The calls that send and receive.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::table;
use crate::original_functions::next;

/// Defines one function for each row: for an rsocket the `r*` function with the same declaration, otherwise the
/// original.
macro_rules! same_in_librdmacm {
    ($($name:literal $function:ident = $ours:literal($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(descriptor: c_int $(, $argument: $type)*) -> $result {
            match table::socket(descriptor) {
                Some(number) => next!($ours: (c_int $(, $type)*) -> $result; number $(, $argument)*),
                None => next!($name: (c_int $(, $type)*) -> $result; descriptor $(, $argument)*),
            }
        }
    )+};
}

same_in_librdmacm! {
    c"send" send = c"rsend"(data: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    c"sendto" sendto = c"rsendto"(
        data: *const c_void, length: size_t, flags: c_int, to: *const sockaddr, to_length: socklen_t
    ) -> ssize_t;
    c"write" write = c"rwrite"(data: *const c_void, length: size_t) -> ssize_t;
    c"writev" writev = c"rwritev"(list: *const iovec, count: c_int) -> ssize_t;
    c"recv" recv = c"rrecv"(into: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    c"recvfrom" recvfrom = c"rrecvfrom"(
        into: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t
    ) -> ssize_t;
    c"readv" readv = c"rreadv"(list: *const iovec, count: c_int) -> ssize_t;
    c"shutdown" shutdown = c"rshutdown"(how: c_int) -> c_int;
}

/// Reads from an rsocket.
///
/// # Safety
/// The requirements of `read`.
pub(crate) unsafe fn read(number: c_int, into: *mut c_void, length: size_t) -> ssize_t {
    next!(c"rread": (c_int, *mut c_void, size_t) -> ssize_t; number, into, length)
}

/// Reads from an rsocket into a buffer with room for so many bytes.
///
/// # Safety
/// The requirements of `read`.
pub(crate) unsafe fn read_checked(
    number: c_int,
    into: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { read(number, into, length.min(room)) }
}

/// `recv` with a checked size.
///
/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    match table::socket(descriptor) {
        Some(number) if length <= room => next!(
            c"rrecv": (c_int, *mut c_void, size_t, c_int) -> ssize_t; number, into, length, flags
        ),
        // The original ends the program if there is too little room.
        _ => next!(
            c"__recv_chk": (c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t;
            descriptor, into, length, room, flags
        ),
    }
}

/// `recvfrom` with a checked size.
///
/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    type Address = *mut sockaddr;
    match table::socket(descriptor) {
        Some(number) if length <= room => next!(
            c"rrecvfrom": (c_int, *mut c_void, size_t, c_int, Address, *mut socklen_t) -> ssize_t;
            number, into, length, flags, from, from_length
        ),
        _ => next!(
            c"__recvfrom_chk":
            (c_int, *mut c_void, size_t, size_t, c_int, Address, *mut socklen_t) -> ssize_t;
            descriptor, into, length, room, flags, from, from_length
        ),
    }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendmsg(
    descriptor: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    type Message = *const msghdr;
    match table::socket(descriptor) {
        Some(number) if !message.is_null() => {
            // SAFETY: not null, so a message.
            let plain = without_control(unsafe { message.read() });
            next!(c"rsendmsg": (c_int, Message, c_int) -> ssize_t; number, &raw const plain, flags)
        }
        _ => next!(c"sendmsg": (c_int, Message, c_int) -> ssize_t; descriptor, message, flags),
    }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvmsg(
    descriptor: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    type Message = *mut msghdr;
    match table::socket(descriptor) {
        Some(number) if !message.is_null() => {
            // SAFETY: not null, so a message.
            let given = unsafe { &mut *message };
            let mut plain = without_control(*given);
            given.msg_controllen = 0;
            given.msg_namelen = 0;
            given.msg_flags = 0;
            next!(c"rrecvmsg": (c_int, Message, c_int) -> ssize_t; number, &raw mut plain, flags)
        }
        _ => next!(c"recvmsg": (c_int, Message, c_int) -> ssize_t; descriptor, message, flags),
    }
}

/// A stream has no control data: what TCP would take is about its own headers.
fn without_control(mut message: msghdr) -> msghdr {
    message.msg_control = std::ptr::null_mut();
    message.msg_controllen = 0;
    message
}

/// Defines `sendfile` and `sendfile64`, whose declarations are equal on 64-bit Linux.
macro_rules! sendfiles {
    ($($name:literal $function:ident;)+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(
            descriptor: c_int,
            file: c_int,
            offset: *mut off_t,
            count: size_t,
        ) -> ssize_t {
            match table::socket(descriptor) {
                // SAFETY: the caller's promises.
                Some(number) => unsafe { send_file(number, file, offset, count) },
                None => next!(
                    $name: (c_int, c_int, *mut off_t, size_t) -> ssize_t;
                    descriptor, file, offset, count
                ),
            }
        }
    )+};
}

sendfiles! {
    c"sendfile" sendfile;
    c"sendfile64" sendfile64;
}

/// Sends a part of a file, by reading it.
///
/// # Safety
/// The requirements of `sendfile`.
unsafe fn send_file(number: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    /// The largest piece of a stream: a longer one is divided again.
    const PIECE: usize = 65536;
    let mut buffer = vec![0_u8; PIECE.min(count)];
    let mut at = if offset.is_null() {
        // SAFETY: takes no pointers.
        unsafe { libc::lseek(file, 0, libc::SEEK_CUR) }
    } else {
        // SAFETY: not null, so a number.
        unsafe { offset.read() }
    };
    let mut sent = 0;
    let mut result = 0;
    while sent < count {
        let length = buffer.len().min(count - sent);
        // SAFETY: a live buffer of at least this length.
        result = unsafe { libc::pread(file, buffer.as_mut_ptr().cast(), length, at) };
        if result <= 0 {
            break;
        }
        let read = result;
        result = next!(
            c"rsend": (c_int, *const c_void, size_t, c_int) -> ssize_t;
            number, buffer.as_ptr().cast(), read as size_t, 0
        );
        if result <= 0 {
            break;
        }
        sent += result as usize;
        at += result as off_t;
        if result < read {
            break;
        }
    }
    if offset.is_null() {
        // SAFETY: takes no pointers.
        unsafe { libc::lseek(file, at, libc::SEEK_SET) };
    } else {
        // SAFETY: not null, so a number.
        unsafe { offset.write(at) };
    }
    if sent == 0 && result < 0 {
        -1
    } else {
        sent as ssize_t
    }
}

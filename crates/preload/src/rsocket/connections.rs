//! `listen`, `accept` and `connect`: where a socket becomes an rsocket, or stays with TCP.

use std::ffi::{c_int, c_ulong, c_void};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{pollfd, sockaddr, socklen_t};

use super::descriptors::{close_rsocket, family, option, plain_close, set_status_flags};
use super::names::{Name, to_family, to_rdma};
use super::table::{self, Entry};
use super::waiting::move_memberships;
use crate::original_functions::next;

/// Whether `roci run --rsocket` started the program.
pub(super) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Called by the loader, because a program may clear its environment.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = read_environment;

extern "C" fn read_environment() {
    // SAFETY: the name is a text; there is no other thread yet.
    let value = unsafe { libc::getenv(c"ROCI_RSOCKET".as_ptr()) };
    // SAFETY: not null, so a text.
    let is_set = !value.is_null() && unsafe { *value } as u8 == b'1';
    ENABLED.store(is_set, Ordering::Relaxed);
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn listen(descriptor: c_int, backlog: c_int) -> c_int {
    if let Some(number) = table::socket(descriptor) {
        return next!(c"rlisten": (c_int, c_int) -> c_int; number, backlog);
    }
    if is_tcp(descriptor) {
        let local = local_name(descriptor).and_then(|name| name.address());
        match listening_rsocket(descriptor, local, backlog) {
            Ok(number) => return become_rsocket(descriptor, number),
            Err(error) => {
                let at = local.map_or_else(String::new, |local| format!(" at {local}"));
                say_once(&format!(
                    "no rsocket can listen{at} ({error}); the program listens for TCP there"
                ));
            }
        }
    }
    next!(c"listen": (c_int, c_int) -> c_int; descriptor, backlog)
}

fn listening_rsocket(
    descriptor: c_int,
    local: Option<SocketAddr>,
    backlog: c_int,
) -> io::Result<c_int> {
    let rsocket = Rsocket::new(family(descriptor))?;
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    ] {
        // An IPv4 socket has no options of IPv6.
        if let Some(value) = option(descriptor, level, name) {
            rsocket.set_option(level, name, value)?;
        }
    }
    if let Some(local) = local {
        rsocket.bind(to_rdma(local))?;
    }
    let listens = next!(c"rlisten": (c_int, c_int) -> c_int; rsocket.0, backlog);
    succeeded(listens)?;
    Ok(rsocket.release())
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(
    descriptor: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    if let Some(number) = table::socket(descriptor) {
        return next!(
            c"rconnect": (c_int, *const sockaddr, socklen_t) -> c_int; number, address, length
        );
    }
    if is_tcp(descriptor)
        // SAFETY: the caller's promise.
        && let Some(peer) = unsafe { Name::given(address, length) }.address()
    {
        match connected_rsocket(descriptor, to_rdma(peer)) {
            Ok(Connected { number, answered }) => {
                if become_rsocket(descriptor, number) < 0 || answered {
                    return if answered { 0 } else { -1 };
                }
                set_errno(&io::Error::from_raw_os_error(libc::EINPROGRESS));
                return -1;
            }
            Err(error) => say_once(&format!(
                "{peer} has no rsocket ({error}); TCP is used for it, and for others without one"
            )),
        }
    }
    next!(c"connect": (c_int, *const sockaddr, socklen_t) -> c_int; descriptor, address, length)
}

/// An rsocket that connects.
struct Connected {
    number: c_int,
    /// Whether the peer has accepted.
    answered: bool,
}

/// Connects. A socket that does not block waits, too, until it is known whether the peer has rsockets: one without them
/// rejects, one with them answers when its program accepts.
fn connected_rsocket(descriptor: c_int, peer: SocketAddr) -> io::Result<Connected> {
    let rsocket = Rsocket::new(family(descriptor))?;
    set_status_flags(descriptor, rsocket.0);
    let local = local_name(descriptor).and_then(|name| name.address());
    if let Some(local) = local.filter(|local| local.port() != 0) {
        rsocket.bind(to_rdma(local))?;
    }
    let name = Name::of(peer);
    let connected = next!(
        c"rconnect": (c_int, *const sockaddr, socklen_t) -> c_int;
        rsocket.0, name.pointer(), name.length
    );
    let answered = match succeeded(connected) {
        Ok(_) => true,
        // This thread may be the one that accepts.
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            !listens_here(peer) && rsocket.is_answered()?
        }
        Err(error) => return Err(error),
    };
    Ok(Connected {
        number: rsocket.release(),
        answered,
    })
}

/// Whether this process listens at an address.
fn listens_here(address: SocketAddr) -> bool {
    table::sockets().any(|number| {
        let local = rsocket_name(number);
        local.is_some_and(|local| local.port() == address.port())
            && rsocket_option(number, libc::SO_ACCEPTCONN).is_ok_and(|listens| listens != 0)
    })
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(
    descriptor: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    match table::socket(descriptor) {
        // SAFETY: the caller's promises.
        Some(number) => unsafe { accepted(descriptor, number, peer, length, 0) },
        None => next!(
            c"accept": (c_int, *mut sockaddr, *mut socklen_t) -> c_int; descriptor, peer, length
        ),
    }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    descriptor: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    match table::socket(descriptor) {
        // SAFETY: the caller's promises.
        Some(number) => unsafe { accepted(descriptor, number, peer, length, flags) },
        None => next!(
            c"accept4": (c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
            descriptor, peer, length, flags
        ),
    }
}

/// Accepts a connection under the number of a new socket of the kernel.
///
/// # Safety
/// The requirements of `accept`.
unsafe fn accepted(
    descriptor: c_int,
    listener: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let family = family(descriptor);
    // Before the connection is taken, because there may be no descriptor left.
    // SAFETY: takes no pointers.
    let placeholder = unsafe { libc::socket(family, libc::SOCK_STREAM | flags, 0) };
    if placeholder < 0 {
        return -1;
    }
    let mut name = Name::empty();
    let number = next!(
        c"raccept": (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        listener, name.pointer_mut(), &raw mut name.length
    );
    if number < 0 {
        let error = io::Error::last_os_error();
        plain_close(placeholder);
        set_errno(&error);
        return -1;
    }
    if let Some(address) = name.address() {
        // SAFETY: the caller's promise.
        unsafe { Name::of(to_family(address, family)).put(peer, length) };
    }
    if become_rsocket(placeholder, number) < 0 {
        plain_close(placeholder);
        return -1;
    }
    placeholder
}

/// Lets the calls on a descriptor go to an rsocket from now on.
fn become_rsocket(descriptor: c_int, number: c_int) -> c_int {
    set_status_flags(descriptor, number);
    move_memberships(descriptor, number);
    if table::insert(descriptor, Entry::Socket(number)) {
        return 0;
    }
    close_rsocket(number);
    set_errno(&io::Error::from_raw_os_error(libc::EMFILE));
    -1
}

/// A new rsocket, closed when it is dropped.
struct Rsocket(c_int);

impl Rsocket {
    fn new(family: c_int) -> io::Result<Self> {
        let number = next!(
            c"rsocket": (c_int, c_int, c_int) -> c_int; family, libc::SOCK_STREAM, 0
        );
        succeeded(number).map(Self)
    }

    fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let local = Name::of(local);
        let bound = next!(
            c"rbind": (c_int, *const sockaddr, socklen_t) -> c_int;
            self.0, local.pointer(), local.length
        );
        succeeded(bound).map(drop)
    }

    fn set_option(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        let length = size_of::<c_int>() as socklen_t;
        let set = next!(
            c"rsetsockopt": (c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
            self.0, level, name, (&raw const value).cast(), length
        );
        succeeded(set).map(drop)
    }

    /// Waits for the peer's answer. Returns false if it takes longer than that of one without rsockets, and fails if the peer
    /// rejects.
    fn is_answered(&self) -> io::Result<bool> {
        // A peer without rsockets rejects after 1 s to 7 s on loopback.
        const LIMIT_MS: c_int = 10_000;
        let mut entry = pollfd {
            fd: self.0,
            events: libc::POLLOUT,
            revents: 0,
        };
        let ready = next!(
            c"rpoll": (*mut pollfd, c_ulong, c_int) -> c_int; &raw mut entry, 1, LIMIT_MS
        );
        if succeeded(ready)? == 0 {
            return Ok(false);
        }
        match rsocket_option(self.0, libc::SO_ERROR)? {
            0 => Ok(true),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Its number. It is no longer closed by itself.
    fn release(self) -> c_int {
        let number = self.0;
        std::mem::forget(self);
        number
    }
}

impl Drop for Rsocket {
    fn drop(&mut self) {
        close_rsocket(self.0);
    }
}

/// Whether this is a TCP socket of the kernel, and the program runs with rsockets.
fn is_tcp(descriptor: c_int) -> bool {
    let has = |name, value| option(descriptor, libc::SOL_SOCKET, name) == Some(value);
    let is_internet =
        || has(libc::SO_DOMAIN, libc::AF_INET) || has(libc::SO_DOMAIN, libc::AF_INET6);
    is_enabled() && has(libc::SO_PROTOCOL, libc::IPPROTO_TCP) && is_internet()
}

/// The address at which the kernel's socket is bound.
fn local_name(descriptor: c_int) -> Option<Name> {
    let mut name = Name::empty();
    let result = next!(
        c"getsockname": (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        descriptor, name.pointer_mut(), &raw mut name.length
    );
    (result == 0).then_some(name)
}

fn rsocket_name(number: c_int) -> Option<SocketAddr> {
    let mut name = Name::empty();
    let result = next!(
        c"rgetsockname": (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        number, name.pointer_mut(), &raw mut name.length
    );
    name.address().filter(|_| result == 0)
}

fn rsocket_option(number: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    let result = next!(
        c"rgetsockopt": (c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
        number, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length
    );
    succeeded(result).map(|_| value)
}

fn succeeded(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Says once in a process that a socket stays with TCP.
fn say_once(text: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let _ = io::stderr().write_all(format!("roci: {text}\n").as_bytes());
    }
}

pub(super) fn set_errno(error: &io::Error) {
    // SAFETY: the address of this thread's error number, which is always there.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *errno = error.raw_os_error().unwrap_or(libc::EIO) };
}

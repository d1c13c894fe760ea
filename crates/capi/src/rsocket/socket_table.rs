//! The table of sockets by number.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::datagram::Datagram;
use super::settings::Flags;
use super::stream::Stream;
use crate::errno::Errno;

/// A socket.
#[derive(Clone)]
pub(super) enum Socket {
    Stream(Arc<Stream>),
    Datagram(Arc<Datagram>),
}

impl Socket {
    pub(super) fn number(&self) -> c_int {
        match self {
            Self::Stream(stream) => stream.number(),
            Self::Datagram(datagram) => datagram.number(),
        }
    }

    pub(super) fn with_flags<T>(&self, act: impl FnOnce(&mut Flags) -> T) -> T {
        match self {
            Self::Stream(stream) => act(&mut stream.lock().options.flags),
            Self::Datagram(datagram) => datagram.with_flags(act),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::Stream(stream) => stream.close(),
            Self::Datagram(datagram) => datagram.close(),
        }
    }
}

static SOCKETS: Mutex<Option<HashMap<c_int, Socket>>> = Mutex::new(None);

/// Adds a socket.
pub(super) fn insert(socket: Socket) -> c_int {
    let number = socket.number();
    lock().get_or_insert_default().insert(number, socket);
    number
}

/// The socket of a number; `None` for an ordinary descriptor.
pub(super) fn find(number: c_int) -> Option<Socket> {
    lock().as_ref()?.get(&number).cloned()
}

/// The socket of a number; EBADF for anything else.
pub(super) fn socket(number: c_int) -> Result<Socket, Errno> {
    find(number).ok_or(Errno(libc::EBADF))
}

pub(super) fn stream(number: c_int) -> Result<Arc<Stream>, Errno> {
    match socket(number)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(Errno::UNSUPPORTED),
    }
}

pub(super) fn remove(number: c_int) -> Result<Socket, Errno> {
    let removed = lock().get_or_insert_default().remove(&number);
    removed.ok_or(Errno(libc::EBADF))
}

/// Closes all sockets at exit, as the kernel would do.
pub(crate) fn close_all() {
    crate::entry::guard(|| {
        let left = lock().take().unwrap_or_default();
        for socket in left.into_values() {
            socket.close();
        }
        Ok(())
    });
}

fn lock() -> MutexGuard<'static, Option<HashMap<c_int, Socket>>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

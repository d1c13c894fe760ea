//! Detects changes of interfaces and their addresses.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::netlink;
use crate::sys::option;

/// Becomes readable when an interface or an address is added, changed or removed.
#[derive(Debug)]
pub struct Monitor(Socket);

impl Monitor {
    /// Watches from now on.
    pub fn new() -> io::Result<Self> {
        let socket = netlink::route_socket()?;
        // The kernel gives a socket its address at the first request, and sends it no message
        // before.
        netlink::list_links(&socket)?;
        socket.set_nonblocking(true)?;
        for group in [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV6_IFADDR,
        ] {
            option::set(socket.as_fd(), option::NETLINK_ADD_MEMBERSHIP, group as i32)?;
        }
        Ok(Self(socket))
    }

    /// Whether something has changed since the last call. The list of interfaces shows what.
    pub fn has_changed(&self) -> bool {
        let mut message = [0; 4096];
        let mut changed = false;
        loop {
            match (&self.0).read(&mut message) {
                Ok(0) => return changed,
                Ok(_) => changed = true,
                // More messages than the kernel keeps: something has changed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return changed,
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

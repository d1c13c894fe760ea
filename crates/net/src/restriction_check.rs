//! Tests which restrictions this system has, for `roci doctor`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::restrictions::Restriction;
use crate::sharing::accepts_everything;
use crate::socket::interface;
use crate::sys::{self, option, receive, shared_memory};

/// Whether the restriction exists here.
#[must_use]
pub fn exists(restriction: Restriction) -> bool {
    let tried = match restriction {
        Restriction::Ipv6 => return interface::drops_ipv6_addresses(),
        Restriction::SharedPorts => shared_port().map(drop),
        Restriction::Steering => steered_port(),
        Restriction::MemoryFiles => shared_memory::probe(),
        Restriction::ReceiveBatches => receive_batch(),
    };
    tried.is_err_and(|error| sys::is_forbidden(&error))
}

fn shared_port() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// Without a shared port there is nothing to steer, and that is reported as another restriction.
fn steered_port() -> io::Result<()> {
    let Ok(socket) = shared_port() else {
        return Ok(());
    };
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    option::attach_steering(socket.as_fd(), &accepts_everything())
}

/// An unbound socket receives nothing.
fn receive_batch() -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None)?;
    let mut slots = [receive::Slot::new(), receive::Slot::new()];
    receive::receive(socket.as_fd(), &mut slots).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};

    /// The restrictions that a thread finds if a call with this value of an argument is forbidden.
    fn found_without(call: libc::c_long, argument: u32, value: libc::c_int) -> Vec<Restriction> {
        let looks = move || {
            forbid(Forbidden {
                call,
                argument,
                value,
                errno: libc::EPERM,
            });
            let restrictions = Restriction::ALL.into_iter();
            restrictions
                .filter(|restriction| exists(*restriction))
                .collect()
        };
        std::thread::spawn(looks).join().expect("no panic")
    }

    #[test]
    fn each_limit_is_found_alone() {
        let option = |option| found_without(libc::SYS_setsockopt, 2, option);
        assert_eq!(option(libc::SO_REUSEPORT), [Restriction::SharedPorts]);
        assert_eq!(
            option(libc::SO_ATTACH_REUSEPORT_CBPF),
            [Restriction::Steering]
        );
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let memory = found_without(libc::SYS_memfd_create, 1, flags.cast_signed());
        assert_eq!(memory, [Restriction::MemoryFiles]);
        // The flags of `recvmmsg`.
        let batches = found_without(libc::SYS_recvmmsg, 3, libc::MSG_DONTWAIT);
        assert_eq!(batches, [Restriction::ReceiveBatches]);
        assert_eq!(option(-1), []);
    }
}

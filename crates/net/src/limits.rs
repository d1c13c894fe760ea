//! Features that this system forbids, as a container's system call filter may, and what happens
//! instead.
//!
//! Everything works without these features, but differently. A program that meets such a limit
//! reports it on stderr, once; `roci doctor` checks all of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use crate::interface;
use crate::share::accepts_everything;
use crate::sys::{self, option, shared_memory};

/// What is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `socket(AF_INET6)`, on a machine with IPv6 addresses.
    Ipv6,
    /// `setsockopt(SO_REUSEPORT)`.
    SharedPorts,
    /// `setsockopt(SO_ATTACH_REUSEPORT_CBPF)`.
    Steering,
    /// `memfd_create`.
    MemoryFiles,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Ipv6,
        Self::SharedPorts,
        Self::Steering,
        Self::MemoryFiles,
    ];

    /// What is forbidden, and what happens instead.
    #[must_use]
    pub fn consequence(self) -> &'static str {
        match self {
            Self::Ipv6 => "IPv6 sockets are forbidden here: devices have only IPv4 addresses",
            Self::SharedPorts | Self::Steering => {
                "sharing a port is forbidden here: one context at a time can have an address"
            }
            Self::MemoryFiles => {
                "files in memory are forbidden here: peers are not told when a process dies, and \
                 packets do not go through shared memory"
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Ipv6 => "allow socket(AF_INET6) if peers need IPv6",
            Self::SharedPorts => {
                "give each program its own address, such as one of 127.0.0.0/8, or allow \
                 setsockopt(SO_REUSEPORT)"
            }
            Self::Steering => {
                "give each program its own address, such as one of 127.0.0.0/8, or allow \
                 setsockopt(SO_ATTACH_REUSEPORT_CBPF)"
            }
            Self::MemoryFiles => "disconnect before a program ends, or allow memfd_create",
        }
    }

    /// Whether the limit exists here.
    #[must_use]
    pub fn holds(self) -> bool {
        let tried = match self {
            Self::Ipv6 => return interface::drops_ipv6_addresses(),
            Self::SharedPorts => shared_port().map(drop),
            Self::Steering => steered_port(),
            Self::MemoryFiles => shared_memory::probe(),
        };
        tried.is_err_and(|error| sys::is_forbidden(&error))
    }
}

fn shared_port() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// Without a shared port there is nothing to steer, and that is reported as another limit.
fn steered_port() -> io::Result<()> {
    let Ok(socket) = shared_port() else {
        return Ok(());
    };
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    option::attach_steering(socket.as_fd(), &accepts_everything())
}

/// Whether each limit was reported, in the order of [`Limit::ALL`].
static REPORTED: [AtomicBool; Limit::ALL.len()] =
    [const { AtomicBool::new(false) }; Limit::ALL.len()];

/// Reports on stderr what happens instead, once per process.
pub(crate) fn report(limit: Limit) {
    if !REPORTED[limit as usize].swap(true, Ordering::Relaxed) {
        eprintln!("roci: {}; {}", limit.consequence(), limit.advice());
    }
}

/// Reports the limit if it is the cause of this error.
pub(crate) fn report_if_forbidden(limit: Limit, error: &io::Error) {
    if sys::is_forbidden(error) {
        report(limit);
    }
}

#[cfg(test)]
pub(crate) fn was_reported(limit: Limit) -> bool {
    REPORTED[limit as usize].load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};

    /// The limits that a thread finds if a call with this value of an argument is forbidden.
    fn found_without(call: libc::c_long, argument: u32, value: libc::c_int) -> Vec<Limit> {
        let looks = move || {
            forbid(Forbidden {
                call,
                argument,
                value,
                errno: libc::EPERM,
            });
            let limits = Limit::ALL.into_iter();
            limits.filter(|limit| limit.holds()).collect()
        };
        std::thread::spawn(looks).join().expect("no panic")
    }

    #[test]
    fn each_limit_is_found_alone() {
        let option = |option| found_without(libc::SYS_setsockopt, 2, option);
        assert_eq!(option(libc::SO_REUSEPORT), [Limit::SharedPorts]);
        assert_eq!(option(libc::SO_ATTACH_REUSEPORT_CBPF), [Limit::Steering]);
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let memory = found_without(libc::SYS_memfd_create, 1, flags.cast_signed());
        assert_eq!(memory, [Limit::MemoryFiles]);
        assert_eq!(option(-1), []);
    }
}

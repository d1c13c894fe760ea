//! Whether a UDP port is already in use.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Socket, Type};

use crate::fork::Guard;

/// How often the kernel's list is read before a port counts as free. The kernel returns the list
/// page by page and finds the next page by a count: if an earlier socket is closed meanwhile, one
/// socket is left out.
const READINGS: usize = 4;

/// Whether any UDP socket of this network namespace is bound to the address, or to all addresses.
///
/// A socket that does not share the port tells that at once. The kernel's list grows with the sockets of the whole machine, and is
/// only read where the socket can't tell.
pub(super) fn is_in_use(local: SocketAddr) -> bool {
    match is_free(local) {
        Ok(free) => !free,
        Err(_) => (0..READINGS).any(|_| is_listed(local)),
    }
}

/// Whether a socket that does not share the port can have it for a moment.
fn is_free(local: SocketAddr) -> io::Result<bool> {
    // It is closed when a program is executed.
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
    // Another thread may fork now, and its child would keep the port.
    let guard = Guard::new([socket.as_fd()]);
    if !guard.is_effective() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    match socket.bind(&local.into()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_listed(local: SocketAddr) -> bool {
    let (table, any): (_, IpAddr) = match local.ip() {
        IpAddr::V4(_) => ("/proc/net/udp", Ipv4Addr::UNSPECIFIED.into()),
        IpAddr::V6(_) => ("/proc/net/udp6", Ipv6Addr::UNSPECIFIED.into()),
    };
    // Without the list, binding the shared port decides.
    let sockets = fs::read_to_string(table).unwrap_or_default();
    let names = [local.ip(), any].map(|ip| name(SocketAddr::new(ip, local.port())));
    bound(&sockets).any(|socket| names.iter().any(|name| name == socket))
}

/// The local addresses in the kernel's table: the second word of each line but the first.
fn bound(sockets: &str) -> impl Iterator<Item = &str> {
    let lines = sockets.lines().skip(1);
    lines.filter_map(|line| line.split_whitespace().nth(1))
}

/// An address as the kernel prints it there: words in the machine's byte order, then the port.
fn name(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (words, _) = octets.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_ne_bytes(*word));
    let address_name: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{address_name}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};

    #[test]
    fn the_list_of_all_sockets_is_read_only_where_a_socket_cant_tell() {
        let socket = UdpSocket::bind("127.77.1.4:0").unwrap();
        let local = socket.local_addr().unwrap();
        let forbid_reading = || {
            forbid(Forbidden {
                call: libc::SYS_openat,
                argument: 2,
                value: libc::O_RDONLY | libc::O_CLOEXEC,
                errno: libc::EPERM,
            });
            assert!(fs::read("/proc/net/udp").is_err());
            is_in_use(local)
        };
        let told = thread::scope(|scope| scope.spawn(forbid_reading).join().unwrap());
        assert!(told);
        let forbid_sockets = || {
            forbid(Forbidden {
                call: libc::SYS_socket,
                argument: 0,
                value: libc::AF_INET,
                errno: libc::EPERM,
            });
            is_in_use(local)
        };
        let listed = thread::scope(|scope| scope.spawn(forbid_sockets).join().unwrap());
        assert!(listed);
    }

    #[test]
    fn a_bound_port_is_in_use_and_a_free_one_is_not() {
        for address in ["127.77.1.2", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let socket = UdpSocket::bind((address, 0)).unwrap();
            let local = socket.local_addr().unwrap();
            assert!(is_in_use(local), "{local}");
            drop(socket);
            assert!(!is_in_use(local), "{local}");
        }
    }

    #[test]
    fn a_wildcard_socket_uses_the_port_of_every_address() {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(is_in_use(SocketAddr::new([127, 77, 1, 3].into(), port)));
    }
}

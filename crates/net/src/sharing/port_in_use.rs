//! Whether a UDP port is already in use.
//!
//! Binding the port would tell, too, but a process that another thread forks at that moment would
//! keep it bound.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How often the kernel's list is read before a port counts as free. The kernel returns the list
/// page by page and finds the next page by a count: if an earlier socket is closed meanwhile, one
/// socket is left out.
const READINGS: usize = 4;

/// Whether any UDP socket of this network namespace is bound to the address, or to all addresses.
pub(super) fn is_in_use(local: SocketAddr) -> bool {
    (0..READINGS).any(|_| is_listed(local))
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

    use super::*;

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

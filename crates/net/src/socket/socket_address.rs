//! Socket addresses in the kernel's format.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A UDP socket of the address's family that does not block and is closed on `exec`.
pub(super) fn open(address: IpAddr) -> std::io::Result<Socket> {
    let domain = match address {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new(
        domain,
        Type::DGRAM.nonblocking().cloexec(),
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// An address and port for the kernel; `scope` is the interface of a link-local address.
pub(super) fn socket_address(address: IpAddr, port: u16, scope: u32) -> SockAddr {
    match address {
        IpAddr::V6(address) if is_scoped(address) => {
            SockAddr::from(SocketAddrV6::new(address, port, 0, scope))
        }
        _ => SockAddr::from(SocketAddr::new(address, port)),
    }
}

fn is_scoped(address: Ipv6Addr) -> bool {
    // Link-local addresses, and multicast groups of the link and the interface.
    address.is_unicast_link_local() || matches!(address.segments()[0] & 0xff0f, 0xff01 | 0xff02)
}

/// The index of the interface that has this address; 0 if none has, or for IPv4.
pub(super) fn interface_of(address: IpAddr) -> u32 {
    let IpAddr::V6(address) = address else {
        return 0;
    };
    // One line per address: 32 hexadecimal digits, the interface's index, and more.
    let table = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let wanted = format!("{:032x}", address.to_bits());
    let line = table.lines().find(|line| line.starts_with(&wanted));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|number| u32::from_str_radix(number, 16).ok())
        .unwrap_or(0)
}

/// Reads a socket address from its bytes.
pub(super) fn parse(name: &[u8; 28]) -> Option<(IpAddr, u16)> {
    let [family_low, family_high, port_high, port_low, ..] = *name;
    let port = u16::from_be_bytes([port_high, port_low]);
    let family = u16::from_ne_bytes([family_low, family_high]);
    let address = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*name[4..].first_chunk::<4>()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*name[8..].first_chunk::<16>()?)),
        _ => return None,
    };
    Some((address, port))
}

/// Writes a socket address as the bytes that [`parse`] reads. For an IPv4 address the kernel reads
/// only the beginning.
pub(super) fn print(address: IpAddr, port: u16, scope: u32) -> [u8; 28] {
    let mut name = [0; 28];
    name[2..4].copy_from_slice(&port.to_be_bytes());
    let family = match address {
        IpAddr::V4(address) => {
            name[4..8].copy_from_slice(&address.octets());
            libc::AF_INET
        }
        IpAddr::V6(address) => {
            name[8..24].copy_from_slice(&address.octets());
            if is_scoped(address) {
                name[24..].copy_from_slice(&scope.to_ne_bytes());
            }
            libc::AF_INET6
        }
    };
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_address_parses_to_the_same_address() {
        for address in ["10.1.2.3", "2001:db8::7", "fe80::1"] {
            let address: IpAddr = address.parse().unwrap();
            let name = print(address, 4791, 3);
            assert_eq!(parse(&name), Some((address, 4791)));
            let scope = u32::from(address == "fe80::1".parse::<IpAddr>().unwrap()) * 3;
            assert_eq!(name[24..], scope.to_ne_bytes(), "{address}");
        }
    }
}

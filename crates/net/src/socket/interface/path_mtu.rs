//! How long packets may be on their whole way to a peer, as far as the kernel knows.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use wire::ROCE_PORT;

use crate::sys::option;

/// The length in bytes of the longest IP packet that the path from a local address to a peer carries: that of the interface, or less if
/// the route says so, or if a router has said so (ICMP), which the kernel remembers for ten minutes.
pub fn path_mtu(source: IpAddr, peer: IpAddr) -> io::Result<u32> {
    let name = match peer {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    // Only a connected socket has a route. Nothing is sent.
    let socket = UdpSocket::bind((source, 0))?;
    socket.connect(SocketAddr::new(peer, ROCE_PORT))?;
    let mtu = option::get(socket.as_fd(), name)?;
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_within_this_machine_carries_what_loopback_does() {
        let loopback = crate::socket::interface::interfaces().unwrap();
        let loopback = loopback.iter().find(|it| it.name == "lo").unwrap();
        for address in ["127.58.9.2", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            // The kernel limits the path to the longest IP packet.
            let expected = loopback.mtu.min(1 << 16);
            let found = path_mtu(address, address).unwrap();
            assert!(found.abs_diff(expected) <= 1, "{address}: {found}");
        }
    }

    #[test]
    fn a_peer_without_a_route_has_no_path() {
        let source = IpAddr::from([127, 0, 0, 1]);
        path_mtu(source, IpAddr::from([192, 0, 2, 1])).unwrap_err();
    }
}

//! Whether the next hop to a peer answers, as the kernel's neighbour table tells (ARP, neighbour discovery).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::netlink;

/// What the kernel knows about the next hop to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// Nothing was sent to it yet, or packets to it need no link address.
    Unknown,
    /// The kernel asks for its link address, or has asked and got no answer.
    Unresolved,
    /// It has answered.
    Resolved,
}

/// The route to a peer, as far as neighbours matter.
struct Hop {
    address: IpAddr,
    interface: u32,
}

/// The state of the next hop from a local address to a peer. Fails if the system does not tell it.
pub fn neighbour(source: IpAddr, peer: SocketAddr) -> io::Result<Neighbour> {
    let socket = netlink::route_socket()?;
    let found = next_hop(&socket, source, peer).and_then(|hop| match hop {
        Some(hop) => state(&socket, &hop),
        None => Ok(Neighbour::Resolved),
    });
    netlink::close_socket(socket);
    found
}

/// `None` if the peer is this machine, or a multicast group.
fn next_hop(socket: &socket2::Socket, source: IpAddr, peer: SocketAddr) -> io::Result<Option<Hop>> {
    let interface = match peer {
        SocketAddr::V6(peer) => peer.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let Some(route) = netlink::route(socket, source, peer.ip(), interface)? else {
        return Ok(None);
    };
    let gateway = route.gateway.as_deref().and_then(address);
    Ok(Some(Hop {
        address: gateway.unwrap_or(peer.ip()),
        interface: route.interface,
    }))
}

fn state(socket: &socket2::Socket, hop: &Hop) -> io::Result<Neighbour> {
    const IN_QUESTION: u16 = libc::NUD_INCOMPLETE | libc::NUD_FAILED;
    match netlink::neighbour_state(socket, hop.address, hop.interface) {
        Ok(libc::NUD_NONE) => Ok(Neighbour::Unknown),
        Ok(state) if state & IN_QUESTION != 0 => Ok(Neighbour::Unresolved),
        Ok(_) => Ok(Neighbour::Resolved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Neighbour::Unknown),
        Err(error) => Err(error),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_resolved() {
        for address in ["127.58.9.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let found = neighbour(address, SocketAddr::new(address, 4791));
            assert_eq!(found.unwrap(), Neighbour::Resolved, "{address}");
        }
    }

    /// Only where the tests have a network of their own is there an interface at which nobody answers.
    #[test]
    fn a_peer_that_does_not_answer_is_unresolved() {
        let (source, peer) = ([198, 51, 100, 1], ([198, 51, 100, 77], 9));
        let (source, peer) = (IpAddr::from(source), SocketAddr::from(peer));
        let Ok(probe) = std::net::UdpSocket::bind((source, 0)) else {
            return;
        };
        assert_eq!(neighbour(source, peer).unwrap(), Neighbour::Unknown);
        probe.send_to(&[], peer).unwrap();
        assert_eq!(neighbour(source, peer).unwrap(), Neighbour::Unresolved);
    }

    #[test]
    fn a_peer_without_a_route_is_an_error() {
        let found = neighbour(
            Ipv4Addr::LOCALHOST.into(),
            SocketAddr::from(([192, 0, 2, 1], 4791)),
        );
        found.unwrap_err();
    }
}

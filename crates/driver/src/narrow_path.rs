//! Paths to peers that carry shorter packets than the interface here: tunnels, VPNs, and machines with another MTU.
//!
//! Packets may not be cut into fragments, so a router drops those that are too long, and says so (ICMP). The kernel remembers what it
//! said, and the next connection uses a path MTU that fits. Queue pairs that are connected keep theirs: both ends must agree.

use std::net::IpAddr;

use net::socket::interface::{Device, path_mtu};
use wire::{ICRC_LENGTH, Opcode, PathMtu};

/// A path that is narrower than was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NarrowPath {
    pub(crate) source: IpAddr,
    pub(crate) peer: IpAddr,
    /// The length in bytes of the longest IP packet that it carries.
    pub(crate) carries: u32,
    /// The largest path MTU whose packets all fit.
    pub(crate) mtu: PathMtu,
}

impl NarrowPath {
    /// `None` if packets with this path MTU fit, or the kernel knows nothing of the path.
    pub(crate) fn find(source: IpAddr, peer: IpAddr, wanted: PathMtu) -> Option<Self> {
        let carries = path_mtu(source, peer).ok()?;
        let mtu = Device::mtu_within(carries).unwrap_or(PathMtu::Mtu256);
        (mtu < wanted).then_some(Self {
            source,
            peer,
            carries,
            mtu,
        })
    }

    /// Whether even the shortest packet with so much payload is too long.
    pub(crate) fn stops(&self, payload: usize) -> bool {
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        let shortest_headers = Opcode::RcSendMiddle.header_length();
        ip + UDP_HEADER + shortest_headers + payload + ICRC_LENGTH > self.carries as usize
    }
}

/// The length of a UDP header.
const UDP_HEADER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_the_shortest_headers_may_just_fit() {
        let path = |peer: &str| NarrowPath {
            source: peer.parse().unwrap(),
            peer: peer.parse().unwrap(),
            carries: 1500,
            mtu: PathMtu::Mtu1024,
        };
        assert!(!path("10.0.0.2").stops(1456) && path("10.0.0.2").stops(1457));
        assert!(!path("fd00::2").stops(1436) && path("fd00::2").stops(1437));
    }

    #[test]
    fn no_path_is_narrow_within_this_machine_or_if_nothing_is_known() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let elsewhere = IpAddr::from([192, 0, 2, 1]);
        for peer in [loopback, elsewhere] {
            assert_eq!(NarrowPath::find(loopback, peer, PathMtu::Mtu4096), None);
        }
    }
}

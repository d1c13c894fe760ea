//! The first 40 bytes of what a datagram queue pair receives.
//!
//! InfiniBand puts the global routing header of the packet there. RoCEv2 puts the IP header:
//! an IPv6 header fills the area, an IPv4 header takes the last 20 bytes of it.

use std::net::IpAddr;

use zerocopy::{FromBytes, IntoBytes};

use crate::flow::{Flow, Fragmentation};
use crate::ip::{IPV4_HEADER, Ipv4Header, Ipv6Header};
use crate::number::Gid;

/// How much of a receive buffer the area takes.
pub const LENGTH: usize = 40;

const IPV4_OFFSET: usize = LENGTH - IPV4_HEADER;

/// Builds the area for a datagram. `udp_length` counts the UDP header, too.
///
/// # Panics
/// If the addresses of the flow are of two families.
pub fn area(
    flow: &Flow,
    traffic_class: u8,
    hop_limit: u8,
    fragmentation: Fragmentation,
    udp_length: u16,
) -> [u8; LENGTH] {
    let mut area = [0; LENGTH];
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = Ipv4Header::new(source, destination, fragmentation, udp_length)
                .carried(traffic_class, hop_limit);
            area[IPV4_OFFSET..].copy_from_slice(header.as_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Header::new(source, destination, udp_length).carried(
                traffic_class,
                0,
                hop_limit,
            );
            area.copy_from_slice(header.as_bytes());
        }
        _ => panic!("a flow between two address families: {flow}"),
    }
    area
}

/// What the area says about the way back to the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Who sent the datagram.
    pub source: Gid,
    /// Which of our addresses, or which group, it was sent to.
    pub destination: Gid,
    /// Type of service in IPv4, traffic class in IPv6.
    pub traffic_class: u8,
    /// The flow label of IPv6; 0 in IPv4.
    pub flow_label: u32,
    /// Time to live in IPv4, hop limit in IPv6.
    pub hop_limit: u8,
}

/// Reads an area, or finds that it holds neither kind of header.
pub fn route(area: &[u8; LENGTH]) -> Option<Route> {
    let ipv6 = Ipv6Header::ref_from_bytes(area).expect("the area is one IPv6 header long");
    let ipv4 = Ipv4Header::ref_from_bytes(&area[IPV4_OFFSET..]).expect("its end is an IPv4 header");
    // Devices may leave anything in the 20 bytes before an IPv4 header, and an IPv6 address may
    // look like the start of one: only the checksum tells them apart.
    if ipv4.has_no_options() && (ipv4.is_intact() || !ipv6.is_version_6()) {
        return Some(route_of_ipv4(ipv4));
    }
    ipv6.is_version_6().then(|| route_of_ipv6(ipv6))
}

fn route_of_ipv4(header: &Ipv4Header) -> Route {
    let (source, destination) = header.addresses();
    Route {
        source: source.into(),
        destination: destination.into(),
        traffic_class: header.type_of_service(),
        flow_label: 0,
        hop_limit: header.time_to_live(),
    }
}

fn route_of_ipv6(header: &Ipv6Header) -> Route {
    let (source, destination) = header.addresses();
    Route {
        source: source.into(),
        destination: destination.into(),
        traffic_class: header.traffic_class(),
        flow_label: header.flow_label(),
        hop_limit: header.hop_limit(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str) -> Flow {
        Flow {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            source_port: 0xc000,
            destination_port: 4791,
        }
    }

    #[test]
    fn ipv4_takes_the_last_twenty_bytes() {
        let fragmentation = Fragmentation {
            identification: 0x1234,
            dont_fragment: true,
        };
        let area = area(&flow("10.200.0.2", "10.200.0.3"), 0, 64, fragmentation, 292);
        assert_eq!(area[..20], [0; 20]);
        let expected = [
            0x45, 0, 0x01, 0x38, 0x12, 0x34, 0x40, 0, 64, 17, 0x11, 0xed, 10, 200, 0, 2, 10, 200,
            0, 3,
        ];
        assert_eq!(area[20..], expected);
    }

    #[test]
    fn the_way_back_over_ipv4() {
        let area = area(
            &flow("10.0.0.1", "10.0.0.2"),
            0x20,
            63,
            Fragmentation::NONE,
            100,
        );
        let route = route(&area).expect("an IPv4 header");
        assert_eq!(route.source, "10.0.0.1".parse().unwrap());
        assert_eq!(route.destination, "10.0.0.2".parse().unwrap());
        assert_eq!((route.traffic_class, route.hop_limit), (0x20, 63));
    }

    #[test]
    fn the_way_back_over_ipv6() {
        let area = area(
            &flow("fe80::1", "ff0e::2"),
            0x20,
            63,
            Fragmentation::NONE,
            100,
        );
        assert_eq!(area[0] >> 4, 6);
        let route = route(&area).expect("an IPv6 header");
        assert_eq!(route.source, "fe80::1".parse().unwrap());
        assert!(route.destination.is_multicast());
        assert_eq!((route.traffic_class, route.hop_limit), (0x20, 63));
    }

    #[test]
    fn leftovers_before_an_ipv4_header_do_no_harm() {
        let mut area = area(
            &flow("10.0.0.1", "10.0.0.2"),
            0,
            64,
            Fragmentation::NONE,
            100,
        );
        area[0] = 0x60;
        let route = route(&area).expect("an IPv4 header");
        assert_eq!(route.source, "10.0.0.1".parse().unwrap());
    }

    #[test]
    fn an_ipv6_address_that_looks_like_an_ipv4_header_is_no_such_header() {
        let area = area(
            &flow("fe80::4500:1", "fe80::2"),
            0,
            64,
            Fragmentation::NONE,
            100,
        );
        assert_eq!(area[IPV4_OFFSET], 0x45);
        let route = route(&area).expect("an IPv6 header");
        assert_eq!(route.source, "fe80::4500:1".parse().unwrap());
    }

    #[test]
    fn an_empty_area_is_no_route() {
        assert_eq!(route(&[0; LENGTH]), None);
    }
}

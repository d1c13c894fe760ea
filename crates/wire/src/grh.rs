//! The routing header area: the first 40 bytes of a receive buffer of a datagram queue pair.
//!
//! InfiniBand puts the global routing header (GRH) of the packet there. RoCEv2 puts the IP header:
//! an IPv6 header fills the area, an IPv4 header takes its last 20 bytes.

use std::net::IpAddr;

use zerocopy::{FromBytes, IntoBytes};

use crate::flow::{Flow, Fragmentation};
use crate::ip::{IPV4_HEADER, Ipv4Header, Ipv6Header};
use crate::number::Gid;

/// The length of the area in bytes.
pub const LENGTH: usize = 40;

const IPV4_OFFSET: usize = LENGTH - IPV4_HEADER;

/// Builds the area for a datagram. `udp_length` includes the UDP header.
///
/// Annex A17.4.5.2: an IPv6 header fills the area, an IPv4 header its second half.
///
/// # Panics
/// If the source and destination addresses have different families.
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
                .with_path_fields(traffic_class, hop_limit);
            area[IPV4_OFFSET..].copy_from_slice(header.as_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Header::new(source, destination, udp_length).with_path_fields(
                traffic_class,
                0,
                hop_limit,
            );
            area.copy_from_slice(header.as_bytes());
        }
        _ => panic!("source and destination have different address families: {flow}"),
    }
    area
}

/// The fields of the area that a reply to the sender needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// The sender's address.
    pub source: Gid,
    /// The local address or multicast group that received the datagram.
    pub destination: Gid,
    /// The IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// The IPv6 flow label; 0 for IPv4.
    pub flow_label: u32,
    /// The IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
}

/// Reads an area. Returns `None` if it holds neither an IPv4 nor an IPv6 header.
pub fn parse(area: &[u8; LENGTH]) -> Option<Fields> {
    let ipv6 = Ipv6Header::ref_from_bytes(area).expect("the area is one IPv6 header long");
    let ipv4 = Ipv4Header::ref_from_bytes(&area[IPV4_OFFSET..])
        .expect("the area ends with 20 bytes, one IPv4 header");
    // The 20 bytes before an IPv4 header are undefined and may look like an IPv6 header, and an
    // IPv6 address may look like the start of an IPv4 header. The IPv4 checksum tells them apart.
    if ipv4.has_no_options() && (ipv4.is_intact() || !ipv6.is_version_6()) {
        return Some(fields_of_ipv4(ipv4));
    }
    ipv6.is_version_6().then(|| fields_of_ipv6(ipv6))
}

fn fields_of_ipv4(header: &Ipv4Header) -> Fields {
    let (source, destination) = header.addresses();
    Fields {
        source: source.into(),
        destination: destination.into(),
        traffic_class: header.type_of_service(),
        flow_label: 0,
        hop_limit: header.time_to_live(),
    }
}

fn fields_of_ipv6(header: &Ipv6Header) -> Fields {
    let (source, destination) = header.addresses();
    Fields {
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

    // Annex A17.4.5.2
    #[test]
    fn ipv4_header_takes_the_last_twenty_bytes() {
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
    fn route_is_read_from_an_ipv4_header() {
        let area = area(
            &flow("10.0.0.1", "10.0.0.2"),
            0x20,
            63,
            Fragmentation::NONE,
            100,
        );
        let route = parse(&area).expect("an IPv4 header");
        assert_eq!(route.source, "10.0.0.1".parse().unwrap());
        assert_eq!(route.destination, "10.0.0.2".parse().unwrap());
        assert_eq!((route.traffic_class, route.hop_limit), (0x20, 63));
    }

    #[test]
    fn route_is_read_from_an_ipv6_header() {
        let area = area(
            &flow("fe80::1", "ff0e::2"),
            0x20,
            63,
            Fragmentation::NONE,
            100,
        );
        assert_eq!(area[0] >> 4, 6);
        let route = parse(&area).expect("an IPv6 header");
        assert_eq!(route.source, "fe80::1".parse().unwrap());
        assert!(route.destination.is_multicast());
        assert_eq!((route.traffic_class, route.hop_limit), (0x20, 63));
    }

    #[test]
    fn bytes_before_an_ipv4_header_are_ignored() {
        let mut area = area(
            &flow("10.0.0.1", "10.0.0.2"),
            0,
            64,
            Fragmentation::NONE,
            100,
        );
        area[0] = 0x60;
        let route = parse(&area).expect("an IPv4 header");
        assert_eq!(route.source, "10.0.0.1".parse().unwrap());
    }

    #[test]
    fn ipv6_address_that_resembles_an_ipv4_header_is_read_as_ipv6() {
        let area = area(
            &flow("fe80::4500:1", "fe80::2"),
            0,
            64,
            Fragmentation::NONE,
            100,
        );
        assert_eq!(area[IPV4_OFFSET], 0x45);
        let route = parse(&area).expect("an IPv6 header");
        assert_eq!(route.source, "fe80::4500:1".parse().unwrap());
    }

    #[test]
    fn empty_area_has_no_route() {
        assert_eq!(parse(&[0; LENGTH]), None);
    }
}

//! The layers below a RoCEv2 packet: Ethernet, IP and UDP, as far as captures need them.
//!
//! A [`Datagram`] is parsed from a frame layer by layer, and each layer's length is checked. It is
//! written with all checksums. The ICRC uses the same headers.

mod checksum;
mod layer;
mod udp;
mod v4;
mod v6;

pub use layer::DatagramError;

pub(crate) use udp::{UDP_HEADER, UdpHeader};
pub(crate) use v4::{IPV4_HEADER, Ipv4Header};
pub(crate) use v6::Ipv6Header;

use std::net::IpAddr;

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U16;

use crate::flow::{Flow, Fragmentation};
use layer::{cut, read};

const ETHERNET_ADDRESSES: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_OUTER_VLAN: u16 = 0x88a8;

/// A UDP datagram with the fields of its IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The addresses and ports.
    pub flow: Flow,
    /// The IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// The IPv6 flow label; 0 for IPv4.
    pub flow_label: u32,
    /// The IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// The IPv4 fragmentation fields; [`Fragmentation::NONE`] for IPv6.
    pub fragmentation: Fragmentation,
    /// The UDP payload.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Parses an Ethernet frame, with or without VLAN tags. Removes the padding of short frames.
    pub fn parse_ethernet(frame: &'a [u8]) -> Result<Self, DatagramError> {
        let (_, mut rest) = cut("Ethernet", frame, ETHERNET_ADDRESSES)?;
        loop {
            let (ethertype, after_type) = read::<U16>("Ethernet", rest)?;
            match ethertype.get() {
                ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return Self::parse_ip(after_type),
                ETHERTYPE_VLAN | ETHERTYPE_OUTER_VLAN => (_, rest) = cut("VLAN", after_type, 2)?,
                other => return Err(DatagramError::NotIp(other)),
            }
        }
    }

    /// Parses an IPv4 or IPv6 packet.
    pub fn parse_ip(packet: &'a [u8]) -> Result<Self, DatagramError> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_ipv4(packet),
            Some(6) => Self::parse_ipv6(packet),
            _ => Err(DatagramError::Malformed { layer: "IP" }),
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Result<Self, DatagramError> {
        let (header, fragmentation, datagram) = Ipv4Header::parse(packet)?;
        let (udp, payload) = UdpHeader::parse(datagram)?;
        let (source, destination) = header.addresses();
        Ok(Datagram {
            flow: udp.flow(source, destination),
            traffic_class: header.type_of_service(),
            flow_label: 0,
            hop_limit: header.time_to_live(),
            fragmentation,
            payload,
        })
    }

    fn parse_ipv6(packet: &'a [u8]) -> Result<Self, DatagramError> {
        let (header, datagram) = Ipv6Header::parse(packet)?;
        let (udp, payload) = UdpHeader::parse(datagram)?;
        let (source, destination) = header.addresses();
        Ok(Datagram {
            flow: udp.flow(source, destination),
            traffic_class: header.traffic_class(),
            flow_label: header.flow_label(),
            hop_limit: header.hop_limit(),
            fragmentation: Fragmentation::NONE,
            payload,
        })
    }

    /// Appends IP header, UDP header and payload to `out`, with all checksums.
    ///
    /// # Panics
    /// If source and destination have different address families.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let udp_length = (UDP_HEADER + self.payload.len()) as u16;
        match (self.flow.source, self.flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let class = self.traffic_class;
                let header = Ipv4Header::new(source, destination, self.fragmentation, udp_length)
                    .with_path_fields(class, self.hop_limit);
                out.extend_from_slice(header.as_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header::new(source, destination, udp_length).with_path_fields(
                    self.traffic_class,
                    self.flow_label,
                    self.hop_limit,
                );
                out.extend_from_slice(header.as_bytes());
            }
            _ => panic!(
                "source and destination have different address families: {}",
                self.flow
            ),
        }
        let udp = UdpHeader::new(&self.flow, udp_length);
        let checksum = udp.checksum_over(&self.flow, self.payload);
        out.extend_from_slice(udp.with_checksum(checksum).as_bytes());
        out.extend_from_slice(self.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::checksum::internet_checksum;
    use super::udp::UDP_PROTOCOL;
    use super::*;

    fn datagram(source: &str, destination: &str) -> Datagram<'static> {
        let flow = Flow {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            source_port: 0xc001,
            destination_port: 4791,
        };
        Datagram {
            flow,
            traffic_class: 0x20,
            flow_label: if flow.source.is_ipv6() { 0x12345 } else { 0 },
            hop_limit: 63,
            fragmentation: Fragmentation::NONE,
            payload: b"odd length!",
        }
    }

    fn emitted(datagram: &Datagram<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        datagram.emit(&mut bytes);
        bytes
    }

    fn framed(between: &[u8], packet: &[u8]) -> Vec<u8> {
        [&[0xaa; ETHERNET_ADDRESSES], between, packet].concat()
    }

    #[test]
    fn emitted_datagram_is_parsed_to_the_same_value() {
        for datagram in [
            datagram("10.0.0.1", "10.0.0.2"),
            datagram("fe80::1", "ff0e::2"),
        ] {
            assert_eq!(Datagram::parse_ip(&emitted(&datagram)), Ok(datagram));
        }
    }

    #[test]
    fn emitted_ip_and_udp_checksums_are_correct() {
        let bytes = emitted(&datagram("10.0.0.1", "10.0.0.2"));
        let (ip, udp) = bytes.split_at(IPV4_HEADER);
        assert_eq!(internet_checksum(&[ip]), 0);
        let pseudo = [0, UDP_PROTOCOL, 0, udp.len() as u8];
        assert_eq!(internet_checksum(&[&ip[12..], &pseudo, udp]), 0);
    }

    #[test]
    fn udp_checksum_of_zero_is_sent_as_ones() {
        let checksum = |payload: [u8; 2]| {
            let datagram = Datagram {
                payload: &payload,
                ..datagram("10.0.0.1", "10.0.0.2")
            };
            let bytes = emitted(&datagram);
            [bytes[IPV4_HEADER + 6], bytes[IPV4_HEADER + 7]]
        };
        // Using the checksum of a zero payload as the payload brings the sum to zero.
        let missing = checksum([0, 0]);
        assert_eq!(checksum(missing), [0xff, 0xff]);
    }

    #[test]
    fn vlan_tags_and_ethernet_padding_are_removed() {
        let datagram = datagram("10.0.0.1", "10.0.0.2");
        let padded = [&emitted(&datagram)[..], &[0; 20]].concat();
        let plain = framed(&[0x08, 0x00], &padded);
        assert_eq!(Datagram::parse_ethernet(&plain), Ok(datagram));
        let tagged = framed(&[0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x08, 0x00], &padded);
        assert_eq!(Datagram::parse_ethernet(&tagged), Ok(datagram));
    }

    #[test]
    fn frames_without_udp_are_rejected_with_their_protocol() {
        let arp = framed(&[0x08, 0x06], &[0; 28]);
        assert_eq!(
            Datagram::parse_ethernet(&arp),
            Err(DatagramError::NotIp(0x0806))
        );
        let mut tcp = emitted(&datagram("10.0.0.1", "10.0.0.2"));
        tcp[9] = 6;
        assert_eq!(Datagram::parse_ip(&tcp), Err(DatagramError::NotUdp(6)));
    }

    #[test]
    fn fragments_are_rejected() {
        let mut fragment = emitted(&datagram("10.0.0.1", "10.0.0.2"));
        fragment[6] = 0x20;
        assert_eq!(Datagram::parse_ip(&fragment), Err(DatagramError::Fragment));
    }

    #[test]
    fn truncated_datagram_is_rejected_with_both_lengths() {
        let bytes = emitted(&datagram("10.0.0.1", "10.0.0.2"));
        let cut = Datagram::parse_ip(&bytes[..bytes.len() - 1]);
        let expected = DatagramError::TooShort {
            layer: "UDP",
            needed: 19,
            found: 18,
        };
        assert_eq!(cut, Err(expected));
    }
}

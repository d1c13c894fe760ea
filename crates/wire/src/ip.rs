//! What is below a packet: Ethernet, IP and UDP, as far as captures need them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::flow::{Flow, Fragmentation};

const UDP_PROTOCOL: u8 = 17;
pub(crate) const UDP_HEADER: usize = size_of::<UdpHeader>();
pub(crate) const IPV4_HEADER: usize = size_of::<Ipv4Header>();

const ETHERNET_ADDRESSES: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_OUTER_VLAN: u16 = 0x88a8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipv4Header {
    version_and_length: u8,
    type_of_service: u8,
    total_length: U16,
    fragmentation: [u8; 4],
    time_to_live: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}
const _: () = assert!(size_of::<Ipv4Header>() == 20);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipv6Header {
    version_class_and_label: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}
const _: () = assert!(size_of::<Ipv6Header>() == 40);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct UdpHeader {
    source_port: U16,
    destination_port: U16,
    length: U16,
    checksum: U16,
}
const _: () = assert!(size_of::<UdpHeader>() == 8);

/// A UDP datagram with everything that IP says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// From whom to whom.
    pub flow: Flow,
    /// Type of service in IPv4, traffic class in IPv6.
    pub traffic_class: u8,
    /// The flow label of IPv6; 0 in IPv4.
    pub flow_label: u32,
    /// Time to live in IPv4, hop limit in IPv6.
    pub hop_limit: u8,
    /// Identification and flag of IPv4; [`Fragmentation::NONE`] in IPv6.
    pub fragmentation: Fragmentation,
    /// What UDP carries.
    pub payload: &'a [u8],
}

/// Why bytes are not a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatagramError {
    /// A header, or what it announces, is cut off.
    #[error("{layer} takes {needed} bytes, but there are {found}")]
    TooShort {
        /// The name of the header.
        layer: &'static str,
        /// How many bytes it takes or announces.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// The frame carries something else.
    #[error("ethertype {0:#06x} is not IP")]
    NotIp(u16),
    /// The version, the header length or the length of UDP makes no sense.
    #[error("malformed {layer} header")]
    Malformed {
        /// The name of the header.
        layer: &'static str,
    },
    /// IP carries something else.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// It is a part of a datagram. RoCEv2 is never fragmented.
    #[error("a fragment of a datagram")]
    Fragment,
}

impl<'a> Datagram<'a> {
    /// Reads an Ethernet frame, with or without VLAN tags. What Ethernet adds to reach its
    /// shortest length is left out.
    pub fn parse_ethernet(frame: &'a [u8]) -> Result<Self, DatagramError> {
        let (_, mut rest) = cut("Ethernet", frame, ETHERNET_ADDRESSES)?;
        loop {
            let (ethertype, behind) = read::<U16>("Ethernet", rest)?;
            match ethertype.get() {
                ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return Self::parse_ip(behind),
                ETHERTYPE_VLAN | ETHERTYPE_OUTER_VLAN => (_, rest) = cut("VLAN", behind, 2)?,
                other => return Err(DatagramError::NotIp(other)),
            }
        }
    }

    /// Reads an IP packet of either version.
    pub fn parse_ip(packet: &'a [u8]) -> Result<Self, DatagramError> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_ipv4(packet),
            Some(6) => Self::parse_ipv6(packet),
            _ => Err(DatagramError::Malformed { layer: "IP" }),
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Result<Self, DatagramError> {
        let (header, _) = read::<Ipv4Header>("IPv4", packet)?;
        let header_length = usize::from(header.version_and_length & 0x0f) * 4;
        if header_length < IPV4_HEADER {
            return Err(DatagramError::Malformed { layer: "IPv4" });
        }
        if header.protocol != UDP_PROTOCOL {
            return Err(DatagramError::NotUdp(header.protocol));
        }
        let fragmentation =
            Fragmentation::from_bytes(header.fragmentation).ok_or(DatagramError::Fragment)?;
        let (_, behind) = cut("IPv4", packet, header_length)?;
        let (udp, payload) = parse_udp(behind)?;
        Ok(Datagram {
            flow: udp.flow(header.source.into(), header.destination.into()),
            traffic_class: header.type_of_service,
            flow_label: 0,
            hop_limit: header.time_to_live,
            fragmentation,
            payload,
        })
    }

    fn parse_ipv6(packet: &'a [u8]) -> Result<Self, DatagramError> {
        let (header, behind) = read::<Ipv6Header>("IPv6", packet)?;
        if header.next_header != UDP_PROTOCOL {
            return Err(DatagramError::NotUdp(header.next_header));
        }
        let (udp, payload) = parse_udp(behind)?;
        let word = header.version_class_and_label.get();
        Ok(Datagram {
            flow: udp.flow(header.source.into(), header.destination.into()),
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0x000f_ffff,
            hop_limit: header.hop_limit,
            fragmentation: Fragmentation::NONE,
            payload,
        })
    }

    /// Appends IP header, UDP header and payload to `out`, with all checksums.
    ///
    /// # Panics
    /// If the addresses of the flow are of two families.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let udp_length = (UDP_HEADER + self.payload.len()) as u16;
        match (self.flow.source, self.flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let class = self.traffic_class;
                let header = Ipv4Header::new(source, destination, self.fragmentation, udp_length)
                    .carried(class, self.hop_limit);
                out.extend_from_slice(header.as_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header::new(source, destination, udp_length).carried(
                    self.traffic_class,
                    self.flow_label,
                    self.hop_limit,
                );
                out.extend_from_slice(header.as_bytes());
            }
            _ => panic!("a flow between two address families: {}", self.flow),
        }
        let udp = UdpHeader::new(&self.flow, udp_length);
        let checksum = udp.checksum_over(&self.flow, self.payload);
        out.extend_from_slice(udp.with_checksum(checksum).as_bytes());
        out.extend_from_slice(self.payload);
    }
}

impl Ipv4Header {
    #[inline]
    pub(crate) fn new(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        fragmentation: Fragmentation,
        udp_length: u16,
    ) -> Self {
        Ipv4Header {
            version_and_length: 0x45,
            type_of_service: 0,
            total_length: udp_length.wrapping_add(IPV4_HEADER as u16).into(),
            fragmentation: fragmentation.bytes(),
            time_to_live: 0,
            protocol: UDP_PROTOCOL,
            checksum: 0.into(),
            source: source.octets(),
            destination: destination.octets(),
        }
    }

    /// Puts ones in the place of what may change on the way.
    #[inline]
    pub(crate) fn masked(mut self) -> Self {
        self.type_of_service = 0xff;
        self.time_to_live = 0xff;
        self.checksum = 0xffff.into();
        self
    }

    /// Sets what may change on the way, and the checksum.
    pub(crate) fn carried(mut self, type_of_service: u8, time_to_live: u8) -> Self {
        self.type_of_service = type_of_service;
        self.time_to_live = time_to_live;
        self.checksum = 0.into();
        self.checksum = internet_checksum(&[self.as_bytes()]).into();
        self
    }

    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.source.into(), self.destination.into())
    }

    pub(crate) fn type_of_service(&self) -> u8 {
        self.type_of_service
    }

    pub(crate) fn time_to_live(&self) -> u8 {
        self.time_to_live
    }

    pub(crate) fn has_no_options(&self) -> bool {
        self.version_and_length == 0x45
    }

    pub(crate) fn is_intact(&self) -> bool {
        internet_checksum(&[self.as_bytes()]) == 0
    }
}

impl Ipv6Header {
    const VERSION: u32 = 6 << 28;

    #[inline]
    pub(crate) fn new(source: Ipv6Addr, destination: Ipv6Addr, udp_length: u16) -> Self {
        Ipv6Header {
            version_class_and_label: Self::VERSION.into(),
            payload_length: udp_length.into(),
            next_header: UDP_PROTOCOL,
            hop_limit: 0,
            source: source.octets(),
            destination: destination.octets(),
        }
    }

    /// Puts ones in the place of what may change on the way.
    #[inline]
    pub(crate) fn masked(self) -> Self {
        self.carried(0xff, 0x000f_ffff, 0xff)
    }

    /// Sets what may change on the way.
    #[inline]
    pub(crate) fn carried(mut self, traffic_class: u8, flow_label: u32, hop_limit: u8) -> Self {
        let word = Self::VERSION | u32::from(traffic_class) << 20 | flow_label & 0x000f_ffff;
        self.version_class_and_label = word.into();
        self.hop_limit = hop_limit;
        self
    }

    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.source.into(), self.destination.into())
    }

    pub(crate) fn is_version_6(&self) -> bool {
        self.version_class_and_label.get() >> 28 == 6
    }

    pub(crate) fn traffic_class(&self) -> u8 {
        (self.version_class_and_label.get() >> 20) as u8
    }

    pub(crate) fn flow_label(&self) -> u32 {
        self.version_class_and_label.get() & 0x000f_ffff
    }

    pub(crate) fn hop_limit(&self) -> u8 {
        self.hop_limit
    }
}

impl UdpHeader {
    /// A header without checksum. `length` counts the header, too.
    #[inline]
    pub(crate) fn new(flow: &Flow, length: u16) -> Self {
        UdpHeader {
            source_port: flow.source_port.into(),
            destination_port: flow.destination_port.into(),
            length: length.into(),
            checksum: 0.into(),
        }
    }

    #[inline]
    pub(crate) fn with_checksum(mut self, checksum: u16) -> Self {
        self.checksum = checksum.into();
        self
    }

    fn checksum_over(&self, flow: &Flow, payload: &[u8]) -> u16 {
        let [length_high, length_low] = self.length.to_bytes();
        let pseudo = [0, UDP_PROTOCOL, length_high, length_low];
        let (source, destination) = (octets(flow.source), octets(flow.destination));
        let parts: [&[u8]; 5] = [&source, &destination, &pseudo, self.as_bytes(), payload];
        match internet_checksum(&parts) {
            // RFC 768: zero would mean "not computed"; its other form stands for it.
            0 => 0xffff,
            checksum => checksum,
        }
    }

    fn flow(&self, source: IpAddr, destination: IpAddr) -> Flow {
        Flow {
            source,
            destination,
            source_port: self.source_port.get(),
            destination_port: self.destination_port.get(),
        }
    }
}

/// An address padded with zeros, which no sum notices.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_compatible().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn parse_udp(bytes: &[u8]) -> Result<(&UdpHeader, &[u8]), DatagramError> {
    let (header, _) = read::<UdpHeader>("UDP", bytes)?;
    let length = usize::from(header.length.get());
    if length < UDP_HEADER {
        return Err(DatagramError::Malformed { layer: "UDP" });
    }
    let (datagram, _) = cut("UDP", bytes, length)?;
    Ok((header, &datagram[UDP_HEADER..]))
}

fn read<'a, T>(layer: &'static str, bytes: &'a [u8]) -> Result<(&'a T, &'a [u8]), DatagramError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| DatagramError::TooShort {
        layer,
        needed: size_of::<T>(),
        found: bytes.len(),
    })
}

fn cut<'a>(
    layer: &'static str,
    bytes: &'a [u8],
    length: usize,
) -> Result<(&'a [u8], &'a [u8]), DatagramError> {
    bytes
        .split_at_checked(length)
        .ok_or(DatagramError::TooShort {
            layer,
            needed: length,
            found: bytes.len(),
        })
}

/// RFC 1071. Every part but the last must be of even length.
fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u64 = words
        .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u64::from(low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
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
    fn what_is_emitted_is_parsed_again() {
        for datagram in [
            datagram("10.0.0.1", "10.0.0.2"),
            datagram("fe80::1", "ff0e::2"),
        ] {
            assert_eq!(Datagram::parse_ip(&emitted(&datagram)), Ok(datagram));
        }
    }

    #[test]
    fn a_receiver_finds_both_checksums_right() {
        let bytes = emitted(&datagram("10.0.0.1", "10.0.0.2"));
        let (ip, udp) = bytes.split_at(IPV4_HEADER);
        assert_eq!(internet_checksum(&[ip]), 0);
        let pseudo = [0, UDP_PROTOCOL, 0, udp.len() as u8];
        assert_eq!(internet_checksum(&[&ip[12..], &pseudo, udp]), 0);
    }

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_ones() {
        let checksum = |payload: [u8; 2]| {
            let datagram = Datagram {
                payload: &payload,
                ..datagram("10.0.0.1", "10.0.0.2")
            };
            let bytes = emitted(&datagram);
            [bytes[IPV4_HEADER + 6], bytes[IPV4_HEADER + 7]]
        };
        // A payload that makes up what is missing brings the sum to zero.
        let missing = checksum([0, 0]);
        assert_eq!(checksum(missing), [0xff, 0xff]);
    }

    #[test]
    fn vlan_tags_and_ethernet_padding_are_no_part_of_it() {
        let datagram = datagram("10.0.0.1", "10.0.0.2");
        let padded = [&emitted(&datagram)[..], &[0; 20]].concat();
        let plain = framed(&[0x08, 0x00], &padded);
        assert_eq!(Datagram::parse_ethernet(&plain), Ok(datagram));
        let tagged = framed(&[0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x08, 0x00], &padded);
        assert_eq!(Datagram::parse_ethernet(&tagged), Ok(datagram));
    }

    #[test]
    fn other_traffic_is_named() {
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
    fn fragments_are_refused() {
        let mut fragment = emitted(&datagram("10.0.0.1", "10.0.0.2"));
        fragment[6] = 0x20;
        assert_eq!(Datagram::parse_ip(&fragment), Err(DatagramError::Fragment));
    }

    #[test]
    fn a_datagram_that_is_cut_off_says_how_much_is_missing() {
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

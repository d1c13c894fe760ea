//! Link headers: Ethernet, Linux's "cooked" headers, loopback, none.

use super::Direction;

/// Link types of the pcap registry.
mod number {
    pub(super) const NULL: u32 = 0;
    pub(super) const ETHERNET: u32 = 1;
    /// Raw IP on some systems.
    pub(super) const OTHER_RAW: [u32; 2] = [12, 14];
    pub(super) const RAW: u32 = 101;
    pub(super) const LOOP: u32 = 108;
    pub(super) const LINUX_SLL: u32 = 113;
    pub(super) const IPV4: u32 = 228;
    pub(super) const IPV6: u32 = 229;
    pub(super) const LINUX_SLL2: u32 = 276;
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// VLAN tags: four bytes each.
const ETHERTYPES_OF_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Linux's code for frames that were sent, not received.
const SLL_OUTGOING: u8 = 4;

/// The IP packet in a frame, and the fields of its link header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network<'a> {
    /// From the IP header on.
    pub(crate) packet: &'a [u8],
    /// Its direction, if the header has it.
    pub(crate) direction: Option<Direction>,
    /// The interface, if the header has it.
    pub(crate) interface: Option<u32>,
}

/// Why there is no IP packet in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkError {
    /// It carries another protocol, or is too short.
    NotIp,
    /// The link type is not supported.
    Unknown(u32),
}

/// Finds the IP packet in a frame.
pub(crate) fn network(link: u32, frame: &[u8]) -> Result<Network<'_>, LinkError> {
    let plain = |packet| Network {
        packet,
        direction: None,
        interface: None,
    };
    let found = match link {
        number::ETHERNET => ethernet(frame).map(plain),
        number::RAW | number::IPV4 | number::IPV6 => Some(plain(frame)),
        other if number::OTHER_RAW.contains(&other) => Some(plain(frame)),
        // The values of the address family differ between systems, so the IP version is used.
        number::NULL | number::LOOP => frame.get(4..).map(plain),
        number::LINUX_SLL => cooked(frame),
        number::LINUX_SLL2 => cooked_2(frame),
        other => return Err(LinkError::Unknown(other)),
    };
    found.ok_or(LinkError::NotIp)
}

fn ethernet(frame: &[u8]) -> Option<&[u8]> {
    const ADDRESSES: usize = 12;
    let (ethertype, behind) = word(frame.get(ADDRESSES..)?)?;
    behind_tags(ethertype, behind)
}

/// Packet type, hardware type, length of the address, address, ethertype.
fn cooked(frame: &[u8]) -> Option<Network<'_>> {
    let (ethertype, behind) = word(frame.get(14..)?)?;
    Some(Network {
        packet: behind_tags(ethertype, behind)?,
        direction: Some(cooked_direction(frame[1])),
        interface: None,
    })
}

/// Ethertype, two reserved bytes, interface, hardware type, packet type, length of the address, address.
fn cooked_2(frame: &[u8]) -> Option<Network<'_>> {
    let (header, behind) = frame.split_first_chunk::<20>()?;
    let ethertype = u16::from_be_bytes([header[0], header[1]]);
    let interface = [header[4], header[5], header[6], header[7]];
    Some(Network {
        packet: behind_tags(ethertype, behind)?,
        direction: Some(cooked_direction(header[10])),
        interface: Some(u32::from_be_bytes(interface)),
    })
}

fn cooked_direction(packet_type: u8) -> Direction {
    if packet_type == SLL_OUTGOING {
        Direction::Outbound
    } else {
        Direction::Inbound
    }
}

fn behind_tags(mut ethertype: u16, mut bytes: &[u8]) -> Option<&[u8]> {
    while ETHERTYPES_OF_TAGS.contains(&ethertype) {
        (ethertype, bytes) = word(bytes.get(2..)?)?;
    }
    matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6).then_some(bytes)
}

fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, behind) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: &[u8] = &[0x45, 0, 0, 20];

    fn packet_in(link: u32, before: &[u8]) -> Result<Vec<u8>, LinkError> {
        let frame = [before, IP].concat();
        network(link, &frame).map(|network| network.packet.to_vec())
    }

    #[test]
    fn ethernet_frames_are_read_with_and_without_vlan_tags() {
        let plain = [&[0; 12][..], &[8, 0]].concat();
        assert_eq!(packet_in(number::ETHERNET, &plain).unwrap(), IP);
        let tagged = [&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
        assert_eq!(packet_in(number::ETHERNET, &tagged).unwrap(), IP);
        let arp = [&[0; 12][..], &[8, 6]].concat();
        assert_eq!(packet_in(number::ETHERNET, &arp), Err(LinkError::NotIp));
    }

    #[test]
    fn raw_ip_and_loopback_links_are_read() {
        for link in [number::RAW, number::IPV4, number::IPV6] {
            assert_eq!(packet_in(link, &[]).unwrap(), IP);
        }
        assert_eq!(packet_in(number::NULL, &[2, 0, 0, 0]).unwrap(), IP);
        assert_eq!(packet_in(number::LOOP, &[0, 0, 0, 24]).unwrap(), IP);
    }

    #[test]
    fn cooked_headers_tell_the_direction() {
        let mut header = [0; 16];
        header[1] = 4;
        header[14..].copy_from_slice(&[0x86, 0xdd]);
        let frame = [&header[..], IP].concat();
        let found = network(number::LINUX_SLL, &frame).expect("an IP packet");
        assert_eq!(found.direction, Some(Direction::Outbound));
        let mut header = [0; 20];
        header[..2].copy_from_slice(&[8, 0]);
        header[7] = 3;
        let frame = [&header[..], IP].concat();
        let found = network(number::LINUX_SLL2, &frame).expect("an IP packet");
        assert_eq!(found.direction, Some(Direction::Inbound));
        assert_eq!((found.interface, found.packet), (Some(3), IP));
    }

    #[test]
    fn cooked_frames_have_tags_and_carry_other_protocols_too() {
        let behind = |before: usize, ethertypes: &[u8]| [&[0; 20][..before], ethertypes].concat();
        let tagged = behind(14, &[0x91, 0, 0, 7, 8, 0]);
        assert_eq!(packet_in(number::LINUX_SLL, &tagged).unwrap(), IP);
        let arp = behind(14, &[8, 6]);
        assert_eq!(packet_in(number::LINUX_SLL, &arp), Err(LinkError::NotIp));
        let arp = [&[8, 6][..], &[0; 18]].concat();
        assert_eq!(packet_in(number::LINUX_SLL2, &arp), Err(LinkError::NotIp));
        let frame = [&behind(14, &[8, 0]), IP].concat();
        let found = network(number::LINUX_SLL, &frame).expect("an IP packet");
        assert_eq!(found.direction, Some(Direction::Inbound));
        assert_eq!(found.interface, None);
    }

    #[test]
    fn short_frames_and_unknown_links_contain_no_packet() {
        for link in [
            number::ETHERNET,
            number::NULL,
            number::LINUX_SLL,
            number::LINUX_SLL2,
        ] {
            assert_eq!(network(link, &[0; 3]), Err(LinkError::NotIp));
        }
        assert_eq!(network(147, IP), Err(LinkError::Unknown(147)));
    }
}

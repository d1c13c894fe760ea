//! The invariant CRC: what protects a RoCEv2 packet from end to end.
//!
//! It is the CRC-32 of Ethernet over the packet and the headers below it, with everything that
//! may change on the way replaced by ones. It covers the identification field of IPv4, which a
//! UDP socket neither chooses nor sees. But a CRC is linear, and the part of the header that a
//! receiver does not know is exactly 32 bits long: so what the packet's ICRC and the one
//! computed with a guess differ by *tells* those bits, and an intact packet shows itself by the
//! possible value they have. See [`Checker`].

mod below;
mod linear;

use std::net::IpAddr;

use below::KnownBelow;
use linear::Rewind;
use zerocopy::{Immutable, IntoBytes};

use crate::flow::{Flow, Fragmentation};
use crate::header::Bth;
use crate::ip::{IPV4_HEADER, Ipv4Header, Ipv6Header, UDP_HEADER, UdpHeader};

/// The length of the ICRC at the end of every packet.
pub const ICRC_LENGTH: usize = 4;

const BTH_LENGTH: usize = size_of::<Bth>();
const CONGESTION_BYTE: usize = 4;

/// Why a packet is not what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IcrcError {
    /// No room for a BTH and an ICRC.
    #[error("a packet of {found} bytes has no room for a BTH and an ICRC")]
    TooShort {
        /// How long the datagram is.
        found: usize,
    },
    /// Something in it was changed on the way.
    #[error("the packet ends with ICRC {found:02x?}, which does not fit its contents")]
    Mismatch {
        /// The ICRC at its end.
        found: [u8; 4],
    },
}

/// The ICRC of a packet that ends with its pad. Over IPv4 it is sent unfragmentable with the given
/// identification; IPv6 has no such field.
///
/// # Panics
/// If the addresses of the flow are of two families, or the packet is shorter than a BTH.
#[inline]
pub fn checksum(flow: &Flow, identification: u16, packet_without_icrc: &[u8]) -> [u8; 4] {
    let fragmentation = Fragmentation {
        identification,
        dont_fragment: true,
    };
    crc(flow, fragmentation, packet_without_icrc).to_le_bytes()
}

#[inline]
fn crc(flow: &Flow, fragmentation: Fragmentation, packet: &[u8]) -> u32 {
    let (base, rest) = packet
        .split_first_chunk::<BTH_LENGTH>()
        .expect("a packet starts with a BTH");
    let mut base = *base;
    // Switches set the congestion bits.
    base[CONGESTION_BYTE] = 0xff;
    let mut hasher = crc32fast::Hasher::new();
    below(flow, fragmentation, packet.len(), |bytes| {
        hasher.update(bytes);
    });
    hasher.update(&base);
    hasher.update(rest);
    hasher.finalize()
}

/// Hands out the headers below a packet, with ones for what may change on the way.
fn below(
    flow: &Flow,
    fragmentation: Fragmentation,
    packet_length: usize,
    mut take: impl FnMut(&[u8]),
) {
    // UDP cannot carry more than its length field can say.
    let udp_length = (UDP_HEADER + packet_length + ICRC_LENGTH) as u16;
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4Header::new(source, destination, fragmentation, udp_length);
            take(Below::new(ip.masked(), flow, udp_length).as_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Header::new(source, destination, udp_length);
            take(Below::new(ip.masked(), flow, udp_length).as_bytes());
        }
        _ => panic!("a flow between two address families: {flow}"),
    }
}

/// The headers below a packet in one piece.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Below<Ip> {
    /// In place of the local routing header that InfiniBand has and Ethernet has not.
    missing_lrh: [u8; 8],
    ip: Ip,
    udp: UdpHeader,
}

impl<Ip> Below<Ip> {
    fn new(ip: Ip, flow: &Flow, udp_length: u16) -> Self {
        Below {
            missing_lrh: [0xff; 8],
            ip,
            udp: UdpHeader::new(flow, udp_length).with_checksum(0xffff),
        }
    }
}

/// Computes the ICRCs of many packets: what [`checksum`] gives, only faster.
#[derive(Debug, Clone, Default)]
pub struct Sealer {
    known: KnownBelow,
}

impl Sealer {
    /// A sealer that has seen no flow yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ICRC of a packet that ends with its pad; see [`checksum`].
    ///
    /// # Panics
    /// As [`checksum`] does.
    #[inline]
    pub fn seal(&mut self, flow: &Flow, identification: u16, packet: &[u8]) -> [u8; 4] {
        self.known.crc(flow, identification, packet).to_le_bytes()
    }
}

/// Verifies packets, and recovers the bits of the IPv4 header that a socket does not show.
///
/// What it needs for that is a table per packet length. The tables it keeps are bounded:
/// a length whose place is taken replaces what was there.
#[derive(Debug)]
pub struct Checker {
    tables: [Option<Box<Rewind>>; TABLES],
    known: KnownBelow,
}

/// A program uses few packet lengths: full, short, acknowledgement. The number is prime, so
/// lengths that differ by a power of two do not meet in one place.
const TABLES: usize = 61;

/// What follows the fragmentation word in the IPv4 header, and the UDP header.
const AFTER_FRAGMENTATION: usize = IPV4_HEADER - 8 + UDP_HEADER;

impl Checker {
    /// A checker without any table yet.
    pub fn new() -> Self {
        Checker {
            tables: [const { None }; TABLES],
            known: KnownBelow::default(),
        }
    }

    /// Verifies a UDP payload that ends with its ICRC.
    ///
    /// Over IPv4 any identification is accepted, and the packet may or may not be fragmentable:
    /// of 2^15 damaged packets one slips through, if the UDP checksum has not caught it.
    /// Over IPv6 nothing is unknown, and the whole strength of the CRC is left.
    ///
    /// # Panics
    /// If the addresses of the flow are of two families.
    #[inline]
    pub fn check(&mut self, flow: &Flow, datagram: &[u8]) -> Result<Fragmentation, IcrcError> {
        let Some((packet, &found)) = datagram
            .split_last_chunk::<ICRC_LENGTH>()
            .filter(|(packet, _)| packet.len() >= BTH_LENGTH)
        else {
            return Err(IcrcError::TooShort {
                found: datagram.len(),
            });
        };
        let difference = self.known.crc(flow, 0, packet) ^ u32::from_le_bytes(found);
        if difference == 0 {
            return Ok(Fragmentation::NONE);
        }
        let recovered = match flow.source {
            IpAddr::V4(_) => self.recover(difference, packet.len()),
            IpAddr::V6(_) => None,
        };
        recovered.ok_or(IcrcError::Mismatch { found })
    }

    fn recover(&mut self, difference: u32, packet_length: usize) -> Option<Fragmentation> {
        let bytes_after = AFTER_FRAGMENTATION + packet_length;
        // Packet lengths are multiples of four.
        let slot = &mut self.tables[packet_length / 4 % TABLES];
        let table = match slot {
            Some(table) if table.bytes_after() == bytes_after => table,
            _ => slot.insert(Box::new(Rewind::new(bytes_after))),
        };
        let changed = u32::from_le_bytes(Fragmentation::NONE.bytes()) ^ table.rewind(difference);
        Fragmentation::from_bytes(changed.to_le_bytes())
    }
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

//! The invariant CRC (ICRC), which protects a RoCEv2 packet from end to end.
//!
//! The ICRC is the CRC-32 of Ethernet over the packet and its lower headers (IP and UDP). Fields
//! that may change on the path count as ones.
//!
//! The ICRC covers the IPv4 identification, which a UDP socket neither chooses nor receives. A CRC
//! is linear, and the IPv4 fields that the receiver does not know are exactly 32 bits long. The
//! receiver computes the CRC with an assumed value for these bits. The difference between this CRC
//! and the received one determines the real value. A packet is accepted if that value is a valid
//! one. See [`IcrcChecker`].

mod inverse_crc;
mod lower_headers;

use std::net::IpAddr;

use inverse_crc::Rewind;
use lower_headers::LowerHeaderCache;
use zerocopy::{Immutable, IntoBytes};

use crate::flow::{Flow, Fragmentation};
use crate::header::Bth;
use crate::ip::{IPV4_HEADER, Ipv4Header, Ipv6Header, UDP_HEADER, UdpHeader};

/// CA17-22: every packet ends with an ICRC, which covers the IP header, the UDP header and the packet. Fields
/// that may change on the path count as ones. This is its length.
pub const ICRC_LENGTH: usize = 4;

const BTH_LENGTH: usize = size_of::<Bth>();
const CONGESTION_BYTE: usize = 4;

/// Why a packet is not intact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IcrcError {
    /// The packet is shorter than a BTH and an ICRC.
    #[error("the packet has {found} bytes, less than a BTH and an ICRC")]
    TooShort {
        /// The length of the datagram.
        found: usize,
    },
    /// The ICRC does not match the contents.
    #[error("the ICRC {found:02x?} does not match the packet")]
    Mismatch {
        /// The received ICRC.
        found: [u8; 4],
    },
}

/// The ICRC of a packet. `packet_without_icrc` ends with the pad. Over IPv4 the packet has the
/// given identification and the don't-fragment flag; IPv6 has no such fields.
///
/// # Panics
/// If source and destination have different address families, or if the packet is shorter than a
/// BTH.
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
    // Switches may set the congestion bits, so the ICRC does not cover them.
    base[CONGESTION_BYTE] = 0xff;
    let mut hasher = crc32fast::Hasher::new();
    with_lower_headers(flow, fragmentation, packet.len(), |bytes| {
        hasher.update(bytes);
    });
    hasher.update(&base);
    hasher.update(rest);
    hasher.finalize()
}

/// Passes the lower headers of a packet to `take`. Fields that may change on the path are ones.
fn with_lower_headers(
    flow: &Flow,
    fragmentation: Fragmentation,
    packet_length: usize,
    mut take: impl FnMut(&[u8]),
) {
    // A UDP datagram is at most 65,535 bytes long, so the cast is lossless.
    let udp_length = (UDP_HEADER + packet_length + ICRC_LENGTH) as u16;
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4Header::new(source, destination, fragmentation, udp_length);
            take(LowerHeaders::new(ip.masked(), flow, udp_length).as_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Header::new(source, destination, udp_length);
            take(LowerHeaders::new(ip.masked(), flow, udp_length).as_bytes());
        }
        _ => panic!("source and destination have different address families: {flow}"),
    }
}

/// The lower headers of a packet, contiguous.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct LowerHeaders<Ip> {
    /// Stands for the local routing header (LRH) of InfiniBand, which Ethernet does not have.
    missing_lrh: [u8; 8],
    ip: Ip,
    udp: UdpHeader,
}

impl<Ip> LowerHeaders<Ip> {
    fn new(ip: Ip, flow: &Flow, udp_length: u16) -> Self {
        LowerHeaders {
            missing_lrh: [0xff; 8],
            ip,
            udp: UdpHeader::new(flow, udp_length).with_checksum(0xffff),
        }
    }
}

/// Computes the ICRCs of many packets. Gives the result of [`checksum`], but faster.
#[derive(Debug, Clone, Default)]
pub struct IcrcGenerator {
    cache: LowerHeaderCache,
}

impl IcrcGenerator {
    /// A generator with an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ICRC of a packet that ends with its pad. See [`checksum`].
    ///
    /// # Panics
    /// As [`checksum`] does.
    #[inline]
    pub fn generate(&mut self, flow: &Flow, identification: u16, packet: &[u8]) -> [u8; 4] {
        self.cache.crc(flow, identification, packet).to_le_bytes()
    }

    /// Fills in the ICRC of the packets of one send: `segment_size` bytes each, the last one perhaps fewer, with
    /// the place of the ICRC at the end. Packet *i* gets the ICRC for the identification *i*.
    ///
    /// # Panics
    /// As [`checksum`] does.
    pub fn fill(&mut self, flow: &Flow, segment_size: usize, packets: &mut [u8]) {
        for (index, packet) in packets.chunks_mut(segment_size).enumerate() {
            if let Some((packet, icrc)) = packet.split_last_chunk_mut::<ICRC_LENGTH>() {
                *icrc = self.generate(flow, index as u16, packet);
            }
        }
    }
}

/// Verifies packets, and recovers the IPv4 fragmentation fields that a socket does not report.
///
/// This needs one table per packet length. The number of tables is bounded: two lengths with the
/// same slot replace each other.
#[derive(Debug)]
pub struct IcrcChecker {
    tables: [Option<Box<Rewind>>; TABLES],
    cache: LowerHeaderCache,
}

/// Number of slots for tables. A program uses few packet lengths: full, short, acknowledgement. The
/// number is prime, so lengths that differ by a power of two have different slots.
const TABLES: usize = 61;

/// The length of the IPv4 header after the fragmentation fields, and of the UDP header.
const AFTER_FRAGMENTATION: usize = IPV4_HEADER - 8 + UDP_HEADER;

impl IcrcChecker {
    /// A checker with no tables.
    pub fn new() -> Self {
        IcrcChecker {
            tables: [const { None }; TABLES],
            cache: LowerHeaderCache::default(),
        }
    }

    /// Verifies a UDP payload that ends with its ICRC.
    ///
    /// Over IPv4 any identification and both values of the don't-fragment flag are accepted.
    /// Therefore one damaged packet in 2^15 is accepted if the UDP checksum does not detect it.
    /// Over IPv6 all covered fields are known, and the full strength of the CRC remains.
    ///
    /// # Panics
    /// If source and destination have different address families.
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
        let difference = self.cache.crc(flow, 0, packet) ^ u32::from_le_bytes(found);
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

impl Default for IcrcChecker {
    fn default() -> Self {
        Self::new()
    }
}

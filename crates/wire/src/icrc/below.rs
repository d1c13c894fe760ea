//! The CRC of the headers below a packet, remembered.
//!
//! Packets of one flow and one length have the same headers below them, but for the IPv4
//! identification. So their part of the CRC is computed once and not for every packet; and because
//! a CRC is linear, the identification is put in afterwards.

use crc32fast::Hasher;

use super::{BTH_LENGTH, CONGESTION_BYTE, Flow, Fragmentation, below, linear};

/// How many flows and lengths are remembered; prime, so that usual lengths do not meet.
const SLOTS: usize = 13;

/// What follows the identification's high byte in the headers: its low byte, the rest of IPv4, UDP.
const AFTER_IDENTIFICATION: usize = 15 + 8;

static HIGH_BYTE: [u32; 256] = linear::shares(AFTER_IDENTIFICATION);
static LOW_BYTE: [u32; 256] = linear::shares(AFTER_IDENTIFICATION - 1);

#[derive(Debug, Clone, Copy)]
struct Known {
    flow: Flow,
    length: usize,
    crc: u32,
    /// What ones instead of zeros in the congestion byte add to the CRC, once it was needed.
    congestion: Option<u32>,
}

/// Remembers the CRC of lower headers.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownBelow {
    known: [Option<Known>; SLOTS],
}

impl KnownBelow {
    /// The CRC of a packet that ends with its pad, and of what lies below it.
    #[inline]
    pub(super) fn crc(&mut self, flow: &Flow, identification: u16, packet: &[u8]) -> u32 {
        let (base, rest) = packet
            .split_first_chunk::<BTH_LENGTH>()
            .expect("a packet starts with a BTH");
        let identification = match flow.source.is_ipv4() {
            true => share_of(identification),
            false => 0,
        };
        let slot = &mut self.known[packet.len() / 4 % SLOTS];
        match slot {
            Some(known) if known.length == packet.len() && known.flow == *flow => {
                // Switches rarely set it, and a packet in one piece takes half the time.
                if base[CONGESTION_BYTE] == 0 {
                    let mut hasher = Hasher::new_with_initial(known.crc ^ identification);
                    hasher.update(packet);
                    return hasher.finalize() ^ known.congestion();
                }
                packet_crc(known.crc ^ identification, *base, rest)
            }
            _ => {
                let crc = compute(flow, packet.len());
                *slot = Some(Known {
                    flow: *flow,
                    length: packet.len(),
                    crc,
                    congestion: None,
                });
                packet_crc(crc ^ identification, *base, rest)
            }
        }
    }
}

impl Known {
    /// Only needed for a length that comes again, so not computed for all of them.
    #[inline]
    fn congestion(&mut self) -> u32 {
        let bytes_after = self.length - CONGESTION_BYTE - 1;
        *self
            .congestion
            .get_or_insert_with(|| linear::share(0xff, bytes_after))
    }
}

/// Continues a CRC over a packet whose congestion byte counts as ones.
fn packet_crc(below: u32, mut base: [u8; BTH_LENGTH], rest: &[u8]) -> u32 {
    base[CONGESTION_BYTE] = 0xff;
    let mut hasher = Hasher::new_with_initial(below);
    hasher.update(&base);
    hasher.update(rest);
    hasher.finalize()
}

fn compute(flow: &Flow, length: usize) -> u32 {
    let mut hasher = Hasher::new();
    below(flow, Fragmentation::NONE, length, |bytes| {
        hasher.update(bytes);
    });
    hasher.finalize()
}

#[inline]
fn share_of(identification: u16) -> u32 {
    let [high, low] = identification.to_be_bytes();
    HIGH_BYTE[usize::from(high)] ^ LOW_BYTE[usize::from(low)]
}

#[cfg(test)]
mod tests {
    use super::super::checksum;
    use super::*;

    #[test]
    fn a_packet_that_comes_again_has_the_same_crc_whatever_its_congestion_bits() {
        let flow = Flow {
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            source_port: 49_152,
            destination_port: 4791,
        };
        let mut known = KnownBelow::default();
        for length in [12, 16, 20, 28, 80, 1040, 4112] {
            for (identification, congestion) in [(0, 0), (1, 0), (2, 0x80), (3, 0), (400, 0xff)] {
                let mut packet: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                packet[CONGESTION_BYTE] = congestion;
                let crc = known.crc(&flow, identification, &packet);
                assert_eq!(crc.to_le_bytes(), checksum(&flow, identification, &packet));
            }
        }
    }
}

//! A cache for the CRC of the lower headers.
//!
//! Packets of one flow and one length have equal lower headers, except for the IPv4 identification.
//! Their CRC is computed once. A CRC is linear, so the contribution of the identification is added
//! afterwards.

use crc32fast::Hasher;

use super::{BTH_LENGTH, CONGESTION_BYTE, Flow, Fragmentation, inverse_crc, with_lower_headers};

/// Number of cached flows and lengths. It is prime, so common lengths have different slots.
const SLOTS: usize = 13;

/// The length of the headers after the high byte of the identification: its low byte, the rest of
/// the IPv4 header, the UDP header.
const AFTER_IDENTIFICATION: usize = 15 + 8;

static HIGH_BYTE: [u32; 256] = inverse_crc::contributions(AFTER_IDENTIFICATION);
static LOW_BYTE: [u32; 256] = inverse_crc::contributions(AFTER_IDENTIFICATION - 1);

#[derive(Debug, Clone, Copy)]
struct CachedCrc {
    flow: Flow,
    length: usize,
    crc: u32,
    /// The contribution of ones instead of zeros in the congestion byte. Computed when first
    /// needed.
    congestion: Option<u32>,
}

/// Caches the CRC of lower headers by flow and packet length.
#[derive(Debug, Clone, Default)]
pub(super) struct LowerHeaderCache {
    entries: [Option<CachedCrc>; SLOTS],
}

impl LowerHeaderCache {
    /// The CRC of the lower headers and of a packet that ends with its pad.
    #[inline]
    pub(super) fn crc(&mut self, flow: &Flow, identification: u16, packet: &[u8]) -> u32 {
        let (base, rest) = packet
            .split_first_chunk::<BTH_LENGTH>()
            .expect("a packet starts with a BTH");
        let identification = if flow.source.is_ipv4() {
            contribution_of(identification)
        } else {
            0
        };
        let slot = &mut self.entries[packet.len() / 4 % SLOTS];
        match slot {
            Some(cached) if cached.length == packet.len() && cached.flow == *flow => {
                // The common case: switches rarely set this byte, and hashing the packet as one
                // slice takes half the time.
                if base[CONGESTION_BYTE] == 0 {
                    let mut hasher = Hasher::new_with_initial(cached.crc ^ identification);
                    hasher.update(packet);
                    return hasher.finalize() ^ cached.congestion();
                }
                packet_crc(cached.crc ^ identification, *base, rest)
            }
            _ => {
                let crc = compute(flow, packet.len());
                *slot = Some(CachedCrc {
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

impl CachedCrc {
    /// Needed only when an entry is used again, so not computed with the entry.
    #[inline]
    fn congestion(&mut self) -> u32 {
        let bytes_after = self.length - CONGESTION_BYTE - 1;
        *self
            .congestion
            .get_or_insert_with(|| inverse_crc::contribution(0xff, bytes_after))
    }
}

/// Continues the CRC of the lower headers over a packet. The congestion byte counts as ones.
fn packet_crc(lower_headers: u32, mut base: [u8; BTH_LENGTH], rest: &[u8]) -> u32 {
    base[CONGESTION_BYTE] = 0xff;
    let mut hasher = Hasher::new_with_initial(lower_headers);
    hasher.update(&base);
    hasher.update(rest);
    hasher.finalize()
}

fn compute(flow: &Flow, length: usize) -> u32 {
    let mut hasher = Hasher::new();
    with_lower_headers(flow, Fragmentation::NONE, length, |bytes| {
        hasher.update(bytes);
    });
    hasher.finalize()
}

#[inline]
fn contribution_of(identification: u16) -> u32 {
    let [high, low] = identification.to_be_bytes();
    HIGH_BYTE[usize::from(high)] ^ LOW_BYTE[usize::from(low)]
}

#[cfg(test)]
mod tests {
    use super::super::checksum;
    use super::*;

    #[test]
    fn cached_crc_equals_the_uncached_one_for_any_congestion_bits() {
        let flow = Flow {
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            source_port: 49_152,
            destination_port: 4791,
        };
        let mut cache = LowerHeaderCache::default();
        for length in [12, 16, 20, 28, 80, 1040, 4112] {
            for (identification, congestion) in [(0, 0), (1, 0), (2, 0x80), (3, 0), (400, 0xff)] {
                let mut packet: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                packet[CONGESTION_BYTE] = congestion;
                let crc = cache.crc(&flow, identification, &packet);
                assert_eq!(crc.to_le_bytes(), checksum(&flow, identification, &packet));
            }
        }
    }
}

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
        let below = self.lookup(flow, packet.len());
        let below = match flow.source.is_ipv4() {
            true => below ^ share_of(identification),
            false => below,
        };
        let mut base = *base;
        base[CONGESTION_BYTE] = 0xff;
        let mut hasher = Hasher::new_with_initial(below);
        hasher.update(&base);
        hasher.update(rest);
        hasher.finalize()
    }

    #[inline]
    fn lookup(&mut self, flow: &Flow, length: usize) -> u32 {
        let slot = &mut self.known[length / 4 % SLOTS];
        match slot {
            Some(known) if known.length == length && known.flow == *flow => known.crc,
            _ => {
                let crc = compute(flow, length);
                *slot = Some(Known {
                    flow: *flow,
                    length,
                    crc,
                });
                crc
            }
        }
    }
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

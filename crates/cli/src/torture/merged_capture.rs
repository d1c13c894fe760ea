//! Joins the captures of several processes, ordered by time.
//!
//! `roci explain` tells a retransmission from a packet that was captured at both ends by the order of the packets, so
//! it is not enough to put one file after the other.

/// The block type of a packet.
const PACKET: u32 = 6;
/// Block type and block length.
const BLOCK_HEADER: usize = 8;

/// One capture with the packets of all of them. Our own captures have one interface and the same units in each
/// section, so the first section can have the packets of the others.
pub(super) fn merge(captures: &[Vec<u8>]) -> Vec<u8> {
    let mut beginning: Vec<u8> = Vec::new();
    let mut packets: Vec<(u64, &[u8])> = Vec::new();
    for capture in captures {
        let is_first = beginning.is_empty();
        let mut in_beginning = true;
        for block in blocks(capture) {
            match time(block) {
                Some(time) => {
                    in_beginning = false;
                    packets.push((time, block));
                }
                None if is_first && in_beginning => beginning.extend(block),
                None => {}
            }
        }
    }
    // Packets of the same time keep their order.
    packets.sort_by_key(|(time, _)| *time);
    packets
        .into_iter()
        .for_each(|(_, block)| beginning.extend(block));
    beginning
}

/// The complete blocks of a capture.
fn blocks(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = number(rest, 4)? as usize;
        if length < BLOCK_HEADER || length > rest.len() {
            return None;
        }
        let (block, behind) = rest.split_at(length);
        rest = behind;
        Some(block)
    })
}

/// The time of a packet; `None` for another block.
fn time(block: &[u8]) -> Option<u64> {
    if number(block, 0)? != PACKET {
        return None;
    }
    let (high, low) = (number(block, 12)?, number(block, 16)?);
    Some(u64::from(high) << 32 | u64::from(low))
}

/// Captures of this machine have its byte order.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, time: u32, mark: u32) -> Vec<u8> {
        let numbers = [kind, 28, 0, 0, time, mark, 28];
        numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect()
    }

    #[test]
    fn packets_are_ordered_by_time_behind_one_beginning() {
        let (header, interface) = (block(0x0a0d_0d0a, 0, 0), block(1, 0, 0));
        let capture = |times: [u32; 2], mark| {
            let packets = times.map(|time| block(PACKET, time, mark)).concat();
            [header.clone(), interface.clone(), packets].concat()
        };
        let mut cut = capture([2, 3], 9);
        cut.extend(&block(PACKET, 4, 9)[..20]);
        let merged = merge(&[capture([1, 5], 7), cut]);
        let packets =
            [(1, 7), (2, 9), (3, 9), (5, 7)].map(|(time, mark)| block(PACKET, time, mark));
        assert_eq!(merged, [header, interface, packets.concat()].concat());
    }
}

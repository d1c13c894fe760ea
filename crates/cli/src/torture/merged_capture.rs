//! Joins the captures of several processes, ordered by time.
//!
//! `roci explain` tells a retransmission from a packet that was captured at both ends by the order of the packets, so
//! it is not enough to put one file after the other.

/// The block type of a packet.
const PACKET: u32 = 6;
/// The block types of the beginning of a section.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
/// Block type and block length.
const BLOCK_HEADER: usize = 8;

/// One capture with the blocks of all of them. A section of a capture names its process, so it begins again wherever
/// packets of another process are between its own.
pub(super) fn merge(captures: &[Vec<u8>]) -> Vec<u8> {
    let mut sections: Vec<Vec<u8>> = Vec::new();
    let mut packets: Vec<(u64, usize, &[u8])> = Vec::new();
    for (place, capture) in captures.iter().enumerate() {
        let mut section = Vec::new();
        let mut last = 0;
        for block in blocks(capture) {
            match (number(block, 0), time(block)) {
                (Some(SECTION | INTERFACE), _) => {
                    // A file that was continued has another section with the same content.
                    if packets.last().is_none_or(|packet| packet.1 != place) {
                        section.extend(block);
                    }
                }
                (_, time) => {
                    last = time.unwrap_or(last);
                    packets.push((last, place, block));
                }
            }
        }
        sections.push(section);
    }
    // Blocks of the same time keep their order.
    packets.sort_by_key(|(time, _, _)| *time);
    let mut merged = Vec::new();
    let mut current = None;
    if packets.is_empty() {
        merged.extend(sections.concat());
    }
    for (_, place, block) in packets {
        if current != Some(place) {
            current = Some(place);
            merged.extend(&sections[place]);
        }
        merged.extend(block);
    }
    merged
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
    fn packets_are_ordered_by_time_behind_the_beginning_of_their_section() {
        let beginning = |mark| [block(SECTION, 0, mark), block(INTERFACE, 0, mark)].concat();
        let capture = |times: [u32; 2], mark| {
            let packets = times.map(|time| block(PACKET, time, mark)).concat();
            [beginning(mark), packets].concat()
        };
        let mut cut = capture([2, 3], 9);
        cut.extend(&block(PACKET, 4, 9)[..20]);
        let merged = merge(&[capture([1, 5], 7), cut]);
        let packet = |time, mark| block(PACKET, time, mark);
        let expected = [
            [beginning(7), packet(1, 7)].concat(),
            [beginning(9), packet(2, 9), packet(3, 9)].concat(),
            [beginning(7), packet(5, 7)].concat(),
        ];
        assert_eq!(merged, expected.concat());
    }
}

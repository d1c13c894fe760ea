//! The packets that a responder holds behind a missing one: a list at the end of an acknowledgement.
//!
//! The specification has no such list. A responder appends it only for a requester that is known to understand it: see
//! [`extension`](crate::extension). The list lies between the AETH and the ICRC:
//!
//! ```text
//!  BTH | AETH | first, count | first, count | ... | ICRC
//! ```
//!
//! Each range tells how many packets are held, and how far the first of them is from the missing one, whose PSN
//! is that of a NAK, or follows that of another acknowledgement.

use std::fmt;
use std::ops::Range;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The largest number of ranges. The list then has 256 bytes, which is the smallest path MTU.
pub const MAX_RANGES: usize = 64;

/// The length of the longest list.
pub const MAX_LENGTH: usize = MAX_RANGES * size_of::<Entry>();

/// One range on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    /// The distance of the first packet from the missing one.
    first: U16,
    count: U16,
}
const _: () = assert!(size_of::<Entry>() == 4);

/// The packets that a responder holds: ranges of distances from the missing packet, in ascending order, with a gap before each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HeldPackets(Vec<Range<u32>>);

/// A list that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an acknowledgement ends in a list of packets that is not one")]
pub struct BadHeldPackets;

impl HeldPackets {
    /// The first of these ranges, as many as a list has room for.
    ///
    /// # Panics
    /// If the ranges are empty, touch each other, are not in order, or lie beyond 2^16.
    pub fn new(ranges: impl IntoIterator<Item = Range<u32>>) -> Self {
        let ranges: Vec<Range<u32>> = ranges.into_iter().take(MAX_RANGES).collect();
        let list = Self(ranges);
        assert!(
            list.is_valid(),
            "{list} is ascending, with gaps, below 2^16"
        );
        list
    }

    /// Parses the bytes behind the AETH.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadHeldPackets> {
        let entries = <[Entry]>::ref_from_bytes(bytes).map_err(|_| BadHeldPackets)?;
        let range = |entry: &Entry| {
            let first = u32::from(entry.first.get());
            first..first + u32::from(entry.count.get())
        };
        let list = Self(entries.iter().map(range).collect());
        let fits = entries.len() <= MAX_RANGES && list.is_valid();
        fits.then_some(list).ok_or(BadHeldPackets)
    }

    fn is_valid(&self) -> bool {
        let mut end = 0;
        self.0.iter().all(|range| {
            let has_gap = range.start > end && range.start <= u32::from(u16::MAX);
            let count = range.end.saturating_sub(range.start);
            end = range.end;
            has_gap && (1..=u32::from(u16::MAX)).contains(&count)
        })
    }

    /// The ranges, as distances from the missing packet.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.len() * size_of::<Entry>()
    }

    /// Writes each part of the list with `write`.
    pub fn emit(&self, mut write: impl FnMut(&[u8])) {
        for range in &self.0 {
            let entry = Entry {
                first: (range.start as u16).into(),
                count: ((range.end - range.start) as u16).into(),
            };
            write(entry.as_bytes());
        }
    }
}

impl fmt::Display for HeldPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match range.end.saturating_sub(range.start) {
                1 => write!(f, "{comma}+{}", range.start)?,
                _ => write!(f, "{comma}+{}-{}", range.start, range.end.saturating_sub(1))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(list: &HeldPackets) -> Vec<u8> {
        let mut bytes = Vec::new();
        list.emit(|part| bytes.extend_from_slice(part));
        bytes
    }

    #[test]
    fn list_is_emitted_big_endian_and_shown_as_distances() {
        let list = HeldPackets::new([1..3, 0x102..0x103]);
        assert_eq!(bytes(&list), [0, 1, 0, 2, 1, 2, 0, 1]);
        assert_eq!(list.length(), 8);
        assert_eq!(list.to_string(), "+1-2,+258");
    }

    #[test]
    fn longer_list_is_cut() {
        let list = HeldPackets::new((0..100).map(|index| 2 * index + 1..2 * index + 2));
        assert_eq!(list.ranges().len(), MAX_RANGES);
        assert_eq!(list.length(), MAX_LENGTH);
        assert_eq!(HeldPackets::parse(&bytes(&list)), Ok(list));
    }

    #[test]
    fn list_that_contradicts_itself_is_rejected() {
        let contradictions: [&[u8]; 6] = [
            &[0, 1, 0],
            // The missing packet is held.
            &[0, 0, 0, 1],
            // None is held.
            &[0, 1, 0, 0],
            // Two ranges touch, overlap, or are not in order.
            &[0, 1, 0, 1, 0, 2, 0, 1],
            &[0, 1, 0, 5, 0, 3, 0, 9],
            &[0, 9, 0, 1, 0, 3, 0, 1],
        ];
        for bytes in contradictions {
            assert_eq!(HeldPackets::parse(bytes), Err(BadHeldPackets), "{bytes:?}");
        }
        let too_long = [0; MAX_LENGTH + 4];
        assert_eq!(HeldPackets::parse(&too_long), Err(BadHeldPackets));
    }
}

//! Number blocks: a member's part of the queue pair numbers.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use wire::Qpn;

/// How many bits a queue pair number has.
const NUMBER_BITS: u32 = 24;

/// A communication id belongs to the block in which its highest 24 bits lie.
const COMMUNICATION_SHIFT: u32 = 32 - NUMBER_BITS;

/// A block of `2^bits` queue pair numbers that begins at a multiple of its size.
///
/// The lowest and the highest 2,048 numbers belong to no block: the lowest contain queue pair 1,
/// which all members serve, and the highest the destination of multicast packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberBlock {
    first: u32,
    bits: u8,
}

impl NumberBlock {
    /// The smallest block has `2^11` numbers.
    pub const LEAST_BITS: u32 = 11;
    /// The largest has `2^18`.
    pub const MAX_BITS: u32 = 18;

    /// The numbers that blocks are allocated from.
    pub(super) const SPACE: Range<u32> =
        1 << Self::LEAST_BITS..(1 << NUMBER_BITS) - (1 << Self::LEAST_BITS);

    /// The block of `2^bits` numbers from `first` on, if it is valid.
    #[must_use]
    pub const fn new(first: u32, bits: u32) -> Option<Self> {
        if bits < Self::LEAST_BITS || bits > Self::MAX_BITS || !first.is_multiple_of(1 << bits) {
            return None;
        }
        if first < Self::SPACE.start || first > Self::SPACE.end - (1 << bits) {
            return None;
        }
        Some(Self {
            first,
            bits: bits as u8,
        })
    }

    /// Its lowest number.
    #[must_use]
    pub const fn first(self) -> u32 {
        self.first
    }

    /// How many low bits of a number its owner chooses.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits as u32
    }

    /// How many of the highest bits all its numbers have in common, and their value. Its
    /// communication ids have the same highest bits.
    #[must_use]
    pub const fn prefix(self) -> (u32, u32) {
        (NUMBER_BITS - self.bits(), self.first >> self.bits)
    }

    /// The numbers its queue pairs may have.
    #[must_use]
    pub const fn qpn_range(self) -> Range<u32> {
        self.first..self.first + (1 << self.bits)
    }

    /// Whether it contains a queue pair number.
    #[inline]
    #[must_use]
    pub const fn contains(self, qpn: Qpn) -> bool {
        qpn.value() >> self.bits == self.first >> self.bits
    }

    /// The communication ids that its owner may choose.
    #[must_use]
    pub const fn communication_ids(self) -> Range<u32> {
        let Range { start, end } = self.qpn_range();
        start << COMMUNICATION_SHIFT..end << COMMUNICATION_SHIFT
    }

    /// Whether its owner chose this communication id.
    #[must_use]
    pub const fn contains_communication(self, id: u32) -> bool {
        self.contains(communication_number(id))
    }

    /// Whether a queue pair number is shared by all members and belongs to none.
    #[inline]
    #[must_use]
    pub const fn is_shared(qpn: Qpn) -> bool {
        qpn.value() < Self::SPACE.start || qpn.value() >= Self::SPACE.end
    }

    /// The smallest block that contains a number; `None` if all members share the number.
    pub(super) const fn smallest_with(qpn: Qpn) -> Option<Self> {
        let bits = Self::LEAST_BITS;
        Self::new(qpn.value() >> bits << bits, bits)
    }

    /// Its `index`-th part of `2^bits` numbers; `None` if there is no such part.
    #[must_use]
    pub const fn part(self, index: u32, bits: u32) -> Option<Self> {
        if bits >= self.bits() || index >= 1 << (self.bits() - bits) {
            return None;
        }
        Self::new(self.first + (index << bits), bits)
    }

    /// Whether another block is a part of this one.
    #[must_use]
    pub const fn encloses(self, other: Self) -> bool {
        other.bits < self.bits && self.contains(Qpn::new(other.first))
    }

    pub(super) const fn overlaps(self, other: Self) -> bool {
        let (ours, theirs) = (self.qpn_range(), other.qpn_range());
        ours.start < theirs.end && theirs.start < ours.end
    }
}

/// The number whose owner also owns a communication id.
pub(super) const fn communication_number(id: u32) -> Qpn {
    Qpn::new(id >> COMMUNICATION_SHIFT)
}

/// The form in the registry: the lowest number in hexadecimal, `-`, and the length of the prefix.
impl fmt::Display for NumberBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}-{}", self.first, self.prefix().0)
    }
}

/// The text is not a block.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no block of queue pair numbers: the lowest in hexadecimal, `-`, and the length of the prefix"
)]
pub struct NotABlock;

impl FromStr for NumberBlock {
    type Err = NotABlock;

    fn from_str(text: &str) -> Result<Self, NotABlock> {
        let (first, prefix) = text.split_once('-').ok_or(NotABlock)?;
        let first = u32::from_str_radix(first, 16).map_err(|_| NotABlock)?;
        let prefix: u32 = prefix.parse().map_err(|_| NotABlock)?;
        let bits = NUMBER_BITS.checked_sub(prefix).ok_or(NotABlock)?;
        Self::new(first, bits).ok_or(NotABlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_numbers_are_in_no_block() {
        for qpn in [Qpn::SMI, Qpn::GSI, Qpn::MULTICAST, Qpn::new(0x7ff)] {
            assert!(NumberBlock::is_shared(qpn), "{qpn}");
            assert_eq!(NumberBlock::smallest_with(qpn), None);
        }
        for bits in 11..=18 {
            assert_eq!(NumberBlock::new(0, bits), None);
            assert_eq!(NumberBlock::new((1 << 24) - (1 << bits), bits), None);
        }
        assert!(!NumberBlock::is_shared(Qpn::new(0x800)));
        assert!(!NumberBlock::is_shared(Qpn::new(0xff_f7ff)));
    }

    #[test]
    fn only_aligned_blocks_of_allowed_sizes_exist() {
        for (first, bits) in [(0x800, 11), (0xff_f000, 11), (0x4_0000, 18)] {
            let block = NumberBlock::new(first, bits).unwrap();
            assert_eq!((block.first(), block.bits()), (first, bits));
            assert_eq!(block.to_string().parse(), Ok(block));
        }
        for (first, bits) in [(0x400, 10), (0x8_0000, 19), (0x1800, 12), (1 << 24, 11)] {
            assert_eq!(NumberBlock::new(first, bits), None, "{first:x} {bits}");
        }
        for text in ["", "800", "800-", "-13", "800-99", "800-5", "zz-13"] {
            assert_eq!(text.parse::<NumberBlock>(), Err(NotABlock), "{text}");
        }
    }

    #[test]
    fn a_block_consists_of_its_parts() {
        let whole = NumberBlock::new(0x8_0000, 18).unwrap();
        let parts: Vec<_> = (0..8).map(|at| whole.part(at, 15).unwrap()).collect();
        assert!(parts.iter().all(|part| whole.encloses(*part)));
        let ends = parts.iter().map(|part| part.qpn_range().end);
        assert!(ends.zip(&parts[1..]).all(|(end, next)| end == next.first()));
        assert_eq!(parts[7].qpn_range().end, whole.qpn_range().end);
        assert_eq!(whole.part(8, 15), None);
        assert_eq!(whole.part(0, 10), None, "too small");
        assert_eq!(whole.part(0, 18), None, "not a part");
        assert!(!whole.encloses(whole) && !parts[0].encloses(whole));
        assert!(!parts[0].encloses(parts[1]));
    }

    #[test]
    fn every_number_of_a_block_leads_back_to_it() {
        for (first, bits) in [(0x800, 11), (0xfb_0000, 16), (0xf8_0000, 18)] {
            let block = NumberBlock::new(first, bits).unwrap();
            let qpns = block.qpn_range();
            for qpn in [qpns.start, qpns.end - 1] {
                assert!(block.contains(Qpn::new(qpn)));
            }
            for qpn in [qpns.start - 1, qpns.end] {
                assert!(!block.contains(Qpn::new(qpn)));
            }
            let ids = block.communication_ids();
            for id in [ids.start, ids.end - 1] {
                assert!(block.contains_communication(id));
                let (length, value) = block.prefix();
                assert_eq!(id >> (32 - length), value);
            }
            for id in [ids.start - 1, ids.end] {
                assert!(!block.contains_communication(id));
            }
        }
    }
}

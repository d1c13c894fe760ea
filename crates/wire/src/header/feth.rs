//! The flush extended transport header.

use zerocopy::byteorder::big_endian::U32;

use super::declare_header::header;

header! {
    /// Flush extended transport header (FETH): the range and the placement of a flush.
    Feth, 4, Feth { word: U32 }
}

impl Feth {
    const RANGE_SHIFT: u32 = 4;

    /// A flush of `range` with `placement`.
    #[inline]
    pub fn new(placement: FlushPlacement, range: FlushRange) -> Self {
        let word = u32::from(placement.bits()) | (range as u32) << Self::RANGE_SHIFT;
        Feth { word: word.into() }
    }

    /// The placement type of the flush.
    #[inline]
    pub fn placement(&self) -> FlushPlacement {
        FlushPlacement::new(self.word.get() as u8)
    }

    /// The selectivity level, or `None` if the field holds a reserved value.
    #[inline]
    pub fn range(&self) -> Option<FlushRange> {
        match self.word.get() >> Self::RANGE_SHIFT & 3 {
            0 => Some(FlushRange::Range),
            1 => Some(FlushRange::Region),
            _ => None,
        }
    }
}

/// The placement type of a flush: a set of four bits, two of them defined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlushPlacement(u8);

impl FlushPlacement {
    /// The data is visible to every process and device of the peer's host.
    pub const GLOBAL: FlushPlacement = FlushPlacement(1);
    /// The data survives a loss of power.
    pub const PERSISTENT: FlushPlacement = FlushPlacement(2);

    /// Keeps the low four bits.
    #[inline]
    pub const fn new(bits: u8) -> Self {
        FlushPlacement(bits & 0x0f)
    }

    /// The four bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: FlushPlacement) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The selectivity level of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlushRange {
    /// The address and length in the RETH.
    Range = 0,
    /// The whole memory region of the key.
    Region = 1,
}

//! The header of flush requests.

use zerocopy::byteorder::big_endian::U32;

use super::layout::header;

header! {
    /// What a flush covers and how far it goes.
    Feth, 4, Feth { word: U32 }
}

impl Feth {
    const RANGE_SHIFT: u32 = 4;

    /// A flush of `range` to `placement`.
    #[inline]
    pub fn new(placement: FlushPlacement, range: FlushRange) -> Self {
        let word = u32::from(placement.bits()) | (range as u32) << Self::RANGE_SHIFT;
        Feth { word: word.into() }
    }

    /// How far the data must get.
    #[inline]
    pub fn placement(&self) -> FlushPlacement {
        FlushPlacement::new(self.word.get() as u8)
    }

    /// What is covered, or none if the selectivity is one of the reserved two.
    #[inline]
    pub fn range(&self) -> Option<FlushRange> {
        match self.word.get() >> Self::RANGE_SHIFT & 3 {
            0 => Some(FlushRange::Range),
            1 => Some(FlushRange::Region),
            _ => None,
        }
    }
}

/// How far flushed data must get: a set of four bits, two of them defined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlushPlacement(u8);

impl FlushPlacement {
    /// Visible to everybody on the peer's machine.
    pub const GLOBAL: FlushPlacement = FlushPlacement(1);
    /// Safe from a loss of power.
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

    /// Whether everything in `other` is asked for.
    #[inline]
    pub const fn contains(self, other: FlushPlacement) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlushRange {
    /// Address and length of the RETH.
    Range = 0,
    /// The whole memory region behind the key.
    Region = 1,
}

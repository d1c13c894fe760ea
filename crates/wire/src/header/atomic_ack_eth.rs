//! The atomic acknowledgement extended transport header.

use zerocopy::byteorder::big_endian::U64;

use super::declare_header::header;

header! {
    /// Atomic acknowledgement extended transport header (AtomicAckETH).
    AtomicAckEth, 8, AtomicAckEth { original: U64 }
}

impl AtomicAckEth {
    /// `original` is the value before the operation.
    #[inline]
    pub fn new(original: u64) -> Self {
        AtomicAckEth {
            original: original.into(),
        }
    }

    /// The value before the operation.
    #[inline]
    pub fn original(&self) -> u64 {
        self.original.get()
    }
}

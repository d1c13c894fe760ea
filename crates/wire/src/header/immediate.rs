//! Immediate data.

use super::declare_header::header;

header! {
    /// Immediate data. The protocol defines no byte order: the four bytes are opaque.
    Immediate, 4, Immediate { bytes: [u8; 4] }
}

impl Immediate {
    /// Stores the bytes unchanged.
    #[inline]
    pub fn new(bytes: [u8; 4]) -> Self {
        Immediate { bytes }
    }

    /// The bytes, unchanged.
    #[inline]
    pub fn bytes(&self) -> [u8; 4] {
        self.bytes
    }
}

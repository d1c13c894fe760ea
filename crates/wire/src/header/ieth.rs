//! The invalidate extended transport header.

use zerocopy::byteorder::big_endian::U32;

use super::declare_header::header;
use crate::number::Key;

header! {
    /// Invalidate extended transport header (IETH): the key that the receiver invalidates.
    Ieth, 4, Ieth { key: U32 }
}

impl Ieth {
    /// `key` is an R_Key of the receiver.
    #[inline]
    pub fn new(key: Key) -> Self {
        Ieth {
            key: key.value().into(),
        }
    }

    /// The receiver's R_Key.
    #[inline]
    pub fn key(&self) -> Key {
        Key::new(self.key.get())
    }
}

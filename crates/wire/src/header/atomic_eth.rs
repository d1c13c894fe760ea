//! The atomic extended transport header.

use zerocopy::byteorder::big_endian::{U32, U64};

use super::declare_header::header;
use crate::number::Key;

header! {
    /// Atomic extended transport header (AtomicETH).
    AtomicEth, 28, AtomicEth {
        virtual_address: U64,
        remote_key: U32,
        swap_or_add: U64,
        compare: U64,
    }
}

impl AtomicEth {
    /// Fetch-and-add ignores `compare`.
    #[inline]
    pub fn new(virtual_address: u64, remote_key: Key, swap_or_add: u64, compare: u64) -> Self {
        AtomicEth {
            virtual_address: virtual_address.into(),
            remote_key: remote_key.value().into(),
            swap_or_add: swap_or_add.into(),
            compare: compare.into(),
        }
    }

    /// The address in the peer's memory.
    #[inline]
    pub fn virtual_address(&self) -> u64 {
        self.virtual_address.get()
    }

    /// The R_Key that grants the access.
    #[inline]
    pub fn remote_key(&self) -> Key {
        Key::new(self.remote_key.get())
    }

    /// The value to store if the comparison succeeds, or the value to add.
    #[inline]
    pub fn swap_or_add(&self) -> u64 {
        self.swap_or_add.get()
    }

    /// The value to compare with.
    #[inline]
    pub fn compare(&self) -> u64 {
        self.compare.get()
    }
}

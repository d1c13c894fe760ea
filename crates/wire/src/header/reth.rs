//! The RDMA extended transport header.

use zerocopy::byteorder::big_endian::{U32, U64};

use super::declare_header::header;
use crate::number::Key;

header! {
    /// RDMA extended transport header (RETH): remote address, key and length.
    Reth, 16, Reth { virtual_address: U64, remote_key: U32, dma_length: U32 }
}

impl Reth {
    /// `dma_length` is the length of the whole message.
    #[inline]
    pub fn new(virtual_address: u64, remote_key: Key, dma_length: u32) -> Self {
        Reth {
            virtual_address: virtual_address.into(),
            remote_key: remote_key.value().into(),
            dma_length: dma_length.into(),
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

    /// The length of the whole message, not of this packet.
    #[inline]
    pub fn dma_length(&self) -> u32 {
        self.dma_length.get()
    }
}

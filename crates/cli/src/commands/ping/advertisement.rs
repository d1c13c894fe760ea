//! The message of rping: a buffer that the peer may use.

use rocinante::{Key, MemoryRegion, RemoteMemory};

/// Address, key and size of a buffer, in network byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advertisement {
    pub(super) remote: RemoteMemory,
    pub(super) length: u32,
}

impl Advertisement {
    /// How long the message is.
    pub(super) const LENGTH: usize = 16;

    /// What says "go ahead": only its length matters.
    pub(super) const NOTHING: [u8; Self::LENGTH] = [0; Self::LENGTH];

    /// For all of this memory.
    pub(super) fn of(memory: &MemoryRegion) -> Self {
        Self {
            remote: memory.remote(0),
            length: memory.all().length,
        }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = Self::NOTHING;
        bytes[..8].copy_from_slice(&self.remote.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.remote.key.value().to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [address, rest] = [0, 8].map(|at| {
            let eight = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(eight)
        });
        Self {
            remote: RemoteMemory {
                address,
                key: Key::new((rest >> 32) as u32),
            },
            length: rest as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertisement_equals_that_of_rping() {
        let wire = *b"\0\0\x55\x56\x1e\x30\x25\xd0\0\0\x10\xc3\0\0\0\x40";
        let advertisement = Advertisement {
            remote: RemoteMemory {
                address: 0x5556_1e30_25d0,
                key: Key::new(0x10c3),
            },
            length: 64,
        };
        assert_eq!(Advertisement::from_bytes(wire), advertisement);
        assert_eq!(advertisement.to_bytes(), wire);
    }
}

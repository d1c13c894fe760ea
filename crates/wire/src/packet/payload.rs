//! The payload of a packet.

use std::sync::atomic::AtomicU8;

use crate::shared_bytes;

/// The bytes of a payload, without pad and ICRC.
#[derive(Clone, Copy, Debug)]
pub enum PayloadBytes<'a> {
    /// Bytes of this process.
    Private(&'a [u8]),
    /// Bytes in memory that another process can change at any time. Copy them once, and use the copy.
    Shared(&'a [AtomicU8]),
}

impl<'a> PayloadBytes<'a> {
    /// How many bytes it has.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            PayloadBytes::Private(bytes) => bytes.len(),
            PayloadBytes::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether it has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes, unless another process can change them.
    #[inline]
    #[must_use]
    pub fn private(self) -> Option<&'a [u8]> {
        match self {
            PayloadBytes::Private(bytes) => Some(bytes),
            PayloadBytes::Shared(_) => None,
        }
    }

    /// Splits it into the first `at` bytes and the rest.
    ///
    /// # Panics
    /// If it is shorter.
    #[inline]
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            PayloadBytes::Private(bytes) => {
                let (before, after) = bytes.split_at(at);
                (Self::Private(before), Self::Private(after))
            }
            PayloadBytes::Shared(bytes) => {
                let (before, after) = bytes.split_at(at);
                (Self::Shared(before), Self::Shared(after))
            }
        }
    }

    /// Appends a copy to `out`.
    pub fn append_to(self, out: &mut Vec<u8>) {
        match self {
            PayloadBytes::Private(bytes) => out.extend_from_slice(bytes),
            PayloadBytes::Shared(bytes) => {
                let start = out.len();
                out.resize(start + bytes.len(), 0);
                shared_bytes::load(bytes, &mut out[start..]);
            }
        }
    }

    /// A copy.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.append_to(&mut copy);
        copy
    }
}

impl<'a> From<&'a [u8]> for PayloadBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Private(bytes)
    }
}

impl PartialEq for PayloadBytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (PayloadBytes::Private(ours), PayloadBytes::Private(theirs)) => ours == theirs,
            _ => self.to_vec() == other.to_vec(),
        }
    }
}

impl Eq for PayloadBytes<'_> {}

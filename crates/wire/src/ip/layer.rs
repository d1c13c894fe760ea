//! Layers of headers: cut off one by one, or missing.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Why bytes are not a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatagramError {
    /// A header, or what it announces, is cut off.
    #[error("{layer} takes {needed} bytes, but there are {found}")]
    TooShort {
        /// The name of the header.
        layer: &'static str,
        /// How many bytes it takes or announces.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// The frame carries something else.
    #[error("ethertype {0:#06x} is not IP")]
    NotIp(u16),
    /// The version, the header length or the length of UDP makes no sense.
    #[error("malformed {layer} header")]
    Malformed {
        /// The name of the header.
        layer: &'static str,
    },
    /// IP carries something else.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// It is a part of a datagram. RoCEv2 is never fragmented.
    #[error("a fragment of a datagram")]
    Fragment,
}

/// Reads a header; what is behind it.
pub(super) fn read<'a, T>(
    layer: &'static str,
    bytes: &'a [u8],
) -> Result<(&'a T, &'a [u8]), DatagramError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| DatagramError::TooShort {
        layer,
        needed: size_of::<T>(),
        found: bytes.len(),
    })
}

/// Divides bytes behind so many of them.
pub(super) fn cut<'a>(
    layer: &'static str,
    bytes: &'a [u8],
    length: usize,
) -> Result<(&'a [u8], &'a [u8]), DatagramError> {
    bytes
        .split_at_checked(length)
        .ok_or(DatagramError::TooShort {
            layer,
            needed: length,
            found: bytes.len(),
        })
}

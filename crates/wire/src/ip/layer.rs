//! Reading headers layer by layer, and the errors of that.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Why bytes are not a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatagramError {
    /// The data ends before the header or the length that the header gives.
    #[error("{layer} takes {needed} bytes, but there are {found}")]
    TooShort {
        /// The name of the layer.
        layer: &'static str,
        /// How many bytes the layer needs.
        needed: usize,
        /// How many bytes are left.
        found: usize,
    },
    /// The Ethernet frame does not carry IP.
    #[error("ethertype {0:#06x} is not IP")]
    NotIp(u16),
    /// The IP version, the IPv4 header length or the UDP length is invalid.
    #[error("malformed {layer} header")]
    Malformed {
        /// The name of the layer.
        layer: &'static str,
    },
    /// The IP packet does not carry UDP.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// The packet is a fragment. RoCEv2 packets are never fragmented.
    #[error("a fragment of a datagram")]
    Fragment,
}

/// Reads a header. Returns it and the bytes after it.
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

/// Splits `bytes` after `length` bytes.
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

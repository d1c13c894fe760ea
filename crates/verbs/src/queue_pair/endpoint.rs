//! Endpoints: what one side must know of the other.

use std::fmt;
use std::str::FromStr;

use wire::{Gid, Psn, Qpn};

/// What a peer must know to connect to a queue pair. The application sends it by any means.
///
/// Its text form has no spaces and can be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub gid: Gid,
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
}

impl Endpoint {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 24;

    /// The GID, the queue pair number and the PSN in network byte order, for a message to the peer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&self.gid.bytes());
        bytes[16..20].copy_from_slice(&self.queue_pair.value().to_be_bytes());
        bytes[20..].copy_from_slice(&self.psn.value().to_be_bytes());
        bytes
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes). Returns `None` if a number has more than 24 bits.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let (gid, numbers) = bytes.split_first_chunk::<16>()?;
        let (queue_pair, psn) = numbers.split_first_chunk::<4>()?;
        let number = |bytes: [u8; 4]| in_24_bits(u32::from_be_bytes(bytes));
        Some(Self {
            gid: Gid::from_bytes(*gid),
            queue_pair: Qpn::new(number(*queue_pair)?),
            psn: Psn::new(number(*psn.first_chunk()?)?),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, psn) = (self.queue_pair.value(), self.psn.value());
        write!(f, "{}/{number:#x}/{psn:#x}", self.gid)
    }
}

/// A text that is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an endpoint: expected GID/0xQPN/0xPSN")]
pub struct EndpointParseError(String);

impl FromStr for Endpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.trim().split('/');
            let gid = parts.next()?.parse().ok()?;
            let number = hexadecimal(parts.next()?)?;
            let psn = hexadecimal(parts.next()?)?;
            parts.next().is_none().then_some(Self {
                gid,
                queue_pair: Qpn::new(number),
                psn: Psn::new(psn),
            })
        };
        parse().ok_or_else(|| EndpointParseError(text.to_owned()))
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    in_24_bits(u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?)
}

fn in_24_bits(value: u32) -> Option<u32> {
    (value < 1 << 24).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_survives_text_and_bytes() {
        let endpoint = Endpoint {
            gid: Gid::from("192.0.2.7".parse::<std::net::IpAddr>().unwrap()),
            queue_pair: Qpn::new(0xab_cdef),
            psn: Psn::new(0x12_3456),
        };
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        assert_eq!(Endpoint::from_bytes(endpoint.to_bytes()), Some(endpoint));
    }

    #[test]
    fn numbers_of_more_than_24_bits_are_refused() {
        for wrong in [16, 20] {
            let mut bytes = [0; Endpoint::LENGTH];
            bytes[wrong] = 1;
            assert_eq!(Endpoint::from_bytes(bytes), None);
        }
        assert!("::1/0x1000000/0x0".parse::<Endpoint>().is_err());
    }
}

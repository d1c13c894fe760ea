//! What one side must know of the other.

use std::fmt;
use std::str::FromStr;

use wire::{Gid, Psn, Qpn};

/// What a peer must know to connect to a queue pair: hand it over by any means.
///
/// Its text form has no spaces and parses back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub gid: Gid,
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The first sequence number that it will send.
    pub psn: Psn,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, psn) = (self.queue_pair.value(), self.psn.value());
        write!(f, "{}/{number:#x}/{psn:#x}", self.gid)
    }
}

/// A text that is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no endpoint: it looks like GID/0xQPN/0xPSN")]
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
    let value = u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    (value < 1 << 24).then_some(value)
}

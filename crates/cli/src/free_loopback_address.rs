//! Loopback addresses that no other process uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rocinante::{Context, OpenError, OpenOptions};

/// Opens the first free address of 127.0.0.0/8 other than `taken`; without IPv4, `::1`, which two processes can share.
///
/// A machine with IPv4 has all of these addresses, so it can act as two hosts even if other processes use the port of some
/// addresses.
pub(crate) fn open(
    taken: Option<IpAddr>,
    options: &OpenOptions,
) -> Result<(IpAddr, Context), OpenError> {
    let addresses = (1..=32).map(|host| IpAddr::from(Ipv4Addr::new(127, 0, 0, host)));
    let others = addresses.filter(|address| Some(*address) != taken);
    let mut rejection = None;
    for address in others.chain([IpAddr::from(Ipv6Addr::LOCALHOST)]) {
        match Context::open_with(&address.to_string(), options) {
            Ok(context) => return Ok((address, context)),
            // The next address would fail, too.
            Err(error @ (OpenError::Capture(_) | OpenError::Fault(_))) => return Err(error),
            Err(error) => rejection = rejection.or(Some(error)),
        }
    }
    Err(rejection.expect("every address was rejected"))
}

//! Loopback addresses that no other process uses.

use std::net::{IpAddr, Ipv4Addr};

use rocinante::{Context, OpenError, OpenOptions};

/// Opens the first address of 127.0.0.0/8 that can be had, but not `taken`.
///
/// All of these addresses are there on every machine, so one machine can play two hosts even if another
/// process holds the port on some of them.
pub(crate) fn open(
    taken: Option<IpAddr>,
    options: &OpenOptions,
) -> Result<(IpAddr, Context), OpenError> {
    let addresses = (1..=32).map(|host| IpAddr::from(Ipv4Addr::new(127, 0, 0, host)));
    let mut rejection = None;
    for address in addresses.filter(|address| Some(*address) != taken) {
        match Context::open_with(&address.to_string(), options) {
            Ok(context) => return Ok((address, context)),
            // Another address would not help.
            Err(error @ (OpenError::Capture(_) | OpenError::Fault(_))) => return Err(error),
            Err(error) => rejection = rejection.or(Some(error)),
        }
    }
    Err(rejection.expect("every address was rejected"))
}

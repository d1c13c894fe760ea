//! Builds the GID table from addresses.

use std::net::IpAddr;

use super::Interface;
use super::device::{GidEntry, InterfaceId};
use wire::Gid;

/// The number of entries of every GID table. Most entries are empty, as programs expect.
pub(super) const TABLE_LENGTH: usize = 256;

/// The table of a device with these addresses: link-local IPv6 first, then IPv4, then the other
/// IPv6 addresses, each kind in the kernel's order. The tables of the kernel's RoCE devices begin
/// in this order, so an index learned there is correct here.
pub(super) fn table(addresses: &[(IpAddr, &Interface)]) -> Vec<GidEntry> {
    let mut entries: Vec<GidEntry> = Vec::new();
    let mut sorted = addresses.to_vec();
    sorted.sort_by_key(|(address, _)| rank(*address));
    for (address, interface) in sorted {
        let gid = Gid::from(address);
        let known = entries.iter().any(|entry| entry.gid == gid);
        if !known && entries.len() < TABLE_LENGTH {
            entries.push(GidEntry {
                index: entries.len(),
                gid,
                address,
                interface: InterfaceId::of(interface),
            });
        }
    }
    entries
}

fn rank(address: IpAddr) -> u8 {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    }
}

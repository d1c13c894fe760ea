//! The GID table, which is built from addresses.

use std::net::IpAddr;

use wire::Gid;

use super::Interface;

/// The number of entries of every GID table. Most entries are empty, as programs expect.
pub(super) const TABLE_LENGTH: usize = 256;

/// A GID and its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Its index in the table.
    pub index: usize,
    /// The GID.
    pub gid: Gid,
    /// Its address.
    pub address: IpAddr,
    /// The interface of the address.
    pub interface: InterfaceId,
}

/// An interface by name and index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceId {
    /// The name.
    pub name: String,
    /// The index, which is also the scope of link-local addresses.
    pub index: u32,
}

impl InterfaceId {
    pub(super) fn of(interface: &Interface) -> Self {
        InterfaceId {
            name: interface.name.clone(),
            index: interface.index,
        }
    }
}

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

//! Finding devices, and the GID to use.

use std::net::IpAddr;

use anyhow::{Context as _, anyhow};
use rocinante::{Device, GidEntry};

/// Why the list is empty, and what to do.
pub(crate) const NO_DEVICE: &str = "there is no device, because no interface is up and has an address; bring \
                                    loopback up with `ip link set lo up`";

/// Every device of this machine.
pub(crate) fn all() -> anyhow::Result<Vec<Device>> {
    Ok(rocinante::devices()?)
}

/// The device with this name. The name of an interface or an address is also valid, even if it is not listed.
pub(crate) fn named(name: &str) -> anyhow::Result<Device> {
    Ok(rocinante::device(name)?)
}

/// The device to open for this address: one that has it, or the address alone.
pub(crate) fn having(address: IpAddr) -> anyhow::Result<(String, Device)> {
    if let Some(device) = rocinante::device_at(address)? {
        return Ok((device.name.clone(), device));
    }
    let name = address.to_string();
    let device = named(&name)?;
    Ok((name, device))
}

/// Why a GID is recommended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It has an IPv4 address. Every RoCEv2 peer has such a GID.
    V4,
    /// There is no IPv4 address.
    V6,
    /// There is no other address.
    LinkLocal,
}

impl Reason {
    /// The reason as a sentence.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::V4 => "it is the IPv4 address, to which peers usually have a route",
            Self::V6 => "it is a routable IPv6 address; there is no IPv4 address",
            Self::LinkLocal => {
                "it is the only kind there is, and reaches only machines on the same link"
            }
        }
    }
}

/// The recommended GID.
pub(crate) fn recommended(device: &Device) -> Option<(&GidEntry, Reason)> {
    let ranked = device
        .gids
        .iter()
        .map(|entry| (entry, reason(entry.address)));
    // The first GID of the best type.
    ranked.min_by_key(|(_, reason)| *reason as u8)
}

fn reason(address: IpAddr) -> Reason {
    match address {
        IpAddr::V4(_) => Reason::V4,
        IpAddr::V6(address) if address.is_unicast_link_local() => Reason::LinkLocal,
        IpAddr::V6(_) => Reason::V6,
    }
}

/// The entry at this index, or the recommended one.
pub(crate) fn gid(device: &Device, index: Option<u8>) -> anyhow::Result<&GidEntry> {
    let entry = match index {
        Some(index) => device.gid(usize::from(index)),
        None => recommended(device).map(|(entry, _)| entry),
    };
    entry.ok_or_else(|| {
        let index = index.unwrap_or(0);
        let name = &device.name;
        anyhow!("GID index {index} of {name} is empty; `roci gids` shows the index to use")
    })
}

/// The entry for peers that are reached from this address: the address itself if the device has it,
/// or else the best one of the same family.
pub(crate) fn gid_towards(device: &Device, address: IpAddr) -> anyhow::Result<&GidEntry> {
    let rank = |entry: &&GidEntry| {
        let other = entry.address != address;
        let family = entry.address.is_ipv4() != address.is_ipv4();
        (other, family, reason(entry.address) as u8)
    };
    let best = device.gids.iter().min_by_key(rank);
    best.with_context(|| format!("{} has no GID; `roci gids` shows the others", device.name))
}

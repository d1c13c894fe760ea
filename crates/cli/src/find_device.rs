//! Finding devices, and the GID to use.

use std::net::IpAddr;

use anyhow::{Context as _, anyhow, bail};
use net::socket::interface::{Choice, SoftwareChoice, SystemChoice};
use rocinante::{Device, DeviceKind, GidEntry};
use system::Tree;

use crate::output::remark;

/// Why the list of our devices is empty, and what to do.
pub(crate) const NO_DEVICE: &str = "there is no device, because no interface is up and has an address; bring \
                                    loopback up with `ip link set lo up`";

/// A device of either kind.
pub(crate) enum Found {
    /// One of ours.
    Software(Device),
    /// One of the system: a NIC, or one that the kernel makes.
    System(system::Device),
}

impl Found {
    /// Its kind, as people read it.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Software(_) => SOFTWARE.to_owned(),
            Self::System(device) => format!("system: {}", device.kind),
        }
    }
}

/// The kind of our devices.
pub(crate) const SOFTWARE: &str = "software";

/// Every device of this machine that is ours.
pub(crate) fn all() -> anyhow::Result<Vec<Device>> {
    let mut devices = rocinante::devices()?;
    devices.retain(|device| device.kind == DeviceKind::Software);
    Ok(devices)
}

/// Every device of this machine, and those of the system after ours.
pub(crate) fn all_kinds() -> anyhow::Result<Vec<Found>> {
    let software = all()?.into_iter().map(Found::Software);
    let system = of_system()?.into_iter().map(Found::System);
    Ok(software.chain(system).collect())
}

/// As [`all_kinds`], for a list: says why it is empty.
pub(crate) fn listed() -> anyhow::Result<Vec<Found>> {
    let devices = all_kinds()?;
    if devices.is_empty() {
        remark(no_device());
    }
    Ok(devices)
}

/// The RDMA devices of the system that the environment asks for.
pub(crate) fn of_system() -> anyhow::Result<Vec<system::Device>> {
    // A list of our devices alone must not cost the time to look at others.
    if excludes_system() {
        return Ok(Vec::new());
    }
    let choice = Choice::from_env()?.system;
    choose(Tree::of_machine().devices(), &choice)
}

/// Whether the environment lists our devices alone.
pub(crate) fn excludes_system() -> bool {
    let none = SystemChoice::Named(Vec::new());
    Choice::from_env().is_ok_and(|choice| choice.system == none)
}

fn choose(
    mut devices: Vec<system::Device>,
    choice: &SystemChoice,
) -> anyhow::Result<Vec<system::Device>> {
    if let SystemChoice::Named(names) = choice {
        let is_missing = |name: &&String| devices.iter().all(|device| device.name != **name);
        if let Some(missing) = names.iter().find(is_missing) {
            return Err(not_in_system(missing, &devices));
        }
    }
    devices.retain(|device| choice.includes(&device.name));
    Ok(devices)
}

fn not_in_system(missing: &str, devices: &[system::Device]) -> anyhow::Error {
    let known: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
    let known = match known.as_slice() {
        [] => "none".to_owned(),
        known => known.join(", "),
    };
    anyhow!("the system has no RDMA device `{missing}`; it has {known}")
}

/// Why the list is empty, and what to do.
pub(crate) fn no_device() -> &'static str {
    if excludes_software() {
        "the system has no RDMA device; without ROCI_DEVICES=system there are software devices"
    } else {
        NO_DEVICE
    }
}

/// Whether the environment lists devices of the system alone.
pub(crate) fn excludes_software() -> bool {
    Choice::from_env().is_ok_and(|choice| choice.software == SoftwareChoice::None)
}

/// The device of either kind with this name. For ours, the name of an interface or an address is also valid.
pub(crate) fn named_of_any_kind(name: &str) -> anyhow::Result<Found> {
    let listed = of_system()?;
    let Some(system) = listed.iter().find(|device| device.name == name) else {
        if excludes_software() {
            return Err(not_in_system(name, &listed));
        }
        return Ok(Found::Software(rocinante::device(name)?));
    };
    if all()?.iter().any(|device| device.name == name) {
        bail!(
            "there are two devices `{name}`, one of ours and one of the system; set ROCI_DEVICES=software or \
             ROCI_DEVICES=system to choose"
        );
    }
    Ok(Found::System(system.clone()))
}

/// The description of a device that can be opened, of either kind.
pub(crate) fn openable(name: &str) -> anyhow::Result<Device> {
    match named_of_any_kind(name)? {
        Found::Software(device) => Ok(device),
        Found::System(device) => {
            let mut devices = rocinante::devices()?.into_iter();
            let found = devices.find(|it| it.kind != DeviceKind::Software && it.name == name);
            found.with_context(|| {
                let kind = &device.kind;
                format!("`{name}` ({kind}) has no RoCE port, and others can't be opened yet")
            })
        }
    }
}

/// The device to open for this address: one that has it, or the address alone.
pub(crate) fn having(address: IpAddr) -> anyhow::Result<(String, Device)> {
    if let Some(device) = rocinante::device_at(address)? {
        return Ok((device.name.clone(), device));
    }
    let name = address.to_string();
    let device = rocinante::device(&name)?;
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

/// The reason for a GID with this address.
pub(crate) fn reason(address: IpAddr) -> Reason {
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

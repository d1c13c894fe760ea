//! Selects the devices from interfaces, links and the user's list.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use super::device::{Device, LinkState};
use super::device_list::{self, Target, Wanted};
use super::error::DeviceError;
use super::link::Link;
use super::{Address, Interface};

/// The devices of a machine with these interfaces: those that `spec` lists, or the links and every
/// usable interface.
///
/// A link whose interface is missing or unusable is left out, as a removed card would be. Loopback
/// is left out if packets can leave the machine from another interface.
pub fn select(
    interfaces: &[Interface],
    links: &[Link],
    spec: Option<&str>,
) -> Result<Vec<Device>, DeviceError> {
    let mut devices = select_reachable(interfaces, links, spec)?;
    if spec.is_none() {
        leave_out_loopback(interfaces, &mut devices);
    }
    Ok(devices)
}

/// As [`select`], with loopback at the end.
pub fn select_reachable(
    interfaces: &[Interface],
    links: &[Link],
    spec: Option<&str>,
) -> Result<Vec<Device>, DeviceError> {
    let mut devices = match spec {
        Some(spec) => listed(interfaces, spec)?,
        None => available(interfaces, links),
    };
    check_unique(&devices)?;
    separate_guids(&mut devices);
    Ok(devices)
}

/// Removes loopback: programs that choose a device by themselves may take it, and then wait for
/// peers on other machines, which can't reach it.
fn leave_out_loopback(interfaces: &[Interface], devices: &mut Vec<Device>) {
    let is_loopback = |name: &str| {
        let mut loopback = interfaces.iter().filter(|it| it.loopback);
        loopback.any(|it| it.name == name)
    };
    let leads_outside = |device: &Device| {
        let mut entries = device.gids.iter();
        device.state == LinkState::Active && entries.any(|it| !is_loopback(&it.interface.name))
    };
    if devices.iter().any(leads_outside) {
        let is_automatic = |device: &Device| {
            let interface = device.interface.as_ref();
            interface.is_some_and(|it| {
                is_loopback(&it.name) && device.name == device_list::automatic_name(&it.name)
            })
        };
        devices.retain(|device| !is_automatic(device));
    }
}

fn listed(interfaces: &[Interface], spec: &str) -> Result<Vec<Device>, DeviceError> {
    let wanted = device_list::parse(spec)?;
    wanted
        .iter()
        .map(|wanted| build(interfaces, wanted))
        .collect()
}

fn available(interfaces: &[Interface], links: &[Link]) -> Vec<Device> {
    let linked = links.iter().map(|link| build(interfaces, link.wanted()));
    let mut devices: Vec<Device> = linked.filter_map(Result::ok).collect();
    let mut automatic: Vec<&Interface> = interfaces.iter().collect();
    automatic.sort_by_key(|interface| (interface.loopback, interface.index));
    for interface in automatic {
        devices.extend(left_over(interface, &devices));
    }
    devices
}

/// The device of an interface with the addresses that no other device has.
fn left_over(interface: &Interface, others: &[Device]) -> Option<Device> {
    let name = device_list::automatic_name(&interface.name);
    if !interface.up || others.iter().any(|device| device.name == name) {
        return None;
    }
    let is_free = |ip| !others.iter().any(|device| device.has(ip, interface.index));
    let addresses: Vec<_> = addresses_of(interface)
        .filter(|(ip, _)| is_free(*ip))
        .collect();
    Some(Device::new(name, &addresses)?.with_guid_of(interface))
}

fn addresses_of(interface: &Interface) -> impl Iterator<Item = (IpAddr, &Interface)> {
    let addresses = interface.addresses.iter();
    addresses.map(move |address| (address.ip, interface))
}

/// The requested device, or why it can't exist.
pub(super) fn build(interfaces: &[Interface], wanted: &Wanted) -> Result<Device, DeviceError> {
    let name = wanted.name();
    match &wanted.target {
        Target::Interface(target) => {
            let interface = find(interfaces, target)?;
            check_usable(interface)?;
            let addresses: Vec<_> = addresses_of(interface).collect();
            let device = Device::new(name, &addresses).ok_or_else(|| too_small(interface))?;
            Ok(device.with_guid_of(interface))
        }
        Target::Addresses(targets) => {
            let owners = targets.iter().map(|&ip| Ok((ip, owner(interfaces, ip)?)));
            let addresses = owners.collect::<Result<Vec<_>, DeviceError>>()?;
            let narrowest = addresses.iter().map(|(_, interface)| *interface);
            let narrowest = narrowest.min_by_key(|interface| interface.mtu);
            Device::new(name, &addresses)
                .ok_or_else(|| too_small(narrowest.expect("an entry has an address")))
        }
    }
}

fn find<'a>(interfaces: &'a [Interface], name: &str) -> Result<&'a Interface, DeviceError> {
    let found = interfaces.iter().find(|interface| interface.name == name);
    found.ok_or_else(|| DeviceError::NoSuchInterface {
        name: name.to_owned(),
        known: interfaces.iter().map(|known| known.name.clone()).collect(),
    })
}

fn check_usable(interface: &Interface) -> Result<(), DeviceError> {
    let name = interface.name.clone();
    if !interface.up {
        return Err(DeviceError::InterfaceDown { name });
    }
    if interface.addresses.is_empty() {
        return Err(DeviceError::NoAddress { name });
    }
    Ok(())
}

fn too_small(interface: &Interface) -> DeviceError {
    DeviceError::MtuTooSmall {
        name: interface.name.clone(),
        mtu: interface.mtu,
    }
}

/// The interface that has an address. Every address in an IPv4 network of the loopback interface is
/// on it, whether or not it is listed.
fn owner(interfaces: &[Interface], ip: IpAddr) -> Result<&Interface, DeviceError> {
    let lists = |interface: &&Interface| interface.addresses.iter().any(|a| a.ip == ip);
    let covers = |interface: &&Interface| {
        interface.loopback && interface.addresses.iter().any(|a| a.covers(ip))
    };
    let found = interfaces.iter().find(lists);
    let interface = found
        .or_else(|| interfaces.iter().find(covers))
        .ok_or(DeviceError::AddressElsewhere { address: ip })?;
    check_usable(interface)?;
    Ok(interface)
}

impl Address {
    fn covers(&self, ip: IpAddr) -> bool {
        let (IpAddr::V4(network), IpAddr::V4(ip)) = (self.ip, ip) else {
            return false;
        };
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix.min(32)))
            .unwrap_or(0);
        let masked = |ip: Ipv4Addr| ip.to_bits() & mask;
        masked(network) == masked(ip)
    }
}

fn check_unique(devices: &[Device]) -> Result<(), DeviceError> {
    for (index, device) in devices.iter().enumerate() {
        for other in &devices[..index] {
            if other.name == device.name {
                let name = device.name.clone();
                return Err(DeviceError::DuplicateName { name });
            }
            let mut entries = device.gids.iter();
            let shared = entries.find(|entry| other.has(entry.address, entry.interface.index));
            if let Some(entry) = shared {
                return Err(DeviceError::DuplicateAddress {
                    address: entry.address,
                    first: other.name.clone(),
                    second: device.name.clone(),
                });
            }
        }
    }
    Ok(())
}

/// VLANs and bridges have the Ethernet address of another interface, so their GUIDs must be
/// changed.
fn separate_guids(devices: &mut [Device]) {
    let mut known = HashSet::new();
    for device in devices {
        if !known.insert(device.guid) {
            *device = device.clone().with_guid_of_its_own();
            known.insert(device.guid);
        }
    }
}

//! A device: an interface, or some of its addresses, as RDMA programs see it.

use std::net::IpAddr;

use wire::{Gid, PathMtu};

use super::{Interface, gid};

/// What a device is before anybody opens it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The name that programs ask for.
    pub name: String,
    /// The interface behind it; none if its addresses are on several.
    pub interface: Option<InterfaceId>,
    /// The longest IP packet that all its interfaces carry.
    pub mtu: u32,
    /// The largest payload of a packet that fits.
    pub active_mtu: PathMtu,
    /// The entries of the GID table that are not empty, from index 0 on. All are RoCE v2.
    pub gids: Vec<GidEntry>,
    /// A number of its own, never 0, and the same every time.
    pub guid: u64,
    /// Whether anything can get through.
    pub state: LinkState,
}

/// A GID and the address behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Its place in the table.
    pub index: usize,
    /// The GID.
    pub gid: Gid,
    /// The address that it stands for.
    pub address: IpAddr,
    /// The interface that the address is on.
    pub interface: InterfaceId,
}

/// An interface by name and number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceId {
    /// The name.
    pub name: String,
    /// The number, which is also the scope of link-local addresses.
    pub index: u32,
}

/// The state of a device's only port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkState {
    /// Packets can go through.
    Active,
    /// Nothing is at the other end.
    Down,
}

impl InterfaceId {
    pub(super) fn of(interface: &Interface) -> Self {
        InterfaceId {
            name: interface.name.clone(),
            index: interface.index,
        }
    }
}

impl Device {
    /// The length of the GID table, with its empty entries.
    pub const GID_TABLE_LENGTH: usize = gid::TABLE_LENGTH;

    /// What may stand around a payload: IPv6, UDP, the longest headers of any packet, ICRC. It is
    /// what the kernel's device reckons with, so that two sides with the same MTU agree.
    const LONGEST_HEADERS: u32 = 80;

    /// The smallest MTU an interface can have to be a device.
    pub const SMALLEST_MTU: u32 = 256 + Self::LONGEST_HEADERS;

    /// The entry at a place in the table; none if it is empty.
    pub fn gid(&self, index: usize) -> Option<&GidEntry> {
        self.gids.get(index)
    }

    /// The entry of an address. A link-local one may be that of a namesake on another interface.
    pub fn gid_of(&self, address: IpAddr) -> Option<&GidEntry> {
        self.gids.iter().find(|entry| entry.address == address)
    }

    /// Whether it has this address. A link-local one is another one on every interface.
    pub(super) fn has(&self, address: IpAddr, interface: u32) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let same_place = |entry: &GidEntry| !is_link_local || entry.interface.index == interface;
        let mut entries = self.gids.iter();
        entries.any(|entry| entry.address == address && same_place(entry))
    }

    /// A device with these addresses; none if a payload doesn't fit the MTU.
    pub(super) fn new(name: String, addresses: &[(IpAddr, &Interface)]) -> Option<Self> {
        let interfaces = || addresses.iter().map(|(_, interface)| *interface);
        let first = interfaces().next()?;
        let alone = interfaces().all(|interface| interface.index == first.index);
        let mtu = interfaces().map(|interface| interface.mtu).min()?;
        let gids = gid::table(addresses);
        Some(Device {
            interface: alone.then(|| InterfaceId::of(first)),
            mtu,
            active_mtu: active_mtu(mtu)?,
            guid: made_up_guid(&name, &gids),
            state: state(interfaces()),
            name,
            gids,
        })
    }

    /// Replaces the GUID by the one that the kernel would derive from the interface.
    pub(super) fn with_guid_of(mut self, interface: &Interface) -> Self {
        if let Some(mac) = interface.mac {
            self.guid = guid_from_mac(mac);
        }
        self
    }

    /// Replaces the GUID by one that follows from name and addresses.
    pub(super) fn with_guid_of_its_own(mut self) -> Self {
        self.guid = made_up_guid(&self.name, &self.gids);
        self
    }
}

fn active_mtu(mtu: u32) -> Option<PathMtu> {
    let room = mtu.checked_sub(Device::LONGEST_HEADERS)?;
    PathMtu::largest_within(room as usize)
}

fn state<'a>(mut interfaces: impl Iterator<Item = &'a Interface>) -> LinkState {
    if interfaces.any(|interface| interface.carrier) {
        LinkState::Active
    } else {
        LinkState::Down
    }
}

/// EUI-64, in the modified form that IPv6 made of it.
fn guid_from_mac(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// FNV-1a over name and addresses, marked as not globally unique.
fn made_up_guid(name: &str, gids: &[GidEntry]) -> u64 {
    const UNIVERSAL_OR_GROUP: u64 = 0x0300_0000_0000_0000;
    let addresses = gids.iter().flat_map(|entry| entry.gid.bytes());
    let hash = name
        .bytes()
        .chain(addresses)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    (hash & !UNIVERSAL_OR_GROUP).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_mtu_is_what_the_kernel_would_choose() {
        let bytes = |mtu| active_mtu(mtu).map(PathMtu::bytes);
        assert_eq!(bytes(1500), Some(1024));
        assert_eq!(bytes(9000), Some(4096));
        assert_eq!(bytes(65_536), Some(4096));
        assert_eq!(bytes(4096 + 80), Some(4096));
        assert_eq!(bytes(4096 + 79), Some(2048));
        assert_eq!(bytes(Device::SMALLEST_MTU), Some(256));
        assert_eq!(bytes(Device::SMALLEST_MTU - 1), None);
        assert_eq!(bytes(0), None);
    }

    #[test]
    fn the_guid_of_a_card_is_the_kernels() {
        let mac = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];
        assert_eq!(guid_from_mac(mac), 0x5054_00ff_fe12_3456);
    }
}

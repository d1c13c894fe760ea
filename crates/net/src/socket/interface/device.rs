//! A device: an interface, or some of its addresses, as RDMA programs see it.

use std::net::IpAddr;

use wire::PathMtu;

use super::Interface;
use super::gid::{self, GidEntry, InterfaceId};

/// The description of a device that may be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The name that programs ask for.
    pub name: String,
    /// Whether it is ours or the system's.
    pub kind: DeviceKind,
    /// Its interface; `None` if its addresses are on several.
    pub interface: Option<InterfaceId>,
    /// The length in bytes of the longest IP packet that all its interfaces carry.
    pub mtu: u32,
    /// The largest payload of a packet that fits.
    pub active_mtu: PathMtu,
    /// The entries of the GID table that are not empty and RoCEv2. Those of our devices begin at index 0.
    pub gids: Vec<GidEntry>,
    /// Its own number, never 0 and always the same.
    pub guid: u64,
    /// Whether packets can pass.
    pub state: LinkState,
}

/// Whether a device is ours or the system's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A device of this project, in user space.
    Software,
    /// A device of the system: a NIC, or one that the kernel makes.
    System {
        /// The driver, such as `mlx5` or `rxe`.
        driver: String,
    },
}

/// The state of a device's only port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkState {
    /// Packets can pass.
    Active,
    /// No interface has a carrier.
    Down,
}

impl Device {
    /// The length of the GID table, with its empty entries.
    pub const GID_TABLE_LENGTH: usize = gid::TABLE_LENGTH;

    /// The length in bytes of everything around a payload: IPv6, UDP, the longest headers of any
    /// packet, ICRC. The kernel's device uses the same value, so that two sides with the same MTU
    /// agree.
    const LONGEST_HEADERS: u32 = 80;

    /// The smallest MTU of an interface that can be a device.
    pub const SMALLEST_MTU: u32 = 256 + Self::LONGEST_HEADERS;

    /// The largest payload of a packet if IP packets have at most `length` bytes; `None` if none fits.
    pub fn mtu_within(length: u32) -> Option<PathMtu> {
        let room = length.checked_sub(Self::LONGEST_HEADERS)?;
        PathMtu::largest_within(room as usize)
    }

    /// The entry at an index of the table; `None` if it is empty.
    pub fn gid(&self, index: usize) -> Option<&GidEntry> {
        self.gids.iter().find(|entry| entry.index == index)
    }

    /// The entry of an address. The same link-local address may exist on another interface.
    pub fn gid_of(&self, address: IpAddr) -> Option<&GidEntry> {
        self.gids.iter().find(|entry| entry.address == address)
    }

    /// Whether it has this address. A link-local address is a different one on every interface.
    pub(super) fn has(&self, address: IpAddr, interface: u32) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let same_interface =
            |entry: &GidEntry| !is_link_local || entry.interface.index == interface;
        let mut entries = self.gids.iter();
        entries.any(|entry| entry.address == address && same_interface(entry))
    }

    /// A device with these addresses; `None` if no payload fits the MTU.
    pub(super) fn new(name: String, addresses: &[(IpAddr, &Interface)]) -> Option<Self> {
        let interfaces = || addresses.iter().map(|(_, interface)| *interface);
        let first = interfaces().next()?;
        let alone = interfaces().all(|interface| interface.index == first.index);
        let mtu = interfaces().map(|interface| interface.mtu).min()?;
        let gids = gid::table(addresses);
        Some(Device {
            kind: DeviceKind::Software,
            interface: alone.then(|| InterfaceId::of(first)),
            mtu,
            active_mtu: Self::mtu_within(mtu)?,
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

    /// Replaces the GUID by one that is derived from name and addresses.
    pub(super) fn with_guid_of_its_own(mut self) -> Self {
        self.guid = made_up_guid(&self.name, &self.gids);
        self
    }
}

fn state<'a>(mut interfaces: impl Iterator<Item = &'a Interface>) -> LinkState {
    if interfaces.any(|interface| interface.carrier) {
        LinkState::Active
    } else {
        LinkState::Down
    }
}

/// EUI-64, in the modified form of IPv6.
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
        let bytes = |mtu| Device::mtu_within(mtu).map(PathMtu::bytes);
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

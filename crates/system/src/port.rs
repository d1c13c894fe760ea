//! A port of a device, and its GID table.

use std::net::IpAddr;

use wire::{Gid, PathMtu};

use crate::node_type::NodeType;
use crate::tree::Tree;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1 on.
    pub number: u8,
    /// Whether packets can pass.
    pub state: PortState,
    /// The state of the physical link, as the kernel writes it: `5: LinkUp`.
    pub physical_state: String,
    /// The layer below RDMA.
    pub link_layer: LinkLayer,
    /// The speed, as the kernel writes it: `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The local identifier in an InfiniBand subnet, otherwise 0.
    pub lid: u32,
    /// How many low bits of the local identifier select a path (LMC).
    pub lid_mask_count: u32,
    /// The local identifier of the subnet manager, otherwise 0.
    pub subnet_manager_lid: u32,
    /// The network interface of the port, if it has one.
    pub interface: Option<String>,
    /// The length in bytes of the longest IP packet of this interface.
    pub interface_mtu: Option<u32>,
    /// The entries of the GID table that are not empty.
    pub gids: Vec<GidEntry>,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Nothing is connected, or the interface is down.
    Down,
    /// The link is up, but a subnet manager has not configured it.
    Initializing,
    /// As [`Initializing`](Self::Initializing), later.
    Armed,
    /// Packets can pass.
    Active,
    /// The link failed a moment ago.
    ActiveDefer,
    /// The kernel says nothing known.
    Unknown,
}

/// The layer below RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// RoCE or iWARP.
    Ethernet,
    /// An InfiniBand fabric.
    InfiniBand,
    /// Anything else.
    Other,
}

/// A GID, and what kind of packets it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index in the table.
    pub index: usize,
    /// The GID.
    pub gid: Gid,
    /// What kind of packets it stands for.
    pub gid_type: GidType,
    /// The network interface of its address, if it has one.
    pub interface: Option<String>,
}

/// What kind of packets a GID stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// InfiniBand packets.
    InfiniBand,
    /// Ethernet frames with an InfiniBand header and without IP, which routers do not forward.
    RoceV1,
    /// UDP packets.
    RoceV2,
    /// The kernel says nothing known, as for iWARP.
    Other,
}

impl Port {
    pub(crate) fn read(tree: &Tree, device: &str, node_type: NodeType, number: u8) -> Self {
        let path = format!("{device}/ports/{number}");
        let text = |file: &str| tree.text(format!("{path}/{file}")).unwrap_or_default();
        let link_layer = LinkLayer::parse(&text("link_layer"));
        let mut gids = gids(tree, &path, link_layer);
        if node_type == NodeType::Rnic {
            // The kernel calls the type of all GIDs that are not of RoCE v2 the same.
            gids.iter_mut()
                .for_each(|entry| entry.gid_type = GidType::Other);
        }
        let interface = gids
            .iter()
            .find_map(|entry| entry.interface.clone())
            .or_else(|| tree.text(format!("{device}/parent")))
            .or_else(|| interface_of_card(tree, device, number))
            .or_else(|| {
                interface_of_iwarp(tree, gids.first().filter(|_| node_type == NodeType::Rnic)?)
            });
        let mtu = |name: &String| tree.number(format!("sys/class/net/{name}/mtu"));
        Self {
            number,
            state: PortState::parse(&text("state")),
            physical_state: text("phys_state"),
            link_layer,
            rate: text("rate"),
            lid: hexadecimal(&text("lid")).unwrap_or(0),
            lid_mask_count: text("lid_mask_count").parse().unwrap_or(0),
            subnet_manager_lid: hexadecimal(&text("sm_lid")).unwrap_or(0),
            interface_mtu: interface
                .as_ref()
                .and_then(mtu)
                .and_then(|mtu| u32::try_from(mtu).ok()),
            interface,
            gids,
        }
    }

    /// The path MTU that RoCE has room for in packets of the interface; `None` if nothing fits, or if it is not RoCE.
    pub fn largest_path_mtu(&self) -> Option<PathMtu> {
        /// IPv6, UDP, the longest RDMA headers and the ICRC, as the kernel counts.
        const LONGEST_HEADERS: u32 = 80;
        let mtu = self
            .interface_mtu
            .filter(|_| self.link_layer == LinkLayer::Ethernet)?;
        PathMtu::largest_within(mtu.checked_sub(LONGEST_HEADERS)? as usize)
    }

    /// The entry to use: RoCEv2 or InfiniBand, and an IPv4 address before other ones, because every peer has such a GID.
    pub fn recommended_gid(&self) -> Option<&GidEntry> {
        let rank = |entry: &&GidEntry| {
            let version = match entry.gid_type {
                GidType::RoceV2 | GidType::InfiniBand => 0,
                GidType::Other => 1,
                GidType::RoceV1 => 2,
            };
            let address = match entry.address() {
                Some(IpAddr::V4(_)) => 0,
                Some(IpAddr::V6(address)) if address.is_unicast_link_local() => 2,
                _ => 1,
            };
            (version, address, entry.index)
        };
        self.gids.iter().min_by_key(rank)
    }
}

impl GidEntry {
    /// The IP address that the GID contains.
    pub fn address(&self) -> Option<IpAddr> {
        self.gid.ip()
    }
}

fn gids(tree: &Tree, port: &str, link_layer: LinkLayer) -> Vec<GidEntry> {
    let indices = tree.names(format!("{port}/gids")).into_iter();
    let mut entries: Vec<GidEntry> = indices
        .filter_map(|index| {
            let gid: Gid = tree.text(format!("{port}/gids/{index}"))?.parse().ok()?;
            let attribute = |name: &str| tree.text(format!("{port}/gid_attrs/{name}/{index}"));
            (!gid.is_zero()).then(|| GidEntry {
                index: index.parse().unwrap_or(usize::MAX),
                gid,
                gid_type: GidType::parse(attribute("types").as_deref(), link_layer),
                interface: attribute("ndevs").filter(|name| !name.is_empty()),
            })
        })
        .collect();
    entries.sort_by_key(|entry| entry.index);
    entries
}

/// The interface of a card that belongs to a port: a card with two ports may have both at one PCI function.
fn interface_of_card(tree: &Tree, device: &str, number: u8) -> Option<String> {
    let directory = format!("{device}/device/net");
    let mut names = tree.names(&directory).into_iter();
    names.find(|name| {
        let port = tree.number(format!("{directory}/{name}/dev_port"));
        port.unwrap_or(0) + 1 == u64::from(number)
    })
}

/// The interface of an iWARP device, whose GID begins with the Ethernet address.
fn interface_of_iwarp(tree: &Tree, gid: &GidEntry) -> Option<String> {
    const CLASS: &str = "sys/class/net";
    let bytes = gid.gid.bytes();
    let bytes: Vec<_> = bytes[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let address = bytes.join(":");
    let mut names = tree.names(CLASS).into_iter();
    names.find(|name| tree.text(format!("{CLASS}/{name}/address")).as_ref() == Some(&address))
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

impl PortState {
    /// Parses `4: ACTIVE`.
    fn parse(text: &str) -> Self {
        match text.split(':').next() {
            Some("1") => Self::Down,
            Some("2") => Self::Initializing,
            Some("3") => Self::Armed,
            Some("4") => Self::Active,
            Some("5") => Self::ActiveDefer,
            _ => Self::Unknown,
        }
    }

    /// Its name and number in verbs.h.
    pub fn verbs_name(self) -> (&'static str, u8) {
        match self {
            Self::Down => ("PORT_DOWN", 1),
            Self::Initializing => ("PORT_INIT", 2),
            Self::Armed => ("PORT_ARMED", 3),
            Self::Active => ("PORT_ACTIVE", 4),
            Self::ActiveDefer => ("PORT_ACTIVE_DEFER", 5),
            Self::Unknown => ("PORT_NOP", 0),
        }
    }
}

impl LinkLayer {
    fn parse(text: &str) -> Self {
        match text {
            "Ethernet" => Self::Ethernet,
            "InfiniBand" => Self::InfiniBand,
            _ => Self::Other,
        }
    }

    /// Its name in the output of `ibv_devinfo`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "Ethernet",
            Self::InfiniBand => "InfiniBand",
            Self::Other => "Unspecified",
        }
    }
}

impl GidType {
    /// The kernel writes `IB/RoCE v1` for two types.
    fn parse(text: Option<&str>, link_layer: LinkLayer) -> Self {
        match (text, link_layer) {
            (Some("RoCE v2"), _) => Self::RoceV2,
            (Some("IB/RoCE v1"), LinkLayer::Ethernet) => Self::RoceV1,
            (_, LinkLayer::InfiniBand) => Self::InfiniBand,
            _ => Self::Other,
        }
    }

    /// Its name in the output of `show_gids`.
    pub fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "IB",
            Self::RoceV1 => "v1",
            Self::RoceV2 => "v2",
            Self::Other => "-",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn port(fixture: &Fixture) -> Port {
        fixture.tree().devices().remove(0).ports.remove(0)
    }

    #[test]
    fn roce_v2_and_ipv4_are_recommended() {
        let port = port(&Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core"));
        assert_eq!(port.recommended_gid().map(|it| it.index), Some(3));
        assert_eq!(port.largest_path_mtu(), Some(PathMtu::Mtu4096));
    }

    #[test]
    fn roce_v1_is_recommended_only_without_v2() {
        let fixture = Fixture::with_rxe("rxe0");
        let path = "sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1";
        fixture.file(path, "IB/RoCE v1");
        assert_eq!(port(&fixture).recommended_gid().map(|it| it.index), Some(0));
    }

    #[test]
    fn empty_entries_of_the_table_are_left_out() {
        let fixture = Fixture::with_rxe("rxe0");
        fixture.add_gids("rxe0", &[(2, "::", "", "")]);
        assert_eq!(port(&fixture).gids.len(), 2);
    }

    #[test]
    fn gids_of_an_infiniband_port_are_not_roce() {
        let fixture = Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core");
        fixture.file(
            "sys/class/infiniband/mlx5_0/ports/1/link_layer",
            "InfiniBand",
        );
        fixture.file("sys/class/infiniband/mlx5_0/ports/1/lid", "0x2a");
        let port = port(&fixture);
        assert_eq!(port.lid, 42);
        assert_eq!(port.gids[0].gid_type, GidType::InfiniBand);
        assert_eq!(port.largest_path_mtu(), None);
    }

    #[test]
    fn numbers_of_the_subnet_that_the_kernel_does_not_show_are_zero() {
        let fixture = Fixture::with_rxe("rxe0");
        let directory = "sys/class/infiniband/rxe0/ports/1";
        let numbers = |port: Port| (port.lid, port.lid_mask_count, port.subnet_manager_lid);
        fixture.remove(format!("{directory}/lid"));
        assert_eq!(numbers(port(&fixture)), (0, 0, 0));
        for (file, text) in [("lid", "0x5"), ("lid_mask_count", "6"), ("sm_lid", "0x7")] {
            fixture.file(format!("{directory}/{file}"), text);
        }
        assert_eq!(numbers(port(&fixture)), (5, 6, 7));
    }

    #[test]
    fn the_second_port_of_a_card_has_the_interface_of_that_number() {
        let fixture = Fixture::new();
        fixture.add_nic("mlx4_0", "0000:81:00.0", "mlx4_core");
        for (name, number) in [("eth4", "0"), ("eth5", "1")] {
            let path = format!("sys/bus/pci/devices/0000:81:00.0/net/{name}/dev_port");
            fixture.file(path, number);
            fixture.add_interface(name, 1500);
        }
        let path = "sys/class/infiniband/mlx4_0/ports/2/state";
        fixture.file(path, "1: DOWN");
        let ports = fixture.tree().devices().remove(0).ports;
        let interfaces: Vec<_> = ports.iter().map(|it| it.interface.as_deref()).collect();
        assert_eq!(interfaces, [Some("eth4"), Some("eth5")]);
        assert_eq!(ports[1].state, PortState::Down);
    }
}

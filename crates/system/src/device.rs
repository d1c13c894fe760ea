//! A device of the system, as sysfs describes it.

use crate::kind::{DRIVERS, Kind};
use crate::node_type::NodeType;
use crate::port::Port;
use crate::tree::Tree;

const CLASS: &str = "sys/class/infiniband";
const VERBS_CLASS: &str = "sys/class/infiniband_verbs";

/// What the device files of this project contain in `board_id`.
const OUR_BOARD: &str = "rocinante";

/// A device of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The name that programs ask for.
    pub name: String,
    /// Which driver makes it.
    pub kind: Kind,
    /// What it is in a fabric.
    pub node_type: NodeType,
    /// The number of the node, as the kernel writes it: `5054:00ff:fe12:3456`.
    pub node_guid: String,
    /// The number of the machine or card that it belongs to.
    pub system_image_guid: String,
    /// The version of the firmware; empty if it has none.
    pub firmware: String,
    /// The identification of the board; empty if it has none.
    pub board: String,
    /// The PCI function that it belongs to, such as `0000:81:00.0`.
    pub pci_function: Option<String>,
    /// The character device of its verbs, such as `uverbs0`; `None` if `ib_uverbs` is not loaded.
    pub character_device: Option<String>,
    /// Its ports.
    pub ports: Vec<Port>,
}

impl Tree {
    /// The RDMA devices of the system, without those of this project.
    pub fn devices(&self) -> Vec<Device> {
        #[cfg(any(test, feature = "fixture"))]
        if self.is_of_running_system()
            && let Some(devices) = crate::fixture::stand_in_devices()
        {
            return devices.to_vec();
        }
        let names = self.names(CLASS).into_iter();
        let devices = names.map(|name| Device::read(self, name));
        devices.filter(|device| device.board != OUR_BOARD).collect()
    }

    /// The modules that would make RDMA devices of cards that have none: the PCI function, and the module.
    pub fn missing_modules(&self) -> Vec<(String, &'static str)> {
        const FUNCTIONS: &str = "sys/bus/pci/devices";
        let devices = self.devices();
        let has_device = |slot: &String| {
            let mut functions = devices.iter().filter_map(|it| it.pci_function.as_ref());
            functions.any(|function| function == slot)
        };
        let module = |slot: &String| {
            let driver = self.link_target(format!("{FUNCTIONS}/{slot}/driver"))?;
            let row = DRIVERS.iter().find(|row| row.driver == driver)?;
            // If the RDMA module is loaded, or the driver has no separate one, no module is missing: the card makes no device.
            let loaded = self.has(format!("sys/module/{}", row.module));
            (!loaded && row.module != row.driver).then_some(row.module)
        };
        let slots = self.names(FUNCTIONS).into_iter();
        slots
            .filter(|slot| !has_device(slot))
            .filter_map(|slot| Some((module(&slot)?, slot)))
            .map(|(module, slot)| (slot, module))
            .collect()
    }
}

impl Device {
    fn read(tree: &Tree, name: String) -> Self {
        let path = format!("{CLASS}/{name}");
        let text = |file: &str| tree.text(format!("{path}/{file}")).unwrap_or_default();
        let node_type = NodeType::parse(&text("node_type"));
        let numbers = tree.names(format!("{path}/ports"));
        let ports = numbers.iter().filter_map(|number| number.parse().ok());
        Self {
            kind: Kind::of(tree, &path, node_type),
            node_type,
            node_guid: text("node_guid"),
            system_image_guid: text("sys_image_guid"),
            firmware: text("fw_ver"),
            board: text("board_id"),
            pci_function: tree.link_target(format!("{path}/device")),
            character_device: character_device(tree, &name),
            ports: ports
                .map(|number| Port::read(tree, &path, node_type, number))
                .collect(),
            name,
        }
    }

    /// A number in a file of the directory `hw_counters` or `counters` of a port.
    pub fn counter(&self, tree: &Tree, port: u8, name: &str) -> Option<u64> {
        let port = format!("{CLASS}/{}/ports/{port}", self.name);
        let in_directory = |directory| tree.number(format!("{port}/{directory}/{name}"));
        in_directory("hw_counters").or_else(|| in_directory("counters"))
    }
}

fn character_device(tree: &Tree, device: &str) -> Option<String> {
    let mut names = tree.names(VERBS_CLASS).into_iter();
    names.find(|name| tree.text(format!("{VERBS_CLASS}/{name}/ibdev")).as_deref() == Some(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::{GidType, LinkLayer, PortState};

    fn only(fixture: &Fixture) -> Device {
        let devices = fixture.tree().devices();
        let [device] = <[Device; 1]>::try_from(devices).expect("one device");
        device
    }

    #[test]
    fn soft_roce_is_recognized_whatever_its_name() {
        let device = only(&Fixture::with_rxe("left"));
        assert_eq!(device.kind.name(), "rxe");
        assert_eq!(device.character_device.as_deref(), Some("uverbs0"));
        let port = &device.ports[0];
        assert_eq!(port.state, PortState::Active);
        assert_eq!(port.link_layer, LinkLayer::Ethernet);
        assert_eq!(port.interface.as_deref(), Some("eth0"));
        assert_eq!(port.interface_mtu, Some(1500));
        let gids: Vec<_> = port.gids.iter().map(|it| (it.index, it.gid_type)).collect();
        assert_eq!(gids, [(0, GidType::RoceV2), (1, GidType::RoceV2)]);
    }

    #[test]
    fn a_nic_is_named_after_the_driver_of_its_pci_function() {
        for (driver, kind) in [
            ("mlx5_core", "mlx5"),
            ("ice", "irdma"),
            ("bnxt_en", "bnxt_re"),
            ("efa", "efa"),
            ("a_new_one", "a_new_one"),
        ] {
            let device = only(&Fixture::with_nic("nic0", "0000:81:00.0", driver));
            assert_eq!(device.kind.name(), kind);
            assert_eq!(device.pci_function.as_deref(), Some("0000:81:00.0"));
            assert_eq!(device.firmware, "16.35.2000");
        }
    }

    #[test]
    fn an_iwarp_device_without_hardware_is_siw() {
        let fixture = Fixture::new();
        fixture.add_device("siw0", "4: RNIC");
        fixture.add_gids("siw0", &[(0, "5254:c8:2::", "IB/RoCE v1", "")]);
        fixture.add_interface("eth0", 1500);
        fixture.file("sys/class/net/eth0/address", "52:54:00:c8:00:02");
        let device = only(&fixture);
        let port = &device.ports[0];
        assert_eq!(port.gids[0].gid_type, GidType::Other);
        assert_eq!(port.interface.as_deref(), Some("eth0"));
        assert_eq!(device.kind.name(), "siw");
        assert_eq!(device.node_type, NodeType::Rnic);
    }

    #[test]
    fn devices_of_this_project_are_left_out() {
        let fixture = Fixture::with_rxe("rxe0");
        fixture.file("sys/class/infiniband/rxe0/board_id", OUR_BOARD);
        assert!(fixture.tree().devices().is_empty());
    }

    #[test]
    fn a_machine_without_rdma_has_no_devices() {
        let fixture = Fixture::new();
        assert!(fixture.tree().devices().is_empty());
        assert!(fixture.tree().missing_modules().is_empty());
    }

    #[test]
    fn a_card_without_its_second_module_is_found() {
        let fixture = Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core");
        fixture.add_pci_function("0000:81:00.1", "mlx5_core");
        fixture.add_pci_function("0000:02:00.0", "e1000e");
        let missing = fixture.tree().missing_modules();
        assert_eq!(missing, [("0000:81:00.1".to_owned(), "mlx5_ib")]);
        fixture.file("sys/module/mlx5_ib/refcnt", "0");
        assert!(fixture.tree().missing_modules().is_empty());
    }
}

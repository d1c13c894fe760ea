//! An open device of the system.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use driver::{DeviceChoice, OpenError, OpenOptions};
use engine::SystemRefusal;
use net::socket::interface::{
    self, Choice, Device, DeviceKind, GidEntry, InterfaceId, LinkState, SoftwareChoice,
    SystemChoice,
};
use system::{GidType, LinkLayer, NodeType, Port, PortState, Tree, verbs};
use wire::{Gid, PathMtu};

/// An open device of the system, and what is known of its port.
#[derive(Debug)]
pub(crate) struct SystemDevice {
    pub(crate) context: Arc<verbs::Context>,
    pub(crate) device: Device,
    /// The GID table; an all-zero entry is empty.
    pub(crate) gids: Vec<Gid>,
    /// The port that queue pairs use.
    pub(crate) port: u8,
    /// The index of the GID that queue pairs use by default.
    pub(crate) gid_index: u8,
    /// How many reads and atomics may be outstanding in each direction.
    pub(crate) max_reads: u8,
    /// Whether its connections are TCP connections, which only a connection manager can make.
    pub(crate) is_iwarp: bool,
}

/// The devices of the system that the environment asks for.
pub(crate) fn devices() -> Result<Vec<Device>, OpenError> {
    if driver::is_simulated() {
        return Ok(Vec::new());
    }
    let choice = Choice::from_env()?.system;
    let found = Tree::of_machine().devices().into_iter();
    let chosen = found.filter(|device| choice.includes(&device.name));
    Ok(chosen
        .filter_map(|device| describe(&device, port_of(&device)?))
        .collect())
}

/// Whether a name means a device of the system, which is returned then.
pub(crate) fn named(
    name: &str,
    options: &OpenOptions,
) -> Result<Option<system::Device>, OpenError> {
    if driver::is_simulated() || options.devices == DeviceChoice::Software {
        return Ok(None);
    }
    let choice = Choice::from_env()?;
    let by_name = options.devices == DeviceChoice::System;
    if !by_name && !choice.system.includes(name) {
        return Ok(None);
    }
    let mut found = Tree::of_machine().devices().into_iter();
    let Some(found) = found.find(|device| device.name == name) else {
        return Ok(None);
    };
    let may_be_ours = !by_name && choice.software != SoftwareChoice::None;
    if may_be_ours && driver::devices()?.iter().any(|it| it.name == name) {
        let name = name.to_owned();
        return Err(OpenError::Ambiguous { name });
    }
    Ok(Some(found))
}

/// The devices of the system that an address stands for: none, unless `ROCI_DEVICES` names no others.
pub(crate) fn of_addresses() -> Result<Option<SystemChoice>, OpenError> {
    if driver::is_simulated() {
        return Ok(None);
    }
    let choice = Choice::from_env()?;
    Ok((choice.software == SoftwareChoice::None).then_some(choice.system))
}

/// The open devices that an id of the connection manager uses at their addresses.
fn open_devices() -> MutexGuard<'static, Vec<Weak<SystemDevice>>> {
    static OPEN: Mutex<Vec<Weak<SystemDevice>>> = Mutex::new(Vec::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Offers an open device to all who find it by an address.
pub(crate) fn offer(device: &Arc<SystemDevice>) {
    open_devices().push(Arc::downgrade(device));
}

/// The device with a name, for all who find it by an address.
pub(crate) fn shared(name: &str) -> Result<Arc<SystemDevice>, OpenError> {
    let find = |open: &mut Vec<Weak<SystemDevice>>| {
        open.retain(|device| device.strong_count() > 0);
        let mut devices = open.iter().filter_map(Weak::upgrade);
        devices.find(|device| device.device.name == name)
    };
    if let Some(found) = find(&mut open_devices()) {
        return Ok(found);
    }
    let mut devices = Tree::of_machine().devices().into_iter();
    let device = devices.find(|device| device.name == name);
    let device = device.ok_or_else(|| OpenError::Unknown {
        name: name.to_owned(),
        known: Vec::new(),
    })?;
    let opened = Arc::new(SystemDevice::open(&device, &OpenOptions::from_env())?);
    // Another thread may have opened it meanwhile.
    let mut open = open_devices();
    Ok(find(&mut open).unwrap_or_else(|| {
        open.push(Arc::downgrade(&opened));
        opened
    }))
}

impl SystemDevice {
    /// Opens a device. Its first active port is used.
    pub(crate) fn open(found: &system::Device, options: &OpenOptions) -> Result<Self, OpenError> {
        let name = &found.name;
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| OpenError::SystemDevice {
            name: name.clone(),
            error,
        };
        if let Some(what) = needs_software(options) {
            return Err(failed(format!("{what} need a software device").into()));
        }
        let port = port_of(found).ok_or_else(|| {
            failed("it has no RoCE or iWARP port, and InfiniBand is not offered yet".into())
        })?;
        let context = verbs::Context::open(name).map_err(|error| failed(error.into()))?;
        let attributes = context.port(port.number);
        let attributes = attributes.map_err(|error| failed(error.into()))?;
        let max_reads = max_reads(&context).map_err(|error| failed(error.into()))?;
        let mut device =
            describe(found, port).ok_or_else(|| failed("its port has no MTU".into()))?;
        device.active_mtu = attributes.active_mtu.unwrap_or(device.active_mtu);
        let recommended = port.recommended_gid().map_or(0, |entry| entry.index);
        Ok(Self {
            context,
            device,
            gids: table(port),
            port: port.number,
            gid_index: u8::try_from(recommended).unwrap_or(0),
            max_reads,
            is_iwarp: found.node_type == NodeType::Rnic,
        })
    }
}

/// The smaller limit of both directions.
fn max_reads(context: &verbs::Context) -> Result<u8, SystemRefusal> {
    let limits = context.attributes()?.limits;
    let of_reads = ["max_qp_rd_atom", "max_qp_init_rd_atom"];
    let found = limits.iter().filter(|(name, _)| of_reads.contains(name));
    let smallest = found.map(|(_, limit)| *limit).min().unwrap_or(0);
    Ok(u8::try_from(smallest).unwrap_or(u8::MAX))
}

/// An option that only our devices have.
fn needs_software(options: &OpenOptions) -> Option<&'static str> {
    let wanted = [
        (options.capture.is_some(), "captures"),
        (options.faults.is_some(), "injected faults"),
        (options.check.is_some(), "checks of the program"),
    ];
    let found = wanted.into_iter().find(|(is_wanted, _)| *is_wanted);
    found.map(|(_, what)| what)
}

/// The port to use: the first active one, or the first.
fn port_of(device: &system::Device) -> Option<&Port> {
    let is_offered = |port: &&Port| {
        device.node_type != NodeType::Other && port.link_layer == LinkLayer::Ethernet
    };
    let ports = || device.ports.iter().filter(is_offered);
    let active = ports().find(|port| port.state == PortState::Active);
    active.or_else(|| ports().next())
}

/// The table with its empty entries.
fn table(port: &Port) -> Vec<Gid> {
    let length = port.gids.last().map_or(0, |entry| entry.index + 1);
    let mut gids = vec![Gid::default(); length];
    for entry in &port.gids {
        gids[entry.index] = entry.gid;
    }
    gids
}

/// The description of a device by its port.
fn describe(device: &system::Device, port: &Port) -> Option<Device> {
    let interfaces = interface::interfaces().unwrap_or_default();
    let id = |name: &String| {
        let found = interfaces.iter().find(|it| it.name == *name);
        InterfaceId {
            name: name.clone(),
            index: found.map_or(0, |it| it.index),
        }
    };
    let entry = |entry: &system::GidEntry| {
        Some(GidEntry {
            index: entry.index,
            gid: entry.gid,
            address: entry.address()?,
            interface: id(entry.interface.as_ref().or(port.interface.as_ref())?),
        })
    };
    let version_2 = port.gids.iter().filter(|it| it.gid_type == GidType::RoceV2);
    let gids = match device.node_type {
        NodeType::Rnic => addresses(port, &interfaces),
        _ => version_2.filter_map(entry).collect(),
    };
    Some(Device {
        name: device.name.clone(),
        kind: DeviceKind::System {
            driver: device.kind.to_string(),
        },
        interface: port.interface.as_ref().map(id),
        mtu: port.interface_mtu.unwrap_or(0),
        active_mtu: port.largest_path_mtu().unwrap_or(PathMtu::Mtu256),
        gids,
        guid: guid(&device.node_guid),
        state: match port.state {
            PortState::Active => LinkState::Active,
            _ => LinkState::Down,
        },
    })
}

/// The addresses of the interface of an iWARP device. Its GIDs have none.
fn addresses(port: &Port, interfaces: &[interface::Interface]) -> Vec<GidEntry> {
    let of_port = |it: &&interface::Interface| port.interface.as_ref() == Some(&it.name);
    let Some(found) = interfaces.iter().find(of_port) else {
        return Vec::new();
    };
    let addresses = found.addresses.iter().enumerate();
    let entry = |(index, address): (usize, &interface::Address)| GidEntry {
        index,
        gid: address.ip.into(),
        address: address.ip,
        interface: InterfaceId {
            name: found.name.clone(),
            index: found.index,
        },
    };
    addresses.map(entry).collect()
}

/// A GUID as the kernel writes it, in four groups.
fn guid(text: &str) -> u64 {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use system::fixture::Fixture;

    #[test]
    fn a_device_of_the_system_is_described_as_ours_are() {
        let fixture = Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core");
        let found = fixture.tree().devices().remove(0);
        let port = port_of(&found).expect("a RoCE port");
        let device = describe(&found, port).expect("a description");
        let driver = "mlx5".to_owned();
        assert_eq!(device.kind, DeviceKind::System { driver });
        assert_eq!(device.guid, 0x5054_00ff_fe12_3456);
        // The entries of RoCE v1 are left out, and the others keep their indices.
        let indices: Vec<_> = device.gids.iter().map(|entry| entry.index).collect();
        assert_eq!(indices, [1, 3]);
        let address = device.gid(3).map(|entry| entry.address);
        assert_eq!(address, Some([10, 0, 0, 1].into()));
        assert_eq!(device.gid(0), None);
        assert_eq!(table(port).len(), 4);
        assert_eq!(port.recommended_gid().map(|entry| entry.index), Some(3));
    }

    /// Its GID is an Ethernet address.
    #[test]
    fn an_iwarp_device_has_the_addresses_of_its_interface() {
        let fixture = Fixture::new();
        fixture.add_device("siw0", "4: RNIC");
        fixture.add_gids("siw0", &[(0, "5254:c8:2::", "IB/RoCE v1", "")]);
        fixture.add_interface("lo", 9000);
        fixture.file("sys/class/net/lo/address", "52:54:00:c8:00:02");
        let found = fixture.tree().devices().remove(0);
        let port = port_of(&found).expect("an iWARP port");
        let device = describe(&found, port).expect("a description");
        let entry = device
            .gid(0)
            .expect("the address of the loopback interface");
        assert!(entry.address.is_loopback());
        assert_eq!(entry.gid, entry.address.into());
        assert_eq!(entry.interface.name, "lo");
    }

    #[test]
    fn an_iwarp_device_has_every_address_of_its_own_interface() {
        let fixture = Fixture::new();
        fixture.add_device("siw0", "4: RNIC");
        fixture.add_gids("siw0", &[(0, "5254:c8:2::", "IB/RoCE v1", "eth1")]);
        let found = fixture.tree().devices().remove(0);
        let address = |index: u8, last: u8| interface::Address {
            ip: [10, 0, index, last].into(),
            prefix: 24,
        };
        let interface = |index: u8| interface::Interface {
            name: format!("eth{index}"),
            index: index.into(),
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            mac: None,
            addresses: [1, 2].map(|last| address(index, last)).to_vec(),
        };
        let port = port_of(&found).expect("an iWARP port");
        let found = addresses(port, &[0, 1, 2].map(interface));
        let found: Vec<_> = found.iter().map(|it| (it.index, it.address)).collect();
        let [first, second] = [1, 2].map(|last| address(1, last).ip);
        assert_eq!(found, [(0, first), (1, second)]);
    }

    #[test]
    fn an_infiniband_port_is_not_offered() {
        let fixture = Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core");
        fixture.file(
            "sys/class/infiniband/mlx5_0/ports/1/link_layer",
            "InfiniBand",
        );
        let found = fixture.tree().devices().remove(0);
        let options = OpenOptions::default();
        let error = SystemDevice::open(&found, &options).expect_err("it has no RoCE port");
        assert!(
            error.to_string().contains("no RoCE or iWARP port"),
            "{error}"
        );
    }

    #[test]
    fn options_that_only_our_devices_have_are_refused() {
        let fixture = Fixture::with_rxe("rxe0");
        let found = fixture.tree().devices().remove(0);
        let options = OpenOptions {
            faults: Some("loss=1%".to_owned()),
            ..OpenOptions::default()
        };
        let error = SystemDevice::open(&found, &options).expect_err("faults can't be injected");
        assert!(
            error
                .to_string()
                .ends_with("injected faults need a software device"),
            "{error}"
        );
    }
}

//! Checks that need an open device: the MTU that its port uses, and a message to itself.

use ::system::{Device, LinkLayer, NodeType, Port, PortState};
use rocinante::{Context, DeviceChoice, OpenOptions, PathMtu};

use super::super::network::round_trip_at;
use super::{Check, Machine};

/// Opens each RoCE device that can carry packets, and uses it.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    // The libraries know only the devices of the running system.
    if !machine.tree.is_of_running_system() {
        return Vec::new();
    }
    let devices = machine.devices.iter();
    let usable = devices.filter_map(|device| {
        let is_usable = |port: &&Port| {
            port.link_layer == LinkLayer::Ethernet && port.state == PortState::Active
        };
        let port = device.ports.iter().find(is_usable)?;
        (device.node_type == NodeType::ChannelAdapter).then_some((device, port))
    });
    usable
        .flat_map(|(device, port)| check(device, port))
        .collect()
}

fn check(device: &Device, port: &Port) -> Vec<Check> {
    let options = OpenOptions {
        devices: DeviceChoice::System,
        ..OpenOptions::default()
    };
    let name = &device.name;
    let context = match Context::open_with(name, &options) {
        Ok(context) => context,
        Err(error) => {
            let advice = "Rust programs can't use the device until this is corrected";
            return vec![Check::warn("open device", error.to_string(), advice)];
        }
    };
    let mismatch = mtu_mismatch(device, port, context.active_mtu());
    let ping = match round_trip_at(&context) {
        Ok(took) => Check::ok(
            "RDMA ping",
            format!(
                "64 bytes from {name} to itself and back in {} µs",
                took.as_micros()
            ),
        ),
        Err(error) => Check::fail(
            "RDMA ping",
            format!("{name}: {error:#}"),
            "correct what failed above; `dmesg` may say more about the device",
        ),
    };
    mismatch.into_iter().chain([ping]).collect()
}

/// A port whose packets are longer than its interface carries loses them; with shorter ones it is slower.
fn mtu_mismatch(device: &Device, port: &Port, active: PathMtu) -> Option<Check> {
    let (interface, mtu) = (port.interface.as_ref()?, port.interface_mtu?);
    let fitting = port.largest_path_mtu()?;
    if active == fitting {
        return None;
    }
    let (name, number) = (&device.name, port.number);
    let effect = if active.bytes() > fitting.bytes() {
        "long packets are lost"
    } else {
        "it is slower than necessary"
    };
    Some(Check::warn(
        "path MTU",
        format!(
            "port {number} of {name} uses a path MTU of {active}, and {interface}, with an MTU of {mtu}, has room for \
             {fitting}: {effect}"
        ),
        format!(
            "set the MTU again with `ip link set {interface} mtu {mtu}`, so that the port learns it"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::nic;
    use super::*;

    #[test]
    fn a_port_with_another_mtu_than_its_interface_is_named() {
        let device = nic().tree().devices().remove(0);
        let port = &device.ports[0];
        let finding = |active| mtu_mismatch(&device, port, active).map(|it| it.finding);
        assert_eq!(finding(PathMtu::Mtu4096), None);
        let text = finding(PathMtu::Mtu1024).expect("eth0 has an MTU of 9000");
        assert!(
            text.ends_with("has room for 4096: it is slower than necessary"),
            "{text}"
        );
        let narrow = Port {
            interface_mtu: Some(1500),
            ..port.clone()
        };
        let text = mtu_mismatch(&device, &narrow, PathMtu::Mtu4096);
        let text = text.expect("4096 bytes do not fit").finding;
        assert!(
            text.ends_with("has room for 1024: long packets are lost"),
            "{text}"
        );
    }
}

//! Ports: their state, their MTU, and their counters of congestion and loss.

use ::system::{Device, LinkLayer, NodeType, Port, PortState};

use super::{Check, Machine};
use crate::output::count;

/// Each device and its ports.
pub(super) fn describe(machine: &Machine) -> Vec<Check> {
    ports(machine)
        .map(|(device, port)| describe_port(device, port))
        .collect()
}

fn ports(machine: &Machine) -> impl Iterator<Item = (&Device, &Port)> {
    let devices = machine.devices.iter();
    devices.flat_map(|device| device.ports.iter().map(move |port| (device, port)))
}

fn describe_port(device: &Device, port: &Port) -> Check {
    const CHECK: &str = "RDMA device";
    let (name, kind, number) = (&device.name, &device.kind, port.number);
    let interface = port.interface.as_deref().unwrap_or("no interface");
    let gids = count(port.gids.len(), "GID", "GIDs");
    let text = format!(
        "{name} ({kind}), port {number} on {interface}, {gids}, {}",
        port.rate
    );
    let advice = match (port.state, port.link_layer) {
        (PortState::Active, _) => return Check::ok(CHECK, text),
        (PortState::Initializing | PortState::Armed, LinkLayer::InfiniBand) => {
            "no subnet manager has configured the port; start one (`opensm`) in the fabric"
                .to_owned()
        }
        _ if port.physical_state.ends_with("Disabled") => {
            format!("bring the interface up with `ip link set {interface} up`")
        }
        _ => "check the cable, the switch and the interface".to_owned(),
    };
    let (state, _) = port.state.verbs_name();
    Check::warn(
        CHECK,
        format!("{text}, {state} ({})", port.physical_state),
        advice,
    )
}

/// Interfaces whose packets have no room for a useful path MTU.
pub(super) fn mtu(machine: &Machine) -> Vec<Check> {
    let finding = |(device, port): (&Device, &Port)| {
        let (name, number) = (&device.name, port.number);
        let (interface, mtu) = (port.interface.as_ref()?, port.interface_mtu?);
        let is_roce =
            device.node_type == NodeType::ChannelAdapter && port.link_layer == LinkLayer::Ethernet;
        (is_roce && port.largest_path_mtu().is_none()).then(|| {
            Check::fail(
                "path MTU",
                format!("{interface} has an MTU of {mtu}: no packet of port {number} of {name} fits"),
                format!("raise it with `ip link set {interface} mtu 1500`, or 4200 for the largest path MTU"),
            )
        })
    };
    ports(machine).filter_map(finding).collect()
}

/// Counters of packets that came out of order, because some were lost before.
const LOSS: [&str; 3] = ["out_of_sequence", "packet_seq_err", "out_of_seq_request"];

/// Counters of packets that a switch marked, and of notifications about them.
const CONGESTION: [&str; 3] = [
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rp_cnp_handled",
];

/// What the hardware counted, if it tells.
pub(super) fn congestion(machine: &Machine) -> Vec<Check> {
    let finding = |(device, port): (&Device, &Port)| {
        let sum = |names: &[&str]| {
            let counters = names.iter();
            let counters =
                counters.filter_map(|name| device.counter(&machine.tree, port.number, name));
            counters.reduce(u64::saturating_add)
        };
        let (name, number) = (&device.name, port.number);
        let lost = sum(&LOSS)?;
        let congestion = match sum(&CONGESTION) {
            Some(events) => format!("{events} marks of congestion"),
            None => "no counters of congestion".to_owned(),
        };
        let text = format!("port {number} of {name}: {lost} packets out of sequence, {congestion}");
        Some(if lost == 0 {
            Check::ok("lost packets", text)
        } else {
            Check::warn(
                "lost packets",
                text,
                "packets were lost since the counters began: check priority flow control (PFC) and ECN of switches and NICs",
            )
        })
    };
    ports(machine).filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{machine, nic, problem, problems};
    use super::*;

    const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

    #[test]
    fn a_port_that_is_down_is_named_with_its_reason() {
        let fixture = nic();
        fixture.file(format!("{PORT}/state"), "1: DOWN");
        fixture.file(format!("{PORT}/phys_state"), "3: Disabled");
        let findings = describe(&machine(&fixture));
        let advice = findings[0].advice.as_deref();
        assert_eq!(
            advice,
            Some("bring the interface up with `ip link set eth0 up`")
        );
        assert!(findings[0].finding.contains("PORT_DOWN"));
        assert_eq!(problem(&fixture).0, "RDMA device");
    }

    #[test]
    fn a_port_without_a_subnet_manager_is_named() {
        let fixture = nic();
        fixture.file(format!("{PORT}/state"), "2: INIT");
        fixture.file(format!("{PORT}/link_layer"), "InfiniBand");
        let findings = describe(&machine(&fixture));
        let advice = findings[0].advice.as_deref().expect("advice");
        assert!(advice.contains("subnet manager"), "{advice}");
    }

    #[test]
    fn an_mtu_without_room_is_named() {
        let fixture = nic();
        fixture.file("sys/class/net/eth0/mtu", "300");
        let (check, text) = problem(&fixture);
        assert_eq!(check, "path MTU");
        assert!(text.contains("MTU of 300"), "{text}");
    }

    #[test]
    fn lost_packets_are_reported_from_the_counters() {
        let fixture = nic();
        fixture.file(format!("{PORT}/hw_counters/out_of_sequence"), "0");
        fixture.file(format!("{PORT}/hw_counters/np_cnp_sent"), "12");
        assert_eq!(problems(&fixture), []);
        let findings = congestion(&machine(&fixture));
        assert!(findings[0].finding.contains("12 marks of congestion"));
        fixture.file(format!("{PORT}/hw_counters/out_of_sequence"), "7");
        let (check, text) = problem(&fixture);
        assert_eq!(check, "lost packets");
        assert!(text.contains("7 packets out of sequence"), "{text}");
    }
}

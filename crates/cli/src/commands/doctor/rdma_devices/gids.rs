//! GIDs: whether each address has one, and of which version.

use ::system::{Device, GidType, LinkLayer, NodeType, Port, PortState};

use super::{Check, Machine};

/// The RoCE ports that can carry packets.
fn roce_ports(machine: &Machine) -> impl Iterator<Item = (&Device, &Port)> {
    let devices = machine.devices.iter();
    let devices = devices.filter(|device| device.node_type == NodeType::ChannelAdapter);
    let ports = devices.flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    ports.filter(|(_, port)| {
        port.link_layer == LinkLayer::Ethernet && port.state == PortState::Active
    })
}

/// Addresses of a port's interface without a RoCEv2 GID.
pub(super) fn missing(machine: &Machine) -> Vec<Check> {
    let of_port = |(device, port): (&Device, &Port)| missing_at(machine, device, port);
    roce_ports(machine).flat_map(of_port).collect()
}

fn missing_at(machine: &Machine, device: &Device, port: &Port) -> Vec<Check> {
    let (name, number) = (&device.name, port.number);
    if port.gids.is_empty() {
        let text = format!("port {number} of {name} has no GID, so no peer can reach it");
        let advice = match &port.interface {
            Some(interface) => format!("give {interface} an address, and bring it up"),
            None => "give the interface of the card an address, and bring it up".to_owned(),
        };
        return vec![Check::fail("GID", text, advice)];
    }
    if port
        .gids
        .iter()
        .all(|entry| entry.gid_type == GidType::RoceV1)
    {
        return vec![Check::warn(
            "GID",
            format!(
                "port {number} of {name} has only RoCE v1: routers do not forward it, and most peers use v2"
            ),
            "enable RoCE v2 in the configuration of the card, or update its driver",
        )];
    }
    let addresses = machine
        .addresses
        .iter()
        .filter(|(interface, _)| port.interface.as_ref() == Some(interface));
    let has_gid = |address| {
        let mut gids = port.gids.iter();
        gids.any(|entry| entry.gid_type == GidType::RoceV2 && entry.address() == Some(address))
    };
    addresses
        .filter(|(_, address)| !has_gid(*address))
        .map(|(interface, address)| {
            Check::warn(
                "GID",
                format!("{address} of {interface} has no RoCE v2 GID at port {number} of {name}"),
                format!("remove the address and add it again, so that the kernel adds the GID; `roci gids {name}` shows the table"),
            )
        })
        .collect()
}

/// Devices whose connections by `rdma_cm` use RoCE v1.
pub(super) fn old_version(machine: &Machine) -> Vec<Check> {
    let finding = |(device, port): (&Device, &Port)| {
        let (name, number) = (&device.name, port.number);
        let directory = format!("sys/kernel/config/rdma_cm/{name}/ports/{number}");
        let mode = machine
            .tree
            .text(format!("{directory}/default_roce_mode"))?;
        (mode != "RoCE v2").then(|| {
            Check::warn(
                "RoCE version",
                format!(
                    "rdma_cm uses {mode} at port {number} of {name}, and most peers use RoCE v2"
                ),
                format!("choose v2 with `echo RoCE v2 | sudo tee /{directory}/default_roce_mode`"),
            )
        })
    };
    roce_ports(machine).filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{nic, problem, problems};

    const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

    #[test]
    fn a_port_without_a_gid_is_named() {
        let fixture = nic();
        fixture.remove(format!("{PORT}/gids"));
        let (check, text) = problem(&fixture);
        assert_eq!(
            (check, text.contains("has no GID")),
            ("GID", true),
            "{text}"
        );
    }

    #[test]
    fn an_address_without_a_gid_is_named() {
        let fixture = nic();
        fixture.remove(format!("{PORT}/gids/3"));
        let (check, text) = problem(&fixture);
        assert_eq!(check, "GID");
        assert!(text.starts_with("10.0.0.1 of eth0"), "{text}");
    }

    #[test]
    fn a_port_with_roce_v1_only_is_named() {
        let fixture = nic();
        for index in [1, 3] {
            fixture.file(format!("{PORT}/gid_attrs/types/{index}"), "IB/RoCE v1");
        }
        let (check, text) = problem(&fixture);
        assert_eq!(
            (check, text.contains("only RoCE v1")),
            ("GID", true),
            "{text}"
        );
    }

    #[test]
    fn a_connection_manager_that_chooses_roce_v1_is_named() {
        let fixture = nic();
        let mode = "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode";
        fixture.file(mode, "RoCE v2");
        assert_eq!(problems(&fixture), []);
        fixture.file(mode, "IB/RoCE v1");
        assert_eq!(problem(&fixture).0, "RoCE version");
    }

    #[test]
    fn an_infiniband_port_needs_no_roce() {
        let fixture = nic();
        fixture.file(format!("{PORT}/link_layer"), "InfiniBand");
        assert_eq!(problems(&fixture), []);
    }
}

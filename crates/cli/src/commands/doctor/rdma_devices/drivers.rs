//! Modules, firmware and versions.

use super::{Check, Machine};

/// Cards whose RDMA part is not loaded.
pub(super) fn missing_modules(machine: &Machine) -> Vec<Check> {
    let missing = machine.tree.missing_modules().into_iter();
    let finding = |(slot, module): (String, &str)| {
        Check::warn(
            "RDMA module",
            format!(
                "the card at {slot} can do RDMA, but has no RDMA device: {module} is not loaded"
            ),
            format!("load it with `sudo modprobe {module}`"),
        )
    };
    missing.map(finding).collect()
}

/// Parts of one driver with different versions, as after half an update; and equal cards with different firmware.
pub(super) fn versions(machine: &Machine) -> Vec<Check> {
    let mut findings: Vec<Check> = MODULE_PAIRS
        .iter()
        .filter_map(|pair| different_versions(machine, *pair))
        .collect();
    findings.extend(different_firmware(machine));
    findings
}

/// The module of the card, and the one that makes its RDMA devices.
const MODULE_PAIRS: [[&str; 2]; 4] = [
    ["mlx5_core", "mlx5_ib"],
    ["mlx4_core", "mlx4_ib"],
    ["bnxt_en", "bnxt_re"],
    ["ice", "irdma"],
];

/// Only modules that were not built with the kernel have a version of their own.
fn different_versions(machine: &Machine, pair: [&str; 2]) -> Option<Check> {
    let version = |module: &str| machine.tree.text(format!("sys/module/{module}/version"));
    let [card, rdma] = pair;
    let (of_card, of_rdma) = (version(card)?, version(rdma)?);
    (of_card != of_rdma).then(|| {
        Check::warn(
            "RDMA driver",
            format!("{card} has the version {of_card}, and {rdma} has {of_rdma}"),
            "install both from one package, and load them again or restart the machine",
        )
    })
}

fn different_firmware(machine: &Machine) -> Option<Check> {
    let cards = machine.devices.iter().filter(|it| !it.board.is_empty());
    let mut pairs = cards
        .clone()
        .flat_map(|a| cards.clone().map(move |b| (a, b)));
    let (one, other) = pairs.find(|(a, b)| a.board == b.board && a.firmware != b.firmware)?;
    Some(Check::warn(
        "firmware",
        format!(
            "{} has the firmware {}, and {}, an equal card, has {}",
            one.name, one.firmware, other.name, other.firmware
        ),
        "update the older one with the tools of its vendor; peers with different firmware may behave differently",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{nic, problem};

    #[test]
    fn a_card_without_its_rdma_module_is_named() {
        let fixture = nic();
        fixture.add_pci_function("0000:82:00.0", "bnxt_en");
        let (check, text) = problem(&fixture);
        assert_eq!(check, "RDMA module");
        assert!(
            text.contains("0000:82:00.0") && text.contains("bnxt_re"),
            "{text}"
        );
    }

    #[test]
    fn modules_of_different_versions_are_named() {
        let fixture = nic();
        fixture.file("sys/module/mlx5_core/version", "23.10-1.1.9");
        fixture.file("sys/module/mlx5_ib/version", "23.10-1.1.9");
        assert_eq!(super::super::fixtures::problems(&fixture), []);
        fixture.file("sys/module/mlx5_ib/version", "5.8-3.0.7");
        let (check, text) = problem(&fixture);
        assert_eq!(check, "RDMA driver");
        assert!(text.contains("5.8-3.0.7"), "{text}");
    }

    #[test]
    fn equal_cards_with_different_firmware_are_named() {
        let fixture = nic();
        fixture.add_nic("mlx5_1", "0000:81:00.1", "mlx5_core");
        fixture.add_gids("mlx5_1", &[(0, "::ffff:10.0.1.1", "RoCE v2", "eth1")]);
        fixture.add_interface("eth1", 9000);
        fixture.file("sys/class/infiniband/mlx5_1/fw_ver", "16.28.1002");
        let (check, text) = problem(&fixture);
        assert_eq!(check, "firmware");
        assert!(text.contains("16.28.1002"), "{text}");
    }
}

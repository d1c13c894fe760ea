//! The kind of a device: which driver makes it.

use std::fmt;

use crate::Tree;
use crate::node_type::NodeType;

/// Which driver makes a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    name: String,
}

/// A driver of network cards: its name, the name of the RDMA devices, and the module that makes them.
pub(crate) struct DriverRow {
    pub(crate) driver: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) module: &'static str,
}

const fn row(driver: &'static str, kind: &'static str, module: &'static str) -> DriverRow {
    DriverRow {
        driver,
        kind,
        module,
    }
}

/// The drivers of Linux 6.12 whose cards have RDMA devices. A PCI function has the driver of the network card; the
/// RDMA device is made by a second module.
pub(crate) const DRIVERS: [DriverRow; 17] = [
    row("mlx5_core", "mlx5", "mlx5_ib"),
    row("mlx4_core", "mlx4", "mlx4_ib"),
    row("ice", "irdma", "irdma"),
    row("i40e", "irdma", "irdma"),
    row("irdma", "irdma", "irdma"),
    row("bnxt_en", "bnxt_re", "bnxt_re"),
    row("efa", "efa", "efa"),
    row("hns3", "hns", "hns_roce_hw_v2"),
    row("qede", "qedr", "qedr"),
    row("cxgb4", "cxgb4", "iw_cxgb4"),
    row("mana", "mana", "mana_ib"),
    row("erdma", "erdma", "erdma"),
    row("be2net", "ocrdma", "ocrdma"),
    row("vmxnet3", "vmw_pvrdma", "vmw_pvrdma"),
    row("enic", "usnic", "usnic_verbs"),
    row("hfi1", "hfi1", "hfi1"),
    row("ib_mthca", "mthca", "ib_mthca"),
];

impl Kind {
    /// The kernel's Soft-RoCE.
    pub const RXE: &str = "rxe";
    /// The kernel's Soft-iWARP.
    pub const SIW: &str = "siw";

    /// The kind of a device at this path. Only rxe has a file `parent`. siw makes iWARP devices without hardware.
    pub(crate) fn of(tree: &Tree, path: &str, node_type: NodeType) -> Self {
        let hardware = tree.link_target(format!("{path}/device/driver"));
        let name = match hardware {
            Some(driver) => {
                let known = DRIVERS.iter().find(|row| row.driver == driver);
                known.map_or(driver, |row| row.kind.to_owned())
            }
            None if tree.has(format!("{path}/parent")) => Self::RXE.to_owned(),
            None if node_type == NodeType::Rnic => Self::SIW.to_owned(),
            None => "virtual".to_owned(),
        };
        Self { name }
    }

    /// The name, such as `mlx5` or `rxe`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

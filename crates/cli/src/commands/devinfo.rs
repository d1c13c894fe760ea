//! `roci devinfo`: describes devices in the format of `ibv_devinfo`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use clap::Args;
use rocinante::{
    Context, Device, LinkState, MAX_COMPLETIONS, MAX_MESSAGE, MAX_REQUESTS, MAX_SEGMENTS, PathMtu,
};
use serde::Serialize;

use super::devices::guid;
use crate::find_device;
use crate::output::{print, print_json};

/// The options of `roci devinfo`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  roci devinfo                 all devices
  roci devinfo -v roci_lo      one device, with its capabilities and GIDs
  roci devinfo eth0            by interface; an address works, too")]
pub(crate) struct Options {
    /// The device, its interface or one of its addresses [default: all devices]
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Also show capabilities and GIDs
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON, for scripts, capabilities and GIDs included
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    hca_id: String,
    transport: &'static str,
    fw_ver: &'static str,
    node_guid: String,
    sys_image_guid: String,
    phys_port_cnt: u8,
    /// Those that need the device to be open, if it can be opened.
    capabilities: BTreeMap<&'static str, u64>,
    ports: [Port; 1],
}

#[derive(Serialize)]
struct Port {
    port: u8,
    state: &'static str,
    max_mtu: usize,
    active_mtu: usize,
    link_layer: &'static str,
    gid_table_length: usize,
    gids: Vec<String>,
}

/// Describes devices.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let devices = match &options.device {
        Some(name) => vec![find_device::named(name)?],
        None => find_device::all()?,
    };
    if options.json {
        return print_json(&devices.iter().map(info).collect::<Vec<_>>());
    }
    let texts = devices.iter().map(|device| text(device, options.verbose));
    print(texts.collect::<Vec<_>>().join("\n"))
}

fn info(device: &Device) -> Info {
    Info {
        hca_id: device.name.clone(),
        transport: "InfiniBand",
        fw_ver: env!("CARGO_PKG_VERSION"),
        node_guid: guid(device.guid),
        sys_image_guid: guid(device.guid),
        phys_port_cnt: 1,
        capabilities: capabilities(device),
        ports: [Port {
            port: 1,
            state: state(device).0,
            max_mtu: PathMtu::Mtu4096.bytes(),
            active_mtu: device.active_mtu.bytes(),
            link_layer: "Ethernet",
            gid_table_length: Device::GID_TABLE_LENGTH,
            gids: device
                .gids
                .iter()
                .map(|entry| entry.gid.to_string())
                .collect(),
        }],
    }
}

/// The limits that `ibv_query_device` returns. The number of queue pairs depends on the processes that share the
/// address, so the device is opened.
fn capabilities(device: &Device) -> BTreeMap<&'static str, u64> {
    let Ok(context) = Context::open(&device.name) else {
        return BTreeMap::new();
    };
    let driver = context.driver();
    let (queue_pairs, limits) =
        driver.call_without_transmit(|device| (device.max_queue_pairs(), *device.limits()));
    let numbers = [
        ("max_ah", limits.address_handles),
        ("max_cq", limits.completion_queues),
        ("max_cqe", MAX_COMPLETIONS),
        ("max_mcast_grp", limits.multicast_groups),
        ("max_mcast_qp_attach", limits.group_members),
        ("max_mr", limits.memory_regions),
        ("max_mw", limits.memory_windows),
        ("max_pd", limits.domains),
        ("max_qp", queue_pairs),
        ("max_qp_wr", MAX_REQUESTS),
        ("max_sge", MAX_SEGMENTS),
        ("max_sge_rd", MAX_SEGMENTS),
        ("max_srq", limits.shared_receive_queues),
        ("max_srq_sge", MAX_SEGMENTS),
        ("max_srq_wr", MAX_REQUESTS),
        ("max_total_mcast_qp_attach", limits.group_memberships),
    ];
    let numbers = numbers.map(|(name, number)| (name, u64::from(number)));
    numbers
        .into_iter()
        .chain([("max_msg_sz", MAX_MESSAGE)])
        .collect()
}

/// The operations of each queue pair type.
const OPERATIONS: [(&str, &str); 4] = [
    (
        "RC",
        "send, write, read, atomics, flush, atomic write, invalidate",
    ),
    ("UC", "send, write"),
    ("UD", "send, multicast"),
    ("XRC", "as RC, with shared receive queues of the peer"),
];

/// A line with tabs up to the column of values, as in `ibv_devinfo`.
fn aligned(name: &str, value: impl Display) -> String {
    const VALUE_COLUMN: usize = 40;
    // A tab and the name, with its colon.
    let end = 8 + name.len() + 1;
    let tabs = VALUE_COLUMN.saturating_sub(end).div_ceil(8).max(1);
    format!("\t{name}:{}{value}", "\t".repeat(tabs))
}

/// The name and the number of a value in verbs.h.
fn state(device: &Device) -> (&'static str, u8) {
    match device.state {
        LinkState::Active => ("PORT_ACTIVE", 4),
        LinkState::Down => ("PORT_DOWN", 1),
    }
}

/// The text, with the tabs of `ibv_devinfo`, so that scripts can parse both.
fn text(device: &Device, verbose: bool) -> String {
    let info = info(device);
    let port = &info.ports[0];
    let mtu = |mtu: PathMtu| format!("{} ({})", mtu.bytes(), mtu.code());
    let (state, number) = state(device);
    let mut lines = vec![
        format!("hca_id:\t{}", info.hca_id),
        format!("\ttransport:\t\t\t{} (0)", info.transport),
        format!("\tfw_ver:\t\t\t\t{}", info.fw_ver),
        format!("\tnode_guid:\t\t\t{}", info.node_guid),
        format!("\tsys_image_guid:\t\t\t{}", info.sys_image_guid),
        format!("\tphys_port_cnt:\t\t\t{}", info.phys_port_cnt),
    ];
    if verbose {
        let capabilities = info.capabilities.iter();
        lines.extend(capabilities.map(|(name, value)| aligned(name, value)));
        lines.extend(OPERATIONS.map(|(name, operations)| aligned(name, operations)));
    }
    lines.extend([
        format!("\t\tport:\t{}", port.port),
        format!("\t\t\tstate:\t\t\t{state} ({number})"),
        format!("\t\t\tmax_mtu:\t\t{}", mtu(PathMtu::Mtu4096)),
        format!("\t\t\tactive_mtu:\t\t{}", mtu(device.active_mtu)),
        "\t\t\tsm_lid:\t\t\t0".to_owned(),
        "\t\t\tport_lid:\t\t0".to_owned(),
        "\t\t\tport_lmc:\t\t0x00".to_owned(),
        format!("\t\t\tlink_layer:\t\t{}", port.link_layer),
    ]);
    if verbose {
        lines.push(format!("\t\t\tgid_tbl_len:\t\t{}", port.gid_table_length));
        let gids = device.gids.iter();
        lines.extend(
            gids.map(|entry| format!("\t\t\tGID[{:3}]:\t\t{}, RoCE v2", entry.index, entry.gid)),
        );
    }
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

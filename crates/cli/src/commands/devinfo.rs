//! `roci devinfo`: describes devices in the format of `ibv_devinfo`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Arc;

use clap::Args;
use rocinante::{
    Context, Device, DeviceChoice, Gid, GidEntry, LinkState, MAX_COMPLETIONS, MAX_MESSAGE,
    MAX_REQUESTS, MAX_SEGMENTS, OpenOptions, PathMtu,
};
use serde::Serialize;
use system::{GidType, NodeType, Tree};

use super::devices::guid;
use crate::find_device::{self, Found};
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
    kind: String,
    transport: &'static str,
    #[serde(skip)]
    transport_number: u8,
    fw_ver: String,
    node_guid: String,
    sys_image_guid: String,
    phys_port_cnt: usize,
    /// Those that need the device to be open, if it can be opened.
    capabilities: BTreeMap<&'static str, u64>,
    ports: Vec<Port>,
}

#[derive(Serialize)]
struct Port {
    port: u8,
    state: &'static str,
    #[serde(skip)]
    state_number: u8,
    /// `null` if the system does not tell.
    max_mtu: Option<usize>,
    active_mtu: Option<usize>,
    sm_lid: u32,
    port_lid: u32,
    port_lmc: u32,
    link_layer: &'static str,
    /// `null` if the system does not tell.
    gid_table_length: Option<usize>,
    gids: Vec<String>,
    #[serde(skip)]
    gid_lines: Vec<String>,
}

/// Describes devices.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let devices = match &options.device {
        Some(name) => vec![find_device::named_of_any_kind(name)?],
        None => find_device::listed()?,
    };
    if options.json {
        return print_json(&devices.iter().map(info).collect::<Vec<_>>());
    }
    let texts = devices.iter().map(|device| text(device, options.verbose));
    print(texts.collect::<Vec<_>>().join("\n"))
}

fn info(found: &Found) -> Info {
    match found {
        Found::Software(device) => software_info(device, found.kind()),
        Found::System(device) => system_info(device, found.kind()),
    }
}

fn software_info(device: &Device, kind: String) -> Info {
    let (state, state_number) = state(device);
    let gids = device.gids.iter();
    let line = |entry: &GidEntry| gid_line(entry.index, entry.gid, ", RoCE v2");
    Info {
        hca_id: device.name.clone(),
        kind,
        transport: "InfiniBand",
        transport_number: 0,
        fw_ver: env!("CARGO_PKG_VERSION").to_owned(),
        node_guid: guid(device.guid),
        sys_image_guid: guid(device.guid),
        phys_port_cnt: 1,
        capabilities: capabilities(device),
        ports: vec![Port {
            port: 1,
            state,
            state_number,
            max_mtu: Some(PathMtu::Mtu4096.bytes()),
            active_mtu: Some(device.active_mtu.bytes()),
            sm_lid: 0,
            port_lid: 0,
            port_lmc: 0,
            link_layer: "Ethernet",
            gid_table_length: Some(Device::GID_TABLE_LENGTH),
            gid_lines: gids.clone().map(line).collect(),
            gids: gids.map(|entry| entry.gid.to_string()).collect(),
        }],
    }
}

/// What the files of the system tell, and the system's libraries if they are installed.
fn system_info(device: &system::Device, kind: String) -> Info {
    let context = open(device);
    let limits = context.as_ref().and_then(|it| it.attributes().ok());
    let (transport, transport_number) = match device.node_type {
        NodeType::ChannelAdapter => ("InfiniBand", 0),
        NodeType::Rnic => ("iWARP", 1),
        NodeType::Other => ("unspecified", 4),
    };
    Info {
        hca_id: device.name.clone(),
        kind,
        transport,
        transport_number,
        fw_ver: device.firmware.clone(),
        node_guid: device.node_guid.clone(),
        sys_image_guid: device.system_image_guid.clone(),
        phys_port_cnt: device.ports.len(),
        capabilities: limits.into_iter().flat_map(|it| it.limits).collect(),
        ports: device
            .ports
            .iter()
            .map(|port| system_port(port, context.as_deref()))
            .collect(),
    }
}

/// Opens a device through the system's libraries; `None` if that is not possible. `roci doctor` says why.
fn open(device: &system::Device) -> Option<Arc<system::verbs::Context>> {
    let is_here = Tree::of_machine().is_of_running_system();
    is_here.then(|| system::verbs::Context::open(&device.name).ok())?
}

fn system_port(port: &system::Port, context: Option<&system::verbs::Context>) -> Port {
    let asked = context.and_then(|context| context.port(port.number).ok());
    let (state, state_number) = port.state.verbs_name();
    let line = |entry: &system::GidEntry| {
        let version = match entry.gid_type {
            GidType::RoceV1 => ", IB/RoCE v1",
            GidType::RoceV2 => ", RoCE v2",
            GidType::InfiniBand | GidType::Other => "",
        };
        gid_line(entry.index, entry.gid, version)
    };
    Port {
        port: port.number,
        state,
        state_number,
        max_mtu: asked.and_then(|it| it.max_mtu).map(PathMtu::bytes),
        active_mtu: asked
            .map_or_else(|| port.largest_path_mtu(), |it| it.active_mtu)
            .map(PathMtu::bytes),
        sm_lid: port.subnet_manager_lid,
        port_lid: port.lid,
        port_lmc: port.lid_mask_count,
        link_layer: port.link_layer.name(),
        gid_table_length: asked.map(|it| it.gid_table_length),
        gid_lines: port.gids.iter().map(line).collect(),
        gids: port.gids.iter().map(|it| it.gid.to_string()).collect(),
    }
}

fn gid_line(index: usize, gid: Gid, version: &str) -> String {
    format!("\t\t\tGID[{index:3}]:\t\t{gid}{version}")
}

/// The limits that `ibv_query_device` returns. The number of queue pairs depends on the processes that share the
/// address, so the device is opened.
fn capabilities(device: &Device) -> BTreeMap<&'static str, u64> {
    let options = OpenOptions {
        devices: DeviceChoice::Software,
        ..OpenOptions::from_env()
    };
    let context = Context::open_with(&device.name, &options).ok();
    let Some(driver) = context.as_ref().and_then(Context::driver) else {
        return BTreeMap::new();
    };
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
fn text(found: &Found, verbose: bool) -> String {
    let info = info(found);
    let mut lines = vec![
        format!("hca_id:\t{}", info.hca_id),
        format!(
            "\ttransport:\t\t\t{} ({})",
            info.transport, info.transport_number
        ),
        format!("\tfw_ver:\t\t\t\t{}", info.fw_ver),
        format!("\tnode_guid:\t\t\t{}", info.node_guid),
        format!("\tsys_image_guid:\t\t\t{}", info.sys_image_guid),
        aligned("kind", &info.kind),
        format!("\tphys_port_cnt:\t\t\t{}", info.phys_port_cnt),
    ];
    if verbose {
        let capabilities = info.capabilities.iter();
        lines.extend(capabilities.map(|(name, value)| aligned(name, value)));
        if matches!(found, Found::Software(_)) {
            lines.extend(OPERATIONS.map(|(name, operations)| aligned(name, operations)));
        }
    }
    for port in &info.ports {
        lines.extend(port_lines(port, verbose));
    }
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn port_lines(port: &Port, verbose: bool) -> Vec<String> {
    let mtu_line = |name: &str, bytes: Option<usize>| {
        let mtu = PathMtu::largest_within(bytes?)?;
        Some(format!("\t\t\t{name}:\t\t{} ({})", mtu.bytes(), mtu.code()))
    };
    let (state, number) = (port.state, port.state_number);
    let mut lines = vec![
        format!("\t\tport:\t{}", port.port),
        format!("\t\t\tstate:\t\t\t{state} ({number})"),
    ];
    lines.extend(mtu_line("max_mtu", port.max_mtu));
    lines.extend(mtu_line("active_mtu", port.active_mtu));
    lines.extend([
        format!("\t\t\tsm_lid:\t\t\t{}", port.sm_lid),
        format!("\t\t\tport_lid:\t\t{}", port.port_lid),
        format!("\t\t\tport_lmc:\t\t{:#04x}", port.port_lmc),
        format!("\t\t\tlink_layer:\t\t{}", port.link_layer),
    ]);
    if verbose {
        let length = port.gid_table_length;
        lines.extend(length.map(|length| format!("\t\t\tgid_tbl_len:\t\t{length}")));
        lines.extend(port.gid_lines.iter().cloned());
    }
    lines
}

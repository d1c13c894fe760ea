//! `roci devices`: lists the devices.

use clap::Args;
use rocinante::{Device, LinkState, PathMtu};
use serde::Serialize;
use system::{NodeType, Port, PortState};

use crate::find_device::{self, Found, SOFTWARE};
use crate::output::{Table, print, print_json};
use crate::shortcut_use::ShortcutUse;

/// The options of `roci devices`.
#[derive(Args)]
#[command(after_help = "\
Each interface that is up and has an address is a device. Loopback is listed only if no other
interface is connected; its name `lo` always works. ROCI_DEVICES replaces this list, and `roci link`
adds devices to it. RDMA devices of the system, such as NICs, follow: their kind is `system` and the
driver.

Examples:
  roci devices
  roci devices --json
  ROCI_DEVICES=mlx5_0=127.0.0.2,mlx5_1=127.0.0.3 roci devices
  ROCI_DEVICES=system roci devices           those of the system alone")]
pub(crate) struct Options {
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    /// `software`, or `system`.
    kind: &'static str,
    /// The driver of a device of the system.
    driver: Option<String>,
    interface: Option<String>,
    state: &'static str,
    node_guid: String,
    /// The path MTU; `null` if the system does not tell.
    active_mtu: Option<usize>,
    addresses: Vec<String>,
    /// The way of packets to other processes of this machine: `memory` or `sockets`; `null` for a device of the system.
    local_packets: Option<&'static str>,
}

/// Lists the devices.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let devices = find_device::listed()?;
    let way = ShortcutUse::now();
    let row = |found: &Found| match found {
        Found::Software(device) => software_row(device, &way),
        Found::System(device) => system_row(device),
    };
    let rows: Vec<Row> = devices.iter().map(row).collect();
    if options.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        "DEVICE",
        "KIND",
        "NODE GUID",
        "INTERFACE",
        "STATE",
        "MTU",
        "ADDRESSES",
    ]);
    for (row, found) in rows.into_iter().zip(&devices) {
        table.push([
            row.name,
            found.kind(),
            row.node_guid,
            row.interface
                .unwrap_or_else(|| no_interface(found).to_owned()),
            row.state.to_owned(),
            row.active_mtu
                .map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
            row.addresses.join(" "),
        ]);
    }
    print(format_args!("{table}\n{}.\n", way.text()))
}

/// What stands for the interface of a device that has several, or none.
fn no_interface(found: &Found) -> &'static str {
    match found {
        Found::Software(_) => "several",
        Found::System(_) => "-",
    }
}

/// A device of the system; its first port stands for it, as most devices have one.
fn system_row(device: &system::Device) -> Row {
    let port = device.ports.first();
    let addresses = match device.node_type {
        NodeType::Rnic => addresses_of_interface(port.and_then(|port| port.interface.as_ref())),
        _ => addresses_of_gids(device),
    };
    Row {
        name: device.name.clone(),
        kind: "system",
        driver: Some(device.kind.to_string()),
        interface: port.and_then(|port| port.interface.clone()),
        state: match port.map(|port| port.state) {
            Some(PortState::Active | PortState::ActiveDefer) => "active",
            Some(PortState::Initializing | PortState::Armed) => "initializing",
            Some(PortState::Down | PortState::Unknown) | None => "down",
        },
        node_guid: device.node_guid.clone(),
        active_mtu: port.and_then(Port::largest_path_mtu).map(PathMtu::bytes),
        addresses,
        local_packets: None,
    }
}

fn addresses_of_gids(device: &system::Device) -> Vec<String> {
    let gids = device.ports.iter().flat_map(|port| &port.gids);
    let mut addresses: Vec<String> = Vec::new();
    for address in gids.filter_map(|entry| Some(entry.address()?.to_string())) {
        // An address has a GID for each version of RoCE.
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The GIDs of an iWARP device contain no addresses: those of its interface are meant.
fn addresses_of_interface(name: Option<&String>) -> Vec<String> {
    let interfaces = net::socket::interface::interfaces().unwrap_or_default();
    let found = interfaces.into_iter().find(|it| Some(&it.name) == name);
    let addresses = found.map(|found| found.addresses).unwrap_or_default();
    let text = addresses.iter().map(|address| address.ip.to_string());
    text.collect()
}

fn software_row(device: &Device, way: &ShortcutUse) -> Row {
    let addresses = device.gids.iter().map(|entry| entry.address.to_string());
    Row {
        name: device.name.clone(),
        kind: SOFTWARE,
        driver: None,
        interface: device.interface.as_ref().map(|id| id.name.clone()),
        state: match device.state {
            LinkState::Active => "active",
            LinkState::Down => "down",
        },
        node_guid: guid(device.guid),
        active_mtu: Some(device.active_mtu.bytes()),
        addresses: addresses.collect(),
        local_packets: Some(way.through),
    }
}

/// A GUID in the format of the rdma-core tools.
pub(crate) fn guid(guid: u64) -> String {
    let part = |shift: u32| format!("{:04x}", guid >> shift & 0xffff);
    [48, 32, 16, 0].map(part).join(":")
}

/// A GID in eight groups, without the abbreviations of IPv6.
pub(crate) fn gid_in_full(bytes: [u8; 16]) -> String {
    let groups = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_written_in_full() {
        let mut bytes = [0; 16];
        bytes[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!(
            gid_in_full(bytes),
            "0000:0000:0000:0000:0000:ffff:0a00:0001"
        );
    }

    #[test]
    fn a_guid_has_four_groups() {
        assert_eq!(guid(0x5054_00ff_fe12_3456), "5054:00ff:fe12:3456");
        assert_eq!(guid(1), "0000:0000:0000:0001");
    }
}

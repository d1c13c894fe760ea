//! `roci devices`: lists the devices.

use clap::Args;
use rocinante::{Device, LinkState};
use serde::Serialize;

use crate::find_device;
use crate::local_packets::Way;
use crate::output::{Table, print, print_json, remark};

/// The options of `roci devices`.
#[derive(Args)]
#[command(after_help = "\
Each interface that is up and has an address is a device. Loopback is listed only if no other
interface is connected; its name `lo` always works. ROCI_DEVICES replaces this list, and `roci link`
adds devices to it.

Examples:
  roci devices
  roci devices --json
  ROCI_DEVICES=mlx5_0=127.0.0.2,mlx5_1=127.0.0.3 roci devices")]
pub(crate) struct Options {
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    interface: Option<String>,
    state: &'static str,
    node_guid: String,
    active_mtu: usize,
    addresses: Vec<String>,
    /// The way of packets to other processes of this machine: `memory` or `sockets`.
    local_packets: &'static str,
}

/// Lists the devices.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let devices = find_device::all()?;
    if devices.is_empty() {
        remark(find_device::NO_DEVICE);
    }
    let way = Way::now();
    let rows: Vec<Row> = devices.iter().map(|it| row(it, &way)).collect();
    if options.json {
        return print_json(&rows);
    }
    let mut table = Table::new([
        "DEVICE",
        "NODE GUID",
        "INTERFACE",
        "STATE",
        "MTU",
        "ADDRESSES",
    ]);
    for row in rows {
        table.push([
            row.name,
            row.node_guid,
            row.interface.unwrap_or_else(|| "several".to_owned()),
            row.state.to_owned(),
            row.active_mtu.to_string(),
            row.addresses.join(" "),
        ]);
    }
    print(format_args!("{table}\n{}.\n", way.text()))
}

fn row(device: &Device, way: &Way) -> Row {
    let addresses = device.gids.iter().map(|entry| entry.address.to_string());
    Row {
        name: device.name.clone(),
        interface: device.interface.as_ref().map(|id| id.name.clone()),
        state: match device.state {
            LinkState::Active => "active",
            LinkState::Down => "down",
        },
        node_guid: guid(device.guid),
        active_mtu: device.active_mtu.bytes(),
        addresses: addresses.collect(),
        local_packets: way.through,
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

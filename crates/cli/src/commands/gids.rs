//! `roci gids`: lists the GID tables and marks the entry to use.

use std::net::IpAddr;

use clap::Args;
use rocinante::Device;
use serde::Serialize;
use system::GidType;

use crate::find_device::{self, Found, recommended};
use crate::output::{FAINT, Table, print, print_json, styled};

/// The options of `roci gids`.
#[derive(Args)]
#[command(after_help = "\
A GID is an address of a device. Programs select it by its index (perftest: -x, ibv_rc_pingpong: -g).

Examples:
  roci gids
  roci gids roci_eth0
  roci gids --json | jq '.[] | select(.use) | .index'")]
pub(crate) struct Options {
    /// The device, its interface or one of its addresses [default: all devices]
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    device: String,
    port: u8,
    index: usize,
    gid: String,
    ipv4: Option<String>,
    version: &'static str,
    interface: String,
    #[serde(rename = "use")]
    chosen: bool,
    why: Option<&'static str>,
}

/// Lists the GIDs.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let devices = match &options.device {
        Some(name) => vec![find_device::named_of_any_kind(name)?],
        None => find_device::listed()?,
    };
    let rows = |found: &Found| match found {
        Found::Software(device) => software_rows(device),
        Found::System(device) => device
            .ports
            .iter()
            .flat_map(|port| system_rows(&device.name, port))
            .collect(),
    };
    let rows: Vec<Row> = devices.iter().flat_map(rows).collect();
    if options.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return Ok(());
    }
    let advice: Vec<String> = rows.iter().filter_map(advice).collect();
    let mut table = Table::new(["", "DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "NETDEV"]);
    for row in rows {
        table.push([
            if row.chosen { "*" } else { "" }.to_owned(),
            row.device,
            row.port.to_string(),
            row.index.to_string(),
            row.gid,
            row.ipv4.unwrap_or_default(),
            row.version.to_owned(),
            row.interface,
        ]);
    }
    print(format_args!(
        "{table}\n{}\n",
        styled(FAINT, advice.join("\n"))
    ))
}

fn system_rows(device: &str, port: &system::Port) -> Vec<Row> {
    let choice = port.recommended_gid().map(|entry| entry.index);
    let row = |entry: &system::GidEntry| {
        let chosen = choice == Some(entry.index);
        Row {
            device: device.to_owned(),
            port: port.number,
            index: entry.index,
            gid: entry.gid.to_string(),
            ipv4: match entry.address() {
                Some(IpAddr::V4(address)) => Some(address.to_string()),
                _ => None,
            },
            version: entry.gid_type.name(),
            interface: entry.interface.clone().unwrap_or_default(),
            chosen,
            why: chosen.then(|| why(entry)),
        }
    };
    port.gids.iter().map(row).collect()
}

/// Why a GID of the system is recommended.
fn why(entry: &system::GidEntry) -> &'static str {
    match (entry.gid_type, entry.address()) {
        (GidType::InfiniBand, _) => "it is the GID of the port in its subnet",
        (GidType::RoceV1, _) => {
            "there is only RoCE v1, which routers do not forward and peers with RoCE v2 do not understand"
        }
        (GidType::Other, _) => {
            "it is the only kind of the port; an iWARP device connects by IP addresses (rdma_cm), so programs need no index"
        }
        (GidType::RoceV2, Some(address)) => find_device::reason(address).sentence(),
        (GidType::RoceV2, None) => "it is RoCE v2",
    }
}

fn software_rows(device: &Device) -> Vec<Row> {
    let choice = recommended(device).map(|(entry, reason)| (entry.index, reason));
    let entries = device.gids.iter();
    let row = |entry: &rocinante::GidEntry| {
        let choice = choice.filter(|(index, _)| *index == entry.index);
        Row {
            device: device.name.clone(),
            port: 1,
            index: entry.index,
            gid: entry.gid.to_string(),
            ipv4: match entry.address {
                IpAddr::V4(address) => Some(address.to_string()),
                IpAddr::V6(_) => None,
            },
            version: "v2",
            interface: entry.interface.name.clone(),
            chosen: choice.is_some(),
            why: choice.map(|(_, reason)| reason.sentence()),
        }
    };
    entries.map(row).collect()
}

fn advice(row: &Row) -> Option<String> {
    let why = row.why?;
    Some(format!(
        "* use index {} of {}: {why}.",
        row.index, row.device
    ))
}

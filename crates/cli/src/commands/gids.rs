//! `roci gids`: lists the GID tables and marks the entry to use.

use std::net::IpAddr;

use clap::Args;
use rocinante::Device;
use serde::Serialize;

use crate::find_device::{self, recommended};
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
        Some(name) => vec![find_device::named(name)?],
        None => find_device::all()?,
    };
    let rows: Vec<Row> = devices.iter().flat_map(rows).collect();
    if options.json {
        return print_json(&rows);
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

fn rows(device: &Device) -> Vec<Row> {
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

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
    let mut advice: Vec<String> = rows.iter().filter_map(advice).collect();
    // Without IPv6 there is no such file.
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    advice.extend(unsettled(&rows, &addresses));
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

/// Warns of interfaces in the table whose IPv6 address the kernel still checks: the index of their other addresses changes soon.
fn unsettled(rows: &[Row], addresses: &str) -> Vec<String> {
    let mut interfaces = tentative(addresses);
    interfaces.retain(|name| rows.iter().any(|row| row.interface == *name));
    interfaces
        .iter()
        .map(|name| {
            format!(
                "! the kernel still checks an IPv6 address of {name}: in a second or two it is in the table, and the indexes of \
                 other addresses may have changed."
            )
        })
        .collect()
}

/// The interfaces with tentative addresses in the list of the kernel, `/proc/net/if_inet6`.
fn tentative(addresses: &str) -> Vec<&str> {
    const TENTATIVE: u32 = 0x40;
    // Another machine has the address: it stays tentative.
    const IS_DUPLICATE: u32 = 0x08;
    let mut names = Vec::new();
    for line in addresses.lines() {
        // The address, then numbers of the interface, the prefix length, the scope and the flags, and the name of the interface.
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, _, flags, name] = fields[..]
            && u32::from_str_radix(flags, 16)
                .is_ok_and(|flags| flags & (TENTATIVE | IS_DUPLICATE) == TENTATIVE)
        {
            names.push(name);
        }
    }
    names.dedup();
    names
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_with_a_tentative_address_is_named() {
        let addresses = "\
fe80000000000000d46a91fffe6a1b2c 05 40 20 40     x0
fe80000000000000d46a91fffe6a1b2d 06 40 20 80     x1
fe80000000000000d46a91fffe6a1b2e 07 40 20 c0     x2
00000000000000000000000000000001 01 80 10 80       lo
";
        assert_eq!(tentative(addresses), ["x0", "x2"]);
        let row = Row {
            device: "roci_x0".to_owned(),
            port: 1,
            index: 0,
            gid: String::new(),
            ipv4: None,
            version: "v2",
            interface: "x0".to_owned(),
            chosen: true,
            why: None,
        };
        let warnings = unsettled(&[row], addresses);
        assert!(
            matches!(&warnings[..], [warning] if warning.contains(" of x0: ")),
            "{warnings:?}"
        );
    }
}

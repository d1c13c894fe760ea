//! `show_gids [DEVICE]`: the GID tables, in the columns of the script that comes with Mellanox cards.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use rocinante::{Device, GidEntry};

use crate::commands::devices::gid_in_full;
use crate::find_device;
use crate::output::print;

const HEADER: &str = "\
DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
";

/// Lists the GIDs of one device, or of all.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let wanted = arguments.first();
    let devices = find_device::all()?.into_iter();
    let devices: Vec<Device> = devices
        .filter(|device| wanted.is_none_or(|name| *name == device.name))
        .collect();
    if let (Some(name), true) = (wanted, devices.is_empty()) {
        anyhow::bail!("there is no device `{name}`; `roci devices` lists them");
    }
    print(table(&devices))?;
    Ok(ExitCode::SUCCESS)
}

fn table(devices: &[Device]) -> String {
    let mut text = HEADER.to_owned();
    let mut found = 0;
    for device in devices {
        for entry in &device.gids {
            let _ = writeln!(text, "{}", row(&device.name, entry));
            found += 1;
        }
    }
    let _ = writeln!(text, "n_gids_found={found}");
    text
}

fn row(name: &str, entry: &GidEntry) -> String {
    let address = match entry.address {
        IpAddr::V4(address) => format!("{address}  "),
        IpAddr::V6(_) => "\t".to_owned(),
    };
    let gid = gid_in_full(entry.gid.bytes());
    let interface = &entry.interface.name;
    format!(
        "{name}\t1\t{}\t{gid}\t{address}\tv2\t{interface}",
        entry.index
    )
}

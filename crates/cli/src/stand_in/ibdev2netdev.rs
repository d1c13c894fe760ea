//! `ibdev2netdev`: the interface of each device, in the format of the script that comes with Mellanox cards.

use std::fmt::Write as _;
use std::process::ExitCode;

use rocinante::{Device, LinkState};

use crate::find_device;
use crate::output::print;

/// Lists the devices. The options of the script add facts about cards, which these devices are not.
pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for device in find_device::all()? {
        let _ = writeln!(text, "{}", row(&device));
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn row(device: &Device) -> String {
    let state = match device.state {
        LinkState::Active => "Up",
        LinkState::Down => "Down",
    };
    let first = || device.gids.first().map(|entry| &entry.interface);
    let interface = device.interface.as_ref().or_else(first);
    let interface = interface.map_or("", |interface| &interface.name);
    format!("{} port 1 ==> {interface} ({state})", device.name)
}

//! `rdma link`: the ports of the devices.

use rocinante::{Device, LinkState};

use super::record::Record;
use super::{Answer, Format, meant, unknown};
use crate::device;

const USAGE: &str = "\
Usage: rdma link show [DEV/PORT_INDEX]
Usage: rdma link add NAME type TYPE netdev NETDEV
Usage: rdma link delete NAME
";

pub(super) fn answer(words: &[&str], format: Format) -> anyhow::Result<Answer> {
    let Some((command, rest)) = words.split_first() else {
        return show(&[], format);
    };
    match meant(command, &["add", "delete", "show", "list", "help"]) {
        Some("show" | "list") => show(rest, format),
        Some("add") => add(rest),
        Some("delete") => delete(rest),
        Some(_) => Ok(Answer::Text(USAGE.to_owned())),
        None => Ok(unknown("link command", command)),
    }
}

fn show(words: &[&str], format: Format) -> anyhow::Result<Answer> {
    let devices = device::all()?;
    let ports = devices.iter().enumerate();
    let records = match words {
        [] => ports,
        [_, word, ..] => return Ok(unknown("parameter", word)),
        [port] => match devices.iter().position(|device| is_at(device, port)) {
            Some(number) => {
                let record = record(number, &devices[number], format);
                return Ok(Answer::Records(vec![record]));
            }
            None => return Ok(Answer::NoRecords("Wrong device name".to_owned())),
        },
    };
    let records = records.map(|(number, device)| record(number, device, format));
    Ok(Answer::Records(records.collect()))
}

/// Whether this names the device, or its only port.
fn is_at(device: &Device, port: &str) -> bool {
    let rest = port.strip_prefix(&device.name);
    rest.is_some_and(|rest| ["", "/", "/1"].contains(&rest))
}

fn record(number: usize, device: &Device, format: Format) -> Record {
    let (state, physical) = match device.state {
        LinkState::Active => ("ACTIVE", "LINK_UP"),
        LinkState::Down => ("DOWN", "DISABLED"),
    };
    let record = Record::new(format!("link {}/1 ", device.name))
        .json("ifindex", number as u64)
        .json("ifname", &*device.name)
        .json("port", 1)
        .fact("state", state)
        .fact("physical_state", physical);
    let first = || device.gids.first().map(|entry| &entry.interface);
    match device.interface.as_ref().or_else(first) {
        None => record,
        Some(interface) => record.fact("netdev", &*interface.name).with(
            "netdev_index",
            u64::from(interface.index).into(),
            format.details,
        ),
    }
}

/// Devices exist without being added. If one is missing, an error message says why.
fn add(words: &[&str]) -> anyhow::Result<Answer> {
    let (name, interface) = match words {
        [] => return Ok(refused("Please provide a link name to add.")),
        [name, "type", _, "netdev", interface] => (name, interface),
        [_, "type"] => return Ok(refused("Please provide a link type name.")),
        _ => return Ok(refused(USAGE.trim_end())),
    };
    let devices = device::all()?;
    if devices.iter().any(|device| device.name == *name) {
        return Ok(Answer::Note(format!(
            "rdma: {name} is there already: devices need not be added here"
        )));
    }
    Ok(Answer::Refused(format!(
        "rdma: devices are not added while programs run; name this one before, by `roci run \
         --devices {name}={interface}`, or for good by `roci link add {name} netdev {interface}`"
    )))
}

/// What is not added is not deleted.
fn delete(words: &[&str]) -> anyhow::Result<Answer> {
    let Some(name) = words.first() else {
        return Ok(refused("Please provide device name."));
    };
    let devices = device::all()?;
    if devices.iter().any(|device| device.name == *name) {
        let note = format!("rdma: {name} stays: devices need not be deleted here");
        Ok(Answer::Note(note))
    } else {
        Ok(Answer::Refused(format!("Wrong device name - {name}")))
    }
}

fn refused(sentence: &str) -> Answer {
    Answer::Refused(sentence.to_owned())
}

//! `rdma link`: the ports of the devices.

use anyhow::Context as _;
use net::socket::interface::{self, Link, Links};
use rocinante::{Device, LinkState};

use super::record::Record;
use super::{Answer, Format, meant, unknown};
use crate::find_device;

const USAGE: &str = "\
Usage: rdma link show [DEV/PORT_INDEX]
Usage: rdma link add NAME type TYPE netdev NETDEV
Usage: rdma link delete NAME
";

/// The link type of Soft-RoCE.
const OUR_TYPE: &str = "rxe";

const NO_PLACE: &str =
    "there is no place to keep links; set HOME or XDG_CONFIG_HOME to a directory";

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
    let devices = find_device::all()?;
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

/// Whether the text names the device or its only port.
pub(super) fn is_at(device: &Device, port: &str) -> bool {
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

/// `rdma link add`. Most devices exist without it; other devices are added as with `roci link`.
fn add(words: &[&str]) -> anyhow::Result<Answer> {
    let (name, kind, interface) = match words {
        [] => return Ok(rejected("Please provide a link name to add.")),
        [name, "type", kind, "netdev", interface] => (*name, *kind, *interface),
        [_, "type"] => return Ok(rejected("Please provide a link type name.")),
        _ => return Ok(rejected(USAGE.trim_end())),
    };
    if kind != OUR_TYPE {
        let sentence = format!(
            "rdma: devices here are of the type {OUR_TYPE}; for one of the type {kind}, call the \
             system's rdma by its path"
        );
        return Ok(Answer::Rejected(sentence));
    }
    if is_there(name)? {
        return Ok(Answer::Note(format!(
            "rdma: {name} is there already: devices need not be added here"
        )));
    }
    if are_given() {
        return Ok(Answer::Rejected(format!(
            "rdma: programs here have the devices of ROCI_DEVICES and no others; name this one there, \
             by `roci run --devices {name}={interface}`"
        )));
    }
    let links = Links::of_user().context(NO_PLACE)?;
    let added =
        Link::new(name, interface).and_then(|link| links.add(&link, &interface::interfaces()?));
    Ok(match added {
        Ok(()) => Answer::Note(format!(
            "rdma: {name} is a device now, until `rdma link delete {name}` (see `roci link`); its \
             files in /sys are there from the next `roci run` on"
        )),
        Err(error) => Answer::Rejected(format!("rdma: {error}")),
    })
}

/// `rdma link delete`. Only a device that was added can be deleted.
fn delete(words: &[&str]) -> anyhow::Result<Answer> {
    let Some(name) = words.first() else {
        return Ok(rejected("Please provide device name."));
    };
    if !is_there(name)? {
        return Ok(Answer::Rejected(format!("Wrong device name - {name}")));
    }
    if !are_given()
        && let Some(links) = Links::of_user()
        && links.list()?.iter().any(|link| link.name() == *name)
    {
        links.remove(name)?;
        return Ok(Answer::Text(String::new()));
    }
    let note = format!("rdma: {name} stays: devices need not be deleted here");
    Ok(Answer::Note(note))
}

fn is_there(name: &str) -> anyhow::Result<bool> {
    Ok(find_device::all()?.iter().any(|device| device.name == name))
}

/// Whether `ROCI_DEVICES` lists the devices. Then links are not read.
fn are_given() -> bool {
    interface::listed_by_env().is_some()
}

fn rejected(sentence: &str) -> Answer {
    Answer::Rejected(sentence.to_owned())
}

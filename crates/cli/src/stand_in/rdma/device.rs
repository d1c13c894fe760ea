//! `rdma dev`: the devices.

use rocinante::Device;

use super::record::{Record, Value};
use super::{Answer, Format, meant, unknown};
use crate::commands::devices::guid;
use crate::find_device;

const USAGE: &str = "Usage: rdma dev show [DEV]\n";

/// The `device_cap_flags` that the C library reports, with iproute2's names.
const CAPABILITIES: [&str; 11] = [
    "BAD_PKEY_CNTR",
    "BAD_QKEY_CNTR",
    "CURR_QP_STATE_MOD",
    "PORT_ACTIVE_EVENT",
    "SYS_IMAGE_GUID",
    "RC_RNR_NAK_GEN",
    "SRQ_RESIZE",
    "MEM_WINDOW",
    "XRC",
    "MEM_MGT_EXTENSIONS",
    "MEM_WINDOW_TYPE_2B",
];

pub(super) fn answer(words: &[&str], format: Format) -> anyhow::Result<Answer> {
    let Some((command, rest)) = words.split_first() else {
        return show(&[], format);
    };
    match meant(command, &["show", "list", "set", "help"]) {
        Some("show" | "list") => show(rest, format),
        Some("set") => Ok(Answer::Rejected(
            "rdma: devices can't be changed while programs run; `roci link` and `roci run \
             --devices` give them names"
                .to_owned(),
        )),
        Some(_) => Ok(Answer::Text(USAGE.to_owned())),
        None => Ok(unknown("dev command", command)),
    }
}

fn show(words: &[&str], format: Format) -> anyhow::Result<Answer> {
    let wanted = match words {
        [] => None,
        [name] => Some(*name),
        [_, word, ..] => return Ok(unknown("parameter", word)),
    };
    let devices = find_device::all()?;
    let records: Vec<Record> = (devices.iter().enumerate())
        .filter(|(_, device)| wanted.is_none_or(|name| name == device.name))
        .map(|(number, device)| record(number, device, format))
        .collect();
    Ok(match wanted {
        Some(name) if records.is_empty() => {
            Answer::NoRecords(format!("Wrong device name - {name}"))
        }
        _ => Answer::Records(records),
    })
}

fn record(number: usize, device: &Device, format: Format) -> Record {
    let guid = guid(device.guid);
    let record = Record::new(format!("{number}: {}: ", device.name))
        .json("ifindex", number as u64)
        .json("ifname", &*device.name)
        .fact("node_type", "ca")
        .fact("fw", env!("CARGO_PKG_VERSION"))
        .fact("node_guid", &*guid)
        .fact("sys_image_guid", &*guid);
    if format.details {
        record
            .with("adaptive-moderation", Value::Switch(false), true)
            .with("caps", Value::Names(CAPABILITIES.into()), true)
    } else {
        record
    }
}

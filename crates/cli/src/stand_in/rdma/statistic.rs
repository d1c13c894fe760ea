//! `rdma statistic`: the counters of a port.

use net::sharing::counters_of;
use rocinante::Device;
use statistics::CounterFile;

use super::record::Record;
use super::{Answer, meant, unknown};
use crate::find_device;

const USAGE: &str = "\
Usage: rdma statistic show [ link DEV/PORT_INDEX ]
";

/// The counters of `rdma_rxe`, in the order in which the kernel lists them.
const COUNTERS: [&str; 15] = [
    "sent_pkts",
    "rcvd_pkts",
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "send_rnr_err",
    "rcvd_seq_err",
    "ack_deferred",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "completer_retry_err",
    "send_err",
    "link_downed",
    "rdma_sends",
    "rdma_recvs",
];

pub(super) fn answer(words: &[&str]) -> anyhow::Result<Answer> {
    let rest = match words.split_first() {
        None => return show(None),
        Some((command, rest)) => match meant(command, &["show", "list", "help"]) {
            Some("show" | "list") => rest,
            Some(_) => return Ok(Answer::Text(USAGE.to_owned())),
            None if ["qp", "mr", "mode"].contains(command) => {
                return Ok(Answer::Rejected(
                    "rdma: there are no bound counters of these devices; `roci stat` shows the counters of \
                     each process and queue pair"
                        .to_owned(),
                ));
            }
            None => return Ok(unknown("parameter", command)),
        },
    };
    match rest {
        [] => show(None),
        ["link"] => show(None),
        ["link", port] => show(Some(port)),
        [word, ..] => Ok(unknown("parameter", word)),
    }
}

fn show(port: Option<&str>) -> anyhow::Result<Answer> {
    let devices = find_device::all()?;
    let is_meant = |it: &&Device| port.is_none_or(|port| super::link::is_at(it, port));
    let wanted: Vec<_> = devices.iter().filter(is_meant).collect();
    if wanted.is_empty() && port.is_some() {
        return Ok(Answer::NoRecords("Wrong device name".to_owned()));
    }
    let records = wanted.into_iter().map(record);
    Ok(Answer::Records(records.collect::<anyhow::Result<_>>()?))
}

fn record(device: &Device) -> anyhow::Result<Record> {
    let gids: Vec<_> = device.gids.iter().map(|entry| entry.gid.bytes()).collect();
    let counters = counters_of(&gids)?;
    let record = Record::new(format!("link {}/1 ", device.name))
        .json("ifname", &*device.name)
        .json("port", 1);
    let values = COUNTERS.iter().filter_map(|name| {
        let file = CounterFile::find(b"hw_counters", name.as_bytes())?;
        Some((file.name, file.value(&counters)))
    });
    Ok(values.fold(record, |record, (name, value)| record.fact(name, value)))
}

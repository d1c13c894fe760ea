//! `rdma resource`: the contexts, listeners and queue pairs of processes.
//!
//! The other objects of a process are private. Contexts and listeners are in the registries of the addresses, and queue
//! pairs in statistics pages, so other processes see them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use net::port_sharing::{self, ListedMember};
use rocinante::Device;
use wire::cm::{PortSpace, ServiceId};

use super::record::Record;
use super::{Answer, meant, unknown};
use crate::find_device;

const USAGE: &str = "\
Usage: rdma resource
          resource show [cm_id|ctx|qp]
          resource show qp link [DEV/PORT]
          resource show cm_id link [DEV/PORT]
          resource show ctx dev [DEV]
";

const LISTENERS_ONLY: &str =
    "rdma: connected ids are known to their process alone; these listen, or have a port reserved";

/// The resource types that other processes can see.
#[derive(Clone, Copy, PartialEq)]
enum ResourceKind {
    Listener,
    Context,
    QueuePair,
}

pub(super) fn answer(words: &[&str]) -> anyhow::Result<Answer> {
    let rest = match words.split_first() {
        None => return Ok(unknown_objects()),
        Some((command, rest)) => match meant(command, &["show", "list", "help"]) {
            Some("show" | "list") => rest,
            Some(_) => return Ok(Answer::Text(USAGE.to_owned())),
            None => return Ok(unknown("resource command", command)),
        },
    };
    let Some((kind, filter)) = rest.split_first() else {
        return Ok(unknown_objects());
    };
    let kinds = ["qp", "cm_id", "cq", "mr", "pd", "ctx", "srq"];
    let kind = match meant(kind, &kinds) {
        Some("cm_id") => ResourceKind::Listener,
        Some("ctx") => ResourceKind::Context,
        Some("qp") => ResourceKind::QueuePair,
        Some(_) => return Ok(unknown_objects()),
        None => return Ok(unknown("parameter", kind)),
    };
    let devices = find_device::all()?;
    let wanted = match filter {
        [] => None,
        ["dev" | "link", name] => Some(*name),
        [word, ..] => {
            let sentence =
                format!("rdma: only `dev` and `link` choose what is shown, not `{word}`");
            return Ok(Answer::Rejected(sentence));
        }
    };
    let is_wanted = |device: &Device| match wanted {
        None => true,
        Some(name) => {
            let port = match kind {
                ResourceKind::QueuePair => "/1",
                ResourceKind::Listener | ResourceKind::Context => "/-",
            };
            name.strip_suffix(port).unwrap_or(name) == device.name
        }
    };
    if let (Some(name), false) = (wanted, devices.iter().any(is_wanted)) {
        let sentence = match kind {
            ResourceKind::Listener | ResourceKind::QueuePair => "Wrong device name".to_owned(),
            ResourceKind::Context => format!("Wrong device name - {name}"),
        };
        return Ok(Answer::NoRecords(sentence));
    }
    let mut records = Vec::new();
    for (number, device) in devices.iter().enumerate().filter(|it| is_wanted(it.1)) {
        records.extend(match kind {
            ResourceKind::Listener => listeners(number, device)?,
            ResourceKind::Context => contexts(number, device)?,
            ResourceKind::QueuePair => queue_pairs(number, device)?,
        });
    }
    if kind == ResourceKind::Listener {
        eprintln!("{LISTENERS_ONLY}");
    }
    Ok(Answer::Records(records))
}

fn unknown_objects() -> Answer {
    Answer::Rejected(
        "rdma: only the process that has them knows its completion queues and memory; `rdma resource \
         show qp`, `ctx` and `cm_id` list queue pairs, contexts and listeners"
            .to_owned(),
    )
}

/// The members at each address of a device.
fn members(device: &Device) -> anyhow::Result<Vec<(IpAddr, ListedMember)>> {
    let mut found = Vec::new();
    for entry in &device.gids {
        let here = port_sharing::list_members(entry.address)?.into_iter();
        found.extend(here.map(|it| (entry.address, it)));
    }
    Ok(found)
}

/// The contexts: one for each process, which is a member several times if the device has several addresses or lanes.
fn contexts(number: usize, device: &Device) -> anyhow::Result<Vec<Record>> {
    let processes: BTreeSet<u32> = members(device)?.iter().map(|(_, it)| it.pid).collect();
    let record = |(context, pid): (usize, u32)| {
        let record = Record::new(format!("dev {} ", device.name))
            .json("ifindex", number as u64)
            .json("ifname", &*device.name)
            .fact("ctxn", context as u64);
        of_process(record, pid)
    };
    Ok(processes.into_iter().enumerate().map(record).collect())
}

fn listeners(number: usize, device: &Device) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for (address, process) in members(device)? {
        let services = process.services.into_iter().map(ServiceId::new);
        for (space, port) in services.filter_map(ServiceId::port) {
            let record = Record::new(format!("link {}/- ", device.name))
                .json("ifindex", number as u64)
                .json("ifname", &*device.name)
                .fact("cm-idn", records.len() as u64)
                .fact("state", "LISTEN")
                .fact("ps", port_space(space));
            let source = SocketAddr::new(address, port).to_string();
            records.push(of_process(record, process.pid).fact("src-addr", source));
        }
    }
    Ok(records)
}

/// The queue pairs that processes publish. They do not publish PSNs.
fn queue_pairs(number: usize, device: &Device) -> anyhow::Result<Vec<Record>> {
    let mut pages = port_sharing::statistics()?;
    let is_at_device = |gid: [u8; 16]| device.gids.iter().any(|entry| entry.gid.bytes() == gid);
    pages.retain(|page| page.is_here() && is_at_device(page.gid()));
    pages.sort_by_key(|page| (page.pid(), page.context(), page.lane()));
    let mut records = Vec::new();
    for page in &pages {
        for queue_pair in page.queue_pairs() {
            let mut record = Record::new(format!("link {}/1 ", device.name))
                .json("ifindex", number as u64)
                .json("ifname", &*device.name)
                .json("port", 1)
                .fact("lqpn", u64::from(queue_pair.number));
            if queue_pair.peer_number != 0 {
                record = record.fact("rqpn", u64::from(queue_pair.peer_number));
            }
            let record = record
                .fact("type", queue_pair_type(queue_pair.kind))
                .fact("state", queue_pair_state(queue_pair.state));
            records.push(of_process(record, page.pid()));
        }
    }
    Ok(records)
}

/// The names of iproute2 for `ibv_qp_type`.
fn queue_pair_type(number: u8) -> &'static str {
    match number {
        2 => "RC",
        3 => "UC",
        4 => "UD",
        9 => "XRC_INI",
        10 => "XRC_TGT",
        _ => "UNKNOWN",
    }
}

/// The names of iproute2 for `ibv_qp_state`.
fn queue_pair_state(number: u8) -> &'static str {
    let names = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    names.get(usize::from(number)).unwrap_or(&"UNKNOWN")
}

fn of_process(record: Record, pid: u32) -> Record {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    record
        .fact("pid", u64::from(pid))
        .fact("comm", name.trim_end())
}

fn port_space(space: PortSpace) -> &'static str {
    match space {
        PortSpace::Tcp => "TCP",
        PortSpace::Udp => "UDP",
        PortSpace::Infiniband => "IB",
    }
}

//! `rdma resource`: how many objects processes have, and the contexts, listeners and queue pairs among them.
//!
//! Processes publish the numbers of their objects and their queue pairs in statistics pages. Listeners are in the
//! registries of the addresses. The other objects of a process are private.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use net::sharing::{self, ListedMember, StatisticsSnapshot};
use rocinante::Device;
use statistics::{ObjectCounts, ObjectKind};
use wire::cm::{PortSpace, ServiceId};

use super::record::Record;
use super::{Answer, meant, unknown};
use crate::find_device;

const USAGE: &str = "\
Usage: rdma resource
          resource show [DEV]
          resource show [qp|cm_id|ctx]
          resource show qp link [DEV/PORT]
          resource show cm_id link [DEV/PORT]
          resource show ctx dev [DEV]
";

const LISTENERS_ONLY: &str =
    "rdma: only ids that listen or have a port reserved are listed; `rdma resource` counts all";

/// The resource types of iproute2.
const KINDS: [&str; 7] = ["qp", "cm_id", "cq", "mr", "pd", "ctx", "srq"];

/// The resource types that other processes can see.
#[derive(Clone, Copy, PartialEq)]
enum ResourceKind {
    Listener,
    Context,
    QueuePair,
}

/// The device that `rdma resource show NAME` names.
pub(super) fn named_device<'w>(words: &[&'w str]) -> Option<&'w str> {
    match words {
        [command, name] if meant(command, &["show", "list"]).is_some() => {
            Some(*name).filter(|name| meant(name, &KINDS).is_none())
        }
        _ => None,
    }
}

pub(super) fn answer(words: &[&str]) -> anyhow::Result<Answer> {
    let rest = match words.split_first() {
        None => words,
        Some((command, rest)) => match meant(command, &["show", "list", "help"]) {
            Some("show" | "list") => rest,
            Some(_) => return Ok(Answer::Text(USAGE.to_owned())),
            None => return Ok(unknown("resource command", command)),
        },
    };
    let devices = find_device::all()?;
    let Some((kind, filter)) = rest.split_first() else {
        return summaries(&devices, None);
    };
    // As in iproute2, the name of a device may be that of a resource type.
    if filter.is_empty() && devices.iter().any(|device| device.name == *kind) {
        return summaries(&devices, Some(kind));
    }
    let kind = match meant(kind, &KINDS) {
        Some("cm_id") => ResourceKind::Listener,
        Some("ctx") => ResourceKind::Context,
        Some("qp") => ResourceKind::QueuePair,
        Some(kind) => return Ok(private(kind)),
        None => return Ok(unknown("parameter", kind)),
    };
    listed(kind, filter, &devices)
}

/// The summary of each device, or of one.
fn summaries(devices: &[Device], wanted: Option<&str>) -> anyhow::Result<Answer> {
    let mut records = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        if wanted.is_none_or(|name| name == device.name) {
            let summary = Summary::new(&pages(device)?);
            records.push(summary.record(number, &device.name));
        }
    }
    Ok(Answer::Records(records))
}

/// How many objects the processes at a device have.
struct Summary {
    objects: ObjectCounts,
    queue_pairs: u64,
    contexts: u64,
}

impl Summary {
    fn new(pages: &[StatisticsSnapshot]) -> Self {
        let mut objects = ObjectCounts::default();
        for page in pages {
            page.add_objects(&mut objects);
        }
        Self {
            objects,
            queue_pairs: pages.iter().map(StatisticsSnapshot::queue_pair_count).sum(),
            contexts: open_contexts(pages).len() as u64,
        }
    }

    /// The numbers in the kernel's order.
    fn record(&self, number: usize, name: &str) -> Record {
        let objects = |kind| self.objects.get(kind);
        Record::new(format!("{number}: {name}: "))
            .json("ifindex", number as u64)
            .json("ifname", name)
            .fact("pd", objects(ObjectKind::ProtectionDomain))
            .fact("cq", objects(ObjectKind::CompletionQueue))
            .fact("qp", self.queue_pairs)
            .fact("cm_id", objects(ObjectKind::ConnectionId))
            .fact("mr", objects(ObjectKind::MemoryRegion))
            .fact("ctx", self.contexts)
            .fact("srq", objects(ObjectKind::SharedReceiveQueue))
    }
}

/// The statistics pages of the processes at a device.
fn pages(device: &Device) -> anyhow::Result<Vec<StatisticsSnapshot>> {
    let mut pages = sharing::statistics()?;
    let is_at_device = |gid: [u8; 16]| device.gids.iter().any(|entry| entry.gid.bytes() == gid);
    pages.retain(|page| page.is_here() && is_at_device(page.gid()));
    pages.sort_by_key(|page| (page.pid(), page.context(), page.lane()));
    Ok(pages)
}

/// The process and the number of each context. A context has a page for each lane.
fn open_contexts(pages: &[StatisticsSnapshot]) -> BTreeSet<(u32, u32)> {
    pages
        .iter()
        .map(|page| (page.pid(), page.context()))
        .collect()
}

/// The objects of a kind that other processes can see.
fn listed(kind: ResourceKind, filter: &[&str], devices: &[Device]) -> anyhow::Result<Answer> {
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

/// Objects whose number is all that other processes know.
fn private(kind: &str) -> Answer {
    let name = match kind {
        "pd" => "protection domains",
        "cq" => "completion queues",
        "mr" => "memory regions",
        _ => "shared receive queues",
    };
    Answer::Rejected(format!(
        "rdma: only the process that has them knows its {name} one by one; `rdma resource` counts them"
    ))
}

/// The members at each address of a device.
fn members(device: &Device) -> anyhow::Result<Vec<(IpAddr, ListedMember)>> {
    let mut found = Vec::new();
    for entry in &device.gids {
        let here = sharing::list_members(entry.address)?.into_iter();
        found.extend(here.map(|it| (entry.address, it)));
    }
    Ok(found)
}

fn contexts(number: usize, device: &Device) -> anyhow::Result<Vec<Record>> {
    let record = |(context, (pid, _)): (usize, (u32, u32))| {
        let record = Record::new(format!("dev {} ", device.name))
            .json("ifindex", number as u64)
            .json("ifname", &*device.name)
            .fact("ctxn", context as u64);
        of_process(record, pid)
    };
    let contexts = open_contexts(&pages(device)?);
    Ok(contexts.into_iter().enumerate().map(record).collect())
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
    let mut records = Vec::new();
    for page in &pages(device)? {
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

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::record::printed;
    use super::*;

    fn summary() -> [Record; 2] {
        let full = Summary {
            objects: ObjectCounts([2, 3, 1, 4, 5]),
            queue_pairs: 6,
            contexts: 7,
        };
        let empty = Summary::new(&[]);
        [full.record(0, "rxe0"), empty.record(1, "rxe1")]
    }

    #[test]
    fn a_summary_has_one_line_for_each_device() {
        let text = printed(&summary(), Format::default());
        let lines = "0: rxe0: pd 2 cq 3 qp 6 cm_id 5 mr 1 ctx 7 srq 4 \n\
                     1: rxe1: pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0 \n";
        assert_eq!(text, lines);
    }

    #[test]
    fn a_summary_in_json_has_one_object_for_each_device() {
        let json = Format {
            json: true,
            ..Format::default()
        };
        let objects = "[{\"ifindex\":0,\"ifname\":\"rxe0\",\"pd\":2,\"cq\":3,\"qp\":6,\"cm_id\":5,\"mr\":1,\"ctx\":7,\
                       \"srq\":4},{\"ifindex\":1,\"ifname\":\"rxe1\",\"pd\":0,\"cq\":0,\"qp\":0,\"cm_id\":0,\"mr\":0,\
                       \"ctx\":0,\"srq\":0}]\n";
        assert_eq!(printed(&summary(), json), objects);
    }

    #[test]
    fn a_device_is_named_instead_of_a_resource_type() {
        assert_eq!(named_device(&["show", "mlx5_0"]), Some("mlx5_0"));
        assert_eq!(named_device(&["list", "mlx5_0"]), Some("mlx5_0"));
        assert_eq!(named_device(&["show", "qp"]), None);
        assert_eq!(named_device(&["show", "qp", "mlx5_0"]), None);
        assert_eq!(named_device(&["show"]), None);
        assert_eq!(named_device(&["help", "mlx5_0"]), None);
    }
}

//! The state of all open devices at one time.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};

use net::share::{StatisticsSnapshot, statistics};
use serde::Serialize;
use statistics::{QUEUE_PAIR_COUNTERS, QueuePairRecord};

use crate::output::{Table, count};

/// The open devices, in the order of their processes.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) devices: Vec<OpenDevice>,
}

/// One device that one process has open.
#[derive(Serialize)]
pub(super) struct OpenDevice {
    pub(super) pid: u32,
    /// The name of the program.
    pub(super) program: String,
    pub(super) device: String,
    pub(super) address: IpAddr,
    /// When the process wrote this, in seconds since it opened the device.
    time: f64,
    pub(super) counters: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
    pub(super) queue_pair_count: u64,
    pub(super) queue_pairs: Vec<OpenQueuePair>,
}

/// One queue pair.
#[derive(Serialize)]
pub(super) struct OpenQueuePair {
    pub(super) number: u32,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) state: &'static str,
    pub(super) peer: Option<Peer>,
    /// The way of its packets: `sockets`, `memory` (shared with the peer's process), `device` (the same one) or
    /// `none`.
    pub(super) path: &'static str,
    pub(super) outstanding_sends: u64,
    pub(super) counters: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
}

/// The queue pair at the other end.
#[derive(Serialize)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) number: u32,
}

/// What happened per second since the report before.
#[derive(Serialize, Clone, Copy)]
struct Rates {
    bytes_sent: f64,
    bytes_received: f64,
    packets_sent: f64,
    packets_received: f64,
}

impl Rates {
    fn new(now: &BTreeMap<&str, u64>, before: &BTreeMap<&str, u64>, seconds: f64) -> Option<Self> {
        let rate = |name: &str| {
            let value = |from: &BTreeMap<&str, u64>| from.get(name).copied().unwrap_or(0);
            value(now).saturating_sub(value(before)) as f64 / seconds
        };
        (seconds > 0.0).then(|| Self {
            bytes_sent: rate("bytes_sent"),
            bytes_received: rate("bytes_received"),
            packets_sent: rate("packets_sent"),
            packets_received: rate("packets_received"),
        })
    }
}

impl Report {
    /// The present state, of all devices or of those with this name.
    pub(super) fn now(device: Option<&str>) -> anyhow::Result<Self> {
        let pages = statistics()?;
        let pages = pages.iter().filter(|page| page.is_here());
        let mut devices: Vec<OpenDevice> = pages
            .map(OpenDevice::new)
            .filter(|it| device.is_none_or(|wanted| it.device == wanted))
            .collect();
        devices.sort_by(|a, b| (a.pid, &a.device).cmp(&(b.pid, &b.device)));
        Ok(Self { devices })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The same with rates since an earlier report. A device that has published nothing since then has rates of zero.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for device in &mut self.devices {
            let same = |it: &&OpenDevice| it.pid == device.pid && it.device == device.device;
            let Some(earlier) = before.devices.iter().find(same) else {
                continue;
            };
            let seconds = device.time - earlier.time;
            device.rates = Rates::new(&device.counters, &earlier.counters, seconds);
            for queue_pair in &mut device.queue_pairs {
                let mut earlier = earlier.queue_pairs.iter();
                if let Some(earlier) = earlier.find(|it| it.number == queue_pair.number) {
                    queue_pair.rates = Rates::new(&queue_pair.counters, &earlier.counters, seconds);
                }
            }
        }
        self
    }

    /// Two tables, one of devices and one of queue pairs.
    pub(super) fn tables(&self) -> String {
        let mut devices = Table::new([
            "PID",
            "PROGRAM",
            "DEVICE",
            "ADDRESS",
            "QPS",
            "SENT",
            "RECEIVED",
            "PACKETS",
            "RETRANSMITTED",
            "TIMEOUTS",
            "RNR",
            "DROPPED",
        ]);
        let mut queue_pairs = Table::new([
            "PID",
            "QP",
            "TYPE",
            "STATE",
            "PEER",
            "PATH",
            "OUTSTANDING",
            "MESSAGES",
            "SENT",
            "RECEIVED",
            "RETRANSMITTED",
            "TIMEOUTS",
            "RNR",
        ]);
        let mut left_out = 0;
        for device in &self.devices {
            devices.push(device.row());
            for queue_pair in &device.queue_pairs {
                queue_pairs.push(queue_pair.row(device.pid));
            }
            left_out += device.queue_pair_count - device.queue_pairs.len() as u64;
        }
        let mut text = devices.to_string();
        if !queue_pairs.is_empty() {
            text += &format!("\n{queue_pairs}");
        }
        if left_out > 0 {
            let more = count(left_out as usize, "queue pair is", "queue pairs are");
            text += &format!("{more} not shown: a device publishes only so many.\n");
        }
        text + "\n"
    }
}

/// The counters of what a device drops.
const DROPPED: [&str; 11] = [
    "malformed",
    "bad_checksum",
    "unknown_queue_pair",
    "wrong_state",
    "wrong_service",
    "wrong_path",
    "bad_partition_key",
    "bad_queue_key",
    "unknown_group",
    "dropped_messages",
    "send_errors",
];

impl OpenDevice {
    fn new(page: &StatisticsSnapshot) -> Self {
        let pid = page.pid();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            pid,
            program: name.trim_end().to_owned(),
            device: page.device(),
            address: address(page.gid()),
            time: page.time() as f64 / 1e9,
            counters: page.counters().iter().collect(),
            rates: None,
            queue_pair_count: page.queue_pair_count(),
            queue_pairs: page.queue_pairs().map(OpenQueuePair::new).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let sum = |names: &[&str]| {
            let values = names.iter().filter_map(|name| self.counters.get(name));
            values.sum::<u64>().to_string()
        };
        vec![
            self.pid.to_string(),
            self.program.clone(),
            self.device.clone(),
            self.address.to_string(),
            self.queue_pair_count.to_string(),
            amount(
                self.counters["bytes_sent"],
                self.rates.map(|it| it.bytes_sent),
            ),
            amount(
                self.counters["bytes_received"],
                self.rates.map(|it| it.bytes_received),
            ),
            sum(&["packets_sent", "packets_received"]),
            sum(&["retransmitted"]),
            sum(&["timeouts"]),
            sum(&["rnr_naks_sent", "rnr_naks_received"]),
            sum(&DROPPED),
        ]
    }
}

impl OpenQueuePair {
    fn new(record: QueuePairRecord) -> Self {
        Self {
            number: record.number,
            kind: kind(record.kind),
            state: state(record.state),
            peer: (record.peer_gid != [0; 16]).then(|| Peer {
                address: address(record.peer_gid),
                number: record.peer_number,
            }),
            path: record.path.name(),
            outstanding_sends: record.outstanding,
            counters: QUEUE_PAIR_COUNTERS
                .into_iter()
                .zip(record.counters)
                .collect(),
            rates: None,
        }
    }

    fn row(&self, pid: u32) -> Vec<String> {
        let value = |name: &str| self.counters[name];
        let peer = self.peer.as_ref();
        let peer = peer.map(|peer| format!("{} {:#08x}", peer.address, peer.number));
        vec![
            pid.to_string(),
            format!("{:#08x}", self.number),
            self.kind.to_owned(),
            self.state.to_owned(),
            peer.unwrap_or_else(|| "-".to_owned()),
            self.path.to_owned(),
            self.outstanding_sends.to_string(),
            (value("messages_sent") + value("messages_received")).to_string(),
            amount(value("bytes_sent"), self.rates.map(|it| it.bytes_sent)),
            amount(
                value("bytes_received"),
                self.rates.map(|it| it.bytes_received),
            ),
            value("retransmitted").to_string(),
            value("timeouts").to_string(),
            (value("rnr_naks_sent") + value("rnr_naks_received")).to_string(),
        ]
    }
}

/// The address of a GID.
fn address(gid: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid)).to_canonical()
}

/// An amount of bytes, or a rate.
fn amount(bytes: u64, rate: Option<f64>) -> String {
    match rate {
        None => in_units(bytes as f64),
        Some(rate) => format!("{}/s", in_units(rate)),
    }
}

fn in_units(bytes: f64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.iter().find(|(_, size)| bytes >= *size) {
        Some((name, size)) => format!("{:.1} {name}", bytes / size),
        None => format!("{bytes:.0} B"),
    }
}

/// The names of `ibv_qp_type`.
fn kind(number: u8) -> &'static str {
    match number {
        2 => "RC",
        3 => "UC",
        4 => "UD",
        9 => "XRC_SEND",
        10 => "XRC_RECV",
        _ => "?",
    }
}

/// The names of `ibv_qp_state`.
fn state(number: u8) -> &'static str {
    let names = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    names.get(usize::from(number)).unwrap_or(&"?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(time: f64, bytes: u64) -> OpenDevice {
        OpenDevice {
            pid: 1,
            program: "p".to_owned(),
            device: "d".to_owned(),
            address: [127, 0, 0, 1].into(),
            time,
            counters: [("bytes_sent", bytes), ("bytes_received", 0)].into(),
            rates: None,
            queue_pair_count: 0,
            queue_pairs: Vec::new(),
        }
    }

    #[test]
    fn rates_are_those_of_the_time_between_two_reports() {
        let before = Report {
            devices: vec![device(1.0, 1000)],
        };
        let now = Report {
            devices: vec![device(1.5, 3000)],
        };
        let rates = now.since(&before).devices[0].rates.expect("rates");
        assert_eq!((rates.bytes_sent, rates.bytes_received), (4000.0, 0.0));
        let other = Report {
            devices: vec![OpenDevice {
                pid: 2,
                ..device(2.0, 0)
            }],
        };
        assert!(other.since(&before).devices[0].rates.is_none());
    }

    #[test]
    fn amounts_have_units() {
        assert_eq!(amount(999, None), "999 B");
        assert_eq!(amount(1_500_000, None), "1.5 MB");
        assert_eq!(amount(0, Some(2e9)), "2.0 GB/s");
    }
}

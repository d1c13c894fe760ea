//! The state of all open devices at one time.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::AddAssign;
use std::time::Instant;

use net::sharing::{StatisticsSnapshot, statistics};
use serde::Serialize;
use statistics::{DeviceCounters, ObjectCounts, QUEUE_PAIR_COUNTERS, QueuePairRecord};

/// The open devices, in the order of their processes.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) devices: Vec<OpenDevice>,
    #[serde(skip)]
    read_at: Instant,
}

/// One device that one process has open.
#[derive(Serialize)]
pub(super) struct OpenDevice {
    pub(super) pid: u32,
    /// Which of the open devices of its process it is.
    pub(super) context: u32,
    /// The name of the program.
    pub(super) program: String,
    pub(super) device: String,
    pub(super) address: IpAddr,
    /// The sums of its lanes.
    pub(super) counters: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rates: Option<Rates>,
    pub(super) lanes: Vec<Lane>,
    /// How many objects of other kinds than queue pairs it has.
    pub(super) objects: BTreeMap<&'static str, u64>,
    pub(super) queue_pair_count: u64,
    /// In the order of the lanes.
    pub(super) queue_pairs: Vec<OpenQueuePair>,
}

/// One of the engines of an open device.
#[derive(Serialize)]
pub(super) struct Lane {
    /// Its number. The first is 0.
    pub(super) lane: u32,
    /// When the process wrote this, in seconds since it opened the lane.
    pub(super) time: f64,
    pub(super) counters: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rates: Option<Rates>,
}

/// One queue pair.
#[derive(Serialize)]
pub(super) struct OpenQueuePair {
    pub(super) number: u32,
    /// The lane that runs it.
    pub(super) lane: u32,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) state: &'static str,
    pub(super) peer: Option<Peer>,
    /// The way of its packets: `sockets`, `memory` (shared with the peer's process), `device` (the same one) or
    /// `none`.
    pub(super) path: &'static str,
    /// The path MTU in bytes, as both sides agreed on it; `None` if there is no peer yet.
    pub(super) path_mtu: Option<u32>,
    /// Send requests that are not completed.
    pub(super) send_queue: Level,
    /// Receives that are posted and not used.
    pub(super) receive_queue: Level,
    /// Packets that the peer has not acknowledged.
    pub(super) window: Level,
    /// Completions of sends that the program has not polled.
    pub(super) send_completions: Level,
    /// Completions of receives that the program has not polled.
    pub(super) receive_completions: Level,
    /// Timeouts since the peer last acknowledged something.
    pub(super) present_timeouts: u32,
    /// Whether it waits because the peer has no receive posted.
    pub(super) waits_for_receiver: bool,
    pub(super) counters: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rates: Option<Rates>,
}

/// How much is in a queue, and how much fits.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Level {
    pub(super) used: u32,
    pub(super) capacity: u32,
}

impl From<statistics::Level> for Level {
    fn from(level: statistics::Level) -> Self {
        Self {
            used: level.used,
            capacity: level.capacity,
        }
    }
}

/// The queue pair at the other end.
#[derive(Serialize)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) number: u32,
}

/// What happened per second since the report before.
#[derive(Serialize, Clone, Copy, Default)]
pub(super) struct Rates {
    pub(super) bytes_sent: f64,
    pub(super) bytes_received: f64,
    pub(super) packets_sent: f64,
    pub(super) packets_received: f64,
    /// Of a queue pair only.
    pub(super) messages: f64,
}

impl Rates {
    fn new(now: &BTreeMap<&str, u64>, before: &BTreeMap<&str, u64>, seconds: f64) -> Self {
        if seconds <= 0.0 {
            return Self::default();
        }
        let rate = |name: &str| {
            let value = |from: &BTreeMap<&str, u64>| from.get(name).copied().unwrap_or(0);
            value(now).saturating_sub(value(before)) as f64 / seconds
        };
        Self {
            bytes_sent: rate("bytes_sent"),
            bytes_received: rate("bytes_received"),
            packets_sent: rate("packets_sent"),
            packets_received: rate("packets_received"),
            messages: rate("messages_sent") + rate("messages_received"),
        }
    }
}

impl AddAssign for Rates {
    fn add_assign(&mut self, other: Self) {
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.packets_sent += other.packets_sent;
        self.packets_received += other.packets_received;
        self.messages += other.messages;
    }
}

impl Report {
    /// The present state, of all devices or of those with this name.
    pub(super) fn now(device: Option<&str>) -> anyhow::Result<Self> {
        let pages = statistics()?;
        let mut pages: Vec<_> = pages.iter().filter(|page| page.is_here()).collect();
        pages.sort_by_key(|page| (page.pid(), page.context(), page.lane()));
        let lanes = pages.chunk_by(|a, b| (a.pid(), a.context()) == (b.pid(), b.context()));
        let devices = lanes.map(OpenDevice::new);
        let devices = devices.filter(|it| device.is_none_or(|wanted| it.device == wanted));
        Ok(Self {
            devices: devices.collect(),
            read_at: Instant::now(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The same with rates since an earlier report. A device that has published nothing since then has rates of zero.
    pub(super) fn since(mut self, before: &Self) -> Self {
        let passed = self.read_at.duration_since(before.read_at).as_secs_f64();
        for device in &mut self.devices {
            let same = |it: &&OpenDevice| (it.pid, it.context) == (device.pid, device.context);
            let Some(earlier) = before.devices.iter().find(same) else {
                continue;
            };
            device.set_rates(earlier, passed);
        }
        self
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
    /// From the pages of its lanes.
    fn new(pages: &[&StatisticsSnapshot]) -> Self {
        let first = pages[0];
        let pid = first.pid();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut counters = DeviceCounters::default();
        let mut objects = ObjectCounts::default();
        for page in pages {
            counters.add(&page.counters().0);
            page.add_objects(&mut objects);
        }
        let queue_pairs = pages.iter().flat_map(|page| {
            let records = page.queue_pairs();
            records.map(|record| OpenQueuePair::new(record, page.lane()))
        });
        Self {
            pid,
            context: first.context(),
            program: name.trim_end().to_owned(),
            device: first.device(),
            address: address(first.gid()),
            counters: counters.iter().collect(),
            rates: None,
            lanes: pages.iter().map(|page| Lane::new(page)).collect(),
            objects: objects.iter().collect(),
            queue_pair_count: pages.iter().map(|page| page.queue_pair_count()).sum(),
            queue_pairs: queue_pairs.collect(),
        }
    }

    /// Sets the rates since an earlier report, `passed` seconds ago. Each lane publishes at its own times.
    fn set_rates(&mut self, earlier: &Self, passed: f64) {
        let mut sum = Rates::default();
        for lane in &mut self.lanes {
            let mut before = earlier.lanes.iter();
            let Some(before) = before.find(|it| it.lane == lane.lane) else {
                continue;
            };
            // A lane that was idle publishes nothing. Then all that is new has happened since the earlier report.
            let seconds = (lane.time - before.time).min(passed);
            let rates = Rates::new(&lane.counters, &before.counters, seconds);
            lane.rates = Some(rates);
            sum += rates;
            let own = self.queue_pairs.iter_mut();
            for queue_pair in own.filter(|it| it.lane == lane.lane) {
                let mut before = earlier.queue_pairs.iter();
                if let Some(before) = before.find(|it| it.number == queue_pair.number) {
                    let rates = Rates::new(&queue_pair.counters, &before.counters, seconds);
                    queue_pair.rates = Some(rates);
                }
            }
        }
        self.rates = Some(sum);
    }

    /// How many packets and messages it dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.sum(&DROPPED)
    }

    /// The sum of these counters.
    pub(super) fn sum(&self, names: &[&str]) -> u64 {
        sum(&self.counters, names)
    }
}

impl Lane {
    fn new(page: &StatisticsSnapshot) -> Self {
        Self {
            lane: page.lane(),
            time: page.time() as f64 / 1e9,
            counters: page.counters().iter().collect(),
            rates: None,
        }
    }
}

impl OpenQueuePair {
    fn new(record: QueuePairRecord, lane: u32) -> Self {
        Self {
            number: record.number,
            lane,
            kind: kind(record.kind),
            state: state(record.state),
            peer: (record.peer_gid != [0; 16]).then(|| Peer {
                address: address(record.peer_gid),
                number: record.peer_number,
            }),
            path: record.path.name(),
            path_mtu: path_mtu(record.path_mtu),
            send_queue: record.sends.into(),
            receive_queue: record.receives.into(),
            window: record.window.into(),
            send_completions: record.send_completions.into(),
            receive_completions: record.receive_completions.into(),
            present_timeouts: record.present_timeouts,
            waits_for_receiver: record.waits_for_receiver,
            counters: QUEUE_PAIR_COUNTERS
                .into_iter()
                .zip(record.counters)
                .collect(),
            rates: None,
        }
    }

    /// The sum of these counters.
    pub(super) fn sum(&self, names: &[&str]) -> u64 {
        sum(&self.counters, names)
    }

    /// Address and number of the peer.
    pub(super) fn peer_text(&self) -> String {
        let peer = self.peer.as_ref();
        let peer = peer.map(|peer| format!("{} {:#08x}", peer.address, peer.number));
        peer.unwrap_or_else(|| "-".to_owned())
    }

    /// The path MTU.
    pub(super) fn mtu_text(&self) -> String {
        let mtu = self.path_mtu.map(|it| it.to_string());
        mtu.unwrap_or_else(|| "-".to_owned())
    }
}

/// The bytes of an `ibv_mtu`.
fn path_mtu(code: u8) -> Option<u32> {
    (1..=5).contains(&code).then(|| 128 << code)
}

fn sum(counters: &BTreeMap<&str, u64>, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| counters.get(name)).sum()
}

/// The address of a GID.
fn address(gid: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid)).to_canonical()
}

/// An amount of bytes with its unit.
pub(super) fn bytes(amount: f64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.iter().find(|(_, size)| amount >= *size) {
        Some((name, size)) => format!("{:.1} {name}", amount / size),
        None => format!("{amount:.0} B"),
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
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// A lane that has sent this number of bytes.
    pub(in crate::commands) fn lane(number: u32, time: f64, sent: u64) -> Lane {
        Lane {
            lane: number,
            time,
            counters: [("bytes_sent", sent), ("bytes_received", 0)].into(),
            rates: None,
        }
    }

    /// A device of process `pid` that has sent this number of bytes.
    pub(in crate::commands) fn device(pid: u32, time: f64, sent: u64) -> OpenDevice {
        OpenDevice {
            pid,
            context: 0,
            program: "p".to_owned(),
            device: "d".to_owned(),
            address: [127, 0, 0, 1].into(),
            counters: [("bytes_sent", sent), ("bytes_received", 0)].into(),
            rates: None,
            lanes: vec![lane(0, time, sent)],
            objects: ObjectCounts::default().iter().collect(),
            queue_pair_count: 0,
            queue_pairs: Vec::new(),
        }
    }

    /// A queue pair that has sent this number of bytes.
    pub(in crate::commands) fn queue_pair(number: u32, sent: u64) -> OpenQueuePair {
        let level = Level {
            used: 1,
            capacity: 16,
        };
        let mut counters: BTreeMap<_, _> = QUEUE_PAIR_COUNTERS.map(|name| (name, 0)).into();
        counters.insert("bytes_sent", sent);
        OpenQueuePair {
            number,
            lane: 0,
            kind: "RC",
            state: "RTS",
            peer: None,
            path: "sockets",
            path_mtu: Some(1024),
            send_queue: level,
            receive_queue: level,
            window: level,
            send_completions: level,
            receive_completions: level,
            present_timeouts: 0,
            waits_for_receiver: false,
            counters,
            rates: None,
        }
    }

    /// A report this number of seconds after the first.
    pub(in crate::commands) fn report(
        start: Instant,
        seconds: f64,
        devices: impl Into<Vec<OpenDevice>>,
    ) -> Report {
        Report {
            devices: devices.into(),
            read_at: start + Duration::from_secs_f64(seconds),
        }
    }

    #[test]
    fn rates_are_those_of_the_time_between_two_reports() {
        let start = Instant::now();
        let before = report(start, 0.0, [device(1, 1.0, 1000)]);
        let sent = |devices: Vec<OpenDevice>| {
            let now = report(start, 0.6, devices).since(&before);
            now.devices[0].rates.map(|rates| rates.bytes_sent)
        };
        assert_eq!(sent(vec![device(1, 1.5, 3000)]), Some(4000.0));
        assert_eq!(sent(vec![device(1, 1.0, 1000)]), Some(0.0), "it is idle");
        let after_idling = sent(vec![device(1, 9.0, 1600)]).expect("rates");
        assert!((after_idling - 1000.0).abs() < 1.0, "{after_idling}");
        assert_eq!(sent(vec![device(2, 2.0, 0)]), None, "another process");
        let other = OpenDevice {
            context: 1,
            ..device(1, 2.0, 5000)
        };
        assert_eq!(sent(vec![other]), None, "another context");
    }

    #[test]
    fn each_lane_has_the_rates_of_its_own_time_and_the_device_their_sum() {
        let start = Instant::now();
        let at = |seconds: f64, first: Lane, second: Lane| {
            let mut of_second = queue_pair(0x21, second.counters["bytes_sent"]);
            of_second.lane = 1;
            let device = OpenDevice {
                queue_pairs: vec![queue_pair(0x11, first.counters["bytes_sent"]), of_second],
                lanes: vec![first, second],
                ..device(1, 0.0, 0)
            };
            report(start, seconds, [device])
        };
        // The second lane was opened later, and published after half of the time.
        let before = at(0.0, lane(0, 9.0, 500), lane(1, 2.0, 100));
        let now = at(1.0, lane(0, 10.0, 1500), lane(1, 2.5, 1100)).since(&before);
        let device = &now.devices[0];
        let sent = |rates: Option<Rates>| rates.map(|it| it.bytes_sent);
        assert_eq!(sent(device.lanes[0].rates), Some(1000.0));
        assert_eq!(sent(device.lanes[1].rates), Some(2000.0));
        assert_eq!(sent(device.queue_pairs[0].rates), Some(1000.0));
        assert_eq!(sent(device.queue_pairs[1].rates), Some(2000.0));
        assert_eq!(sent(device.rates), Some(3000.0));
    }

    #[test]
    fn amounts_have_units() {
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1_500_000.0), "1.5 MB");
        assert_eq!(bytes(2e9), "2.0 GB");
    }
}

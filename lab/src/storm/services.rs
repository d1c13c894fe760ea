//! The servers of a storm, and the commands of all programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cluster::{Cluster, Side};
use super::lost_messages;
use super::random::Random;
use crate::programs::network::Host;

/// A server of several clients, which runs until the end.
pub(super) struct Service {
    pub(super) kind: ServiceKind,
    pub(super) port: u16,
    /// Whether it is killed at random, and started again.
    pub(super) is_killed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServiceKind {
    /// Our worker, which proves that nothing is lost.
    Ledger,
    Rping,
    RociPing,
}

pub(super) const SERVICES: [Service; 6] = [
    service(ServiceKind::Ledger, 7001, false),
    service(ServiceKind::Ledger, 7002, true),
    service(ServiceKind::Rping, 7003, false),
    service(ServiceKind::Rping, 7004, true),
    service(ServiceKind::RociPing, 7005, false),
    service(ServiceKind::RociPing, 7006, true),
];

impl Service {
    /// A service that is killed at random may be started again without a network. `rping` ends as soon as a client
    /// is killed in its handshake, because its server takes every REJECTED event for its own.
    pub(super) fn may_end(&self) -> bool {
        self.is_killed || self.kind == ServiceKind::Rping
    }
}

/// The longest message of a ping.
const LONGEST_PING: u64 = 9000;

const fn service(kind: ServiceKind, port: u16, is_killed: bool) -> Service {
    Service {
        kind,
        port,
        is_killed,
    }
}

/// A server for one client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pair {
    Pingpong,
    SendBandwidth,
    WriteLatency,
    RociPerf,
}

pub(super) const PAIRS: [Pair; 4] = [
    Pair::Pingpong,
    Pair::SendBandwidth,
    Pair::WriteLatency,
    Pair::RociPerf,
];

/// The resource that a program has too little of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    None,
    Descriptors(u64),
    /// Address space, in MiB.
    Memory(u64),
    /// A capture onto the full disk.
    Disk,
}

/// The largest limit of address space, in MiB.
pub(super) const LARGEST_LIMIT: u64 = 160;

/// What the storm runs.
pub(super) struct Tools {
    pub(super) roci: PathBuf,
    pub(super) ledger: PathBuf,
    pub(super) scratch: PathBuf,
}

impl Tools {
    /// The least address space, in MiB, in which `roci` starts. With less the kernel ends it with SIGSEGV before its
    /// first instruction, or the loader cannot map its libraries; neither says anything about this project.
    pub(super) fn least_memory(&self) -> Result<u64, String> {
        let starts = |mebibytes: &u64| {
            let mut command = Command::new("prlimit");
            command
                .arg(format!("--as={}", mebibytes << 20))
                .arg(&self.roci)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        (4..LARGEST_LIMIT)
            .find(starts)
            .ok_or_else(|| format!("roci does not start in {LARGEST_LIMIT} MiB of address space"))
    }
}

/// Makes commands.
pub(super) struct Commands<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) tools: &'a Tools,
}

impl Commands<'_> {
    pub(super) fn server(&self, service: &Service) -> Command {
        let (address, port) = (self.address(), service.port);
        let line = match service.kind {
            ServiceKind::Ledger => {
                let file = if service.is_killed {
                    lost_messages::KILLED
                } else {
                    lost_messages::STEADY
                };
                format!("{{ledger}} server {address}:{port} {}", self.file(file))
            }
            ServiceKind::Rping => {
                format!("{{run}} rping -s -P -a {address} -p {port} -S {LONGEST_PING}")
            }
            ServiceKind::RociPing => format!("{{roci}} ping -s -P -a {address} -p {port}"),
        };
        self.command(Side::Server, Limit::None, &line)
    }

    /// A client of a service; `id` is a number that no other client has.
    pub(super) fn client(
        &self,
        service: &Service,
        (side, limit): (Side, Limit),
        (id, count): (usize, u64),
        random: &mut Random,
    ) -> Command {
        let (address, port) = (self.address(), service.port);
        let size = random.between(32, LONGEST_PING);
        let ping = format!("-c -a {address} -p {port} -V -C {count} -S {size}");
        let line = match service.kind {
            ServiceKind::Ledger => {
                let prefix = if service.is_killed {
                    lost_messages::KILLED_CLIENT
                } else {
                    lost_messages::STEADY_CLIENT
                };
                let file = self.file(&format!("{prefix}{id}"));
                format!("{{ledger}} client {address}:{port} {id} {count} {file}")
            }
            ServiceKind::Rping => format!("{{run}} rping {ping}"),
            ServiceKind::RociPing => format!("{{roci}} ping {ping}"),
        };
        self.command(side, limit, &line)
    }

    /// Server and client of a pair.
    pub(super) fn pair(
        &self,
        pair: Pair,
        port: u16,
        side: Side,
        random: &mut Random,
    ) -> [Command; 2] {
        let (count, size) = (random.between(200, 3000), random.between(1, 20000));
        let usual = format!("-d roci0 -x 0 -p {port} -n {count} -s {size}");
        let line = match pair {
            Pair::Pingpong => {
                format!("{{run}} ibv_rc_pingpong -d roci0 -g 0 -p {port} -n {count} -s {size}")
            }
            Pair::SendBandwidth => format!("{{run}} ib_send_bw {usual}"),
            Pair::WriteLatency => format!("{{run}} ib_write_lat {usual}"),
            Pair::RociPerf => format!("{{roci}} perf send-bw -p {port} -n {count} -s {size}"),
        };
        let client = format!("{line} {}", self.address());
        [
            self.command(Side::Server, Limit::None, &line),
            self.command(side, Limit::None, &client),
        ]
    }

    fn address(&self) -> &str {
        &self.cluster.host(Side::Server).v4
    }

    fn file(&self, name: &str) -> String {
        self.tools.scratch.join(name).to_string_lossy().into_owned()
    }

    fn command(&self, side: Side, limit: Limit, line: &str) -> Command {
        let host = self.cluster.host(side);
        let devices = format!("{}={}", Host::device(), host.v4);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let roci = text(&self.tools.roci);
        let line = line
            .replace("{run}", &format!("{roci} run --devices {devices} --"))
            .replace("{roci}", &roci)
            .replace("{ledger}", &text(&self.tools.ledger));
        let limit_line = match limit {
            Limit::Descriptors(number) => format!("prlimit --nofile={number} {line}"),
            Limit::Memory(mebibytes) => format!("prlimit --as={} {line}", mebibytes << 20),
            Limit::None | Limit::Disk => line,
        };
        let mut words = limit_line.split_whitespace();
        let mut command = host.command(words.next().unwrap_or_default());
        command.args(words);
        if limit == Limit::Disk {
            let capture = self.cluster.full_disk().join("%p.pcapng");
            command.env("ROCI_PCAP", capture);
        }
        command
    }
}

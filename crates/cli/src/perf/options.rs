//! What is asked for on the command line, and the plan that both sides follow.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use rocinante::PathMtu;
use serde::{Deserialize, Serialize};

/// What to measure, and how.
#[derive(Args)]
#[command(after_help = "\
Without SERVER it is the server: it waits for one client and does what the client asks for.
Both sides use the device that has the address they are connected by, unless -d says otherwise.

Examples:
  roci perf write-bw --local                  one command, both ends on this machine
  roci perf write-bw --local --vs-tcp         the same beside TCP
  roci perf send-lat                          on one machine …
  roci perf send-lat 192.0.2.7 -s 64          … and on the other
  roci perf read-bw 192.0.2.7 -a --json       all sizes, for a script
  roci perf send-bw -d 127.0.0.2 &            two devices of one machine
  roci perf send-bw 127.0.0.2 -d 127.0.0.3 -c UD")]
pub(crate) struct Options {
    /// What to measure
    #[arg(value_enum)]
    pub(super) test: Test,
    /// The server's name or address; be the server when left out
    pub(super) server: Option<String>,
    /// Transport: RC for all tests, UC for send and write, UD for send
    #[arg(
        short = 'c',
        long = "connection",
        value_enum,
        ignore_case = true,
        default_value = "RC"
    )]
    service: Service,
    /// Message size in bytes; K and M are understood [default: 65536, for latency 2]
    #[arg(short, long, value_parser = parse_size, conflicts_with = "all")]
    size: Option<usize>,
    /// Number of messages [default: 5000, for latency 1000]
    #[arg(short = 'n', long = "iters", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Measure for this many seconds instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "iterations")]
    duration: Option<f64>,
    /// Measure all sizes from 2 bytes to 8 MiB
    #[arg(short, long)]
    all: bool,
    /// Requests under way at once
    #[arg(short, long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    tx_depth: u32,
    /// Receives that are set out
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..=65536))]
    rx_depth: u32,
    /// Number of queue pairs
    #[arg(short = 'q', long = "qp", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    queue_pairs: u32,
    /// Path MTU [default: the largest that both sides have]
    #[arg(short, long, value_name = "BYTES", value_parser = ["256", "512", "1024", "2048", "4096"])]
    mtu: Option<String>,
    /// The device, its interface or one of its addresses
    #[arg(short = 'd', long, visible_alias = "ib-dev", value_name = "DEVICE")]
    pub(super) device: Option<String>,
    /// GID index [default: the one that `roci gids` marks]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(super) gid_index: Option<u8>,
    /// TCP port by which the two sides find each other
    #[arg(short, long, default_value_t = 18515)]
    pub(super) port: u16,
    /// Both sides send (bandwidth only)
    #[arg(short, long)]
    bidirectional: bool,
    /// Sleep until something completes, instead of polling
    #[arg(short, long)]
    events: bool,
    /// Measure TCP over the same address too, in turns, and compare
    #[arg(long)]
    vs_tcp: bool,
    /// How many times each is measured with --vs-tcp
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Start the server too, on this machine
    #[arg(long, visible_alias = "self", conflicts_with = "server")]
    pub(super) local: bool,
    /// Write JSON, for scripts
    #[arg(long)]
    pub(super) json: bool,
    /// Be the server of `--local`: take a free loopback address and say which
    #[arg(long, hide = true, conflicts_with_all = ["server", "local"])]
    pub(super) announce: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// SEND bandwidth
    SendBw,
    /// RDMA WRITE bandwidth
    WriteBw,
    /// RDMA READ bandwidth
    ReadBw,
    /// Fetch-and-add rate
    AtomicBw,
    /// SEND latency: half of a round trip
    SendLat,
    /// RDMA WRITE latency: half of a round trip
    WriteLat,
    /// RDMA READ latency: the whole operation
    ReadLat,
    /// Fetch-and-add latency: the whole operation
    AtomicLat,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Write,
    Read,
    Atomic,
}

impl Test {
    /// Its messages.
    pub(super) fn verb(self) -> Verb {
        match self {
            Self::SendBw | Self::SendLat => Verb::Send,
            Self::WriteBw | Self::WriteLat => Verb::Write,
            Self::ReadBw | Self::ReadLat => Verb::Read,
            Self::AtomicBw | Self::AtomicLat => Verb::Atomic,
        }
    }

    /// Whether it is about time and not about amount.
    pub(super) fn is_latency(self) -> bool {
        matches!(
            self,
            Self::SendLat | Self::WriteLat | Self::ReadLat | Self::AtomicLat
        )
    }

    /// Its name on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("no test is hidden");
        value.get_name().to_owned()
    }
}

/// The transport service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Service {
    /// Reliable connection
    #[value(name = "RC")]
    Rc,
    /// Unreliable connection
    #[value(name = "UC")]
    Uc,
    /// Unreliable datagrams
    #[value(name = "UD")]
    Ud,
}

impl Service {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Amount {
    Messages(u64),
    Seconds(f64),
}

impl Amount {
    /// How long it lasts, if that is known.
    pub(super) fn duration(self) -> Option<Duration> {
        match self {
            Self::Messages(_) => None,
            Self::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
        }
    }
}

/// What the client wants; the server follows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) test: Test,
    pub(super) service: Service,
    pub(super) sizes: Vec<usize>,
    pub(super) amount: Amount,
    pub(super) depth: u32,
    pub(super) receive_depth: u32,
    pub(super) queue_pairs: u32,
    pub(super) mtu: Option<usize>,
    pub(super) bidirectional: bool,
    pub(super) events: bool,
    pub(super) vs_tcp: bool,
    pub(super) rounds: u32,
}

impl Plan {
    /// The largest message.
    pub(super) fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Whether the figure is what arrives: what is sent may be lost.
    pub(super) fn counts_arrivals(&self) -> bool {
        self.service != Service::Rc && self.test.verb() == Verb::Send && !self.test.is_latency()
    }

    /// A datagram is one packet: larger sizes are left out of a series, and refused alone.
    pub(super) fn fit(&mut self, mtu: PathMtu) -> anyhow::Result<()> {
        if self.service == Service::Ud {
            let smallest = self.sizes[0];
            self.sizes.retain(|&size| size <= mtu.bytes());
            ensure!(
                !self.sizes.is_empty(),
                "{smallest} bytes do not fit a datagram; choose -s {mtu} or less, or -c RC"
            );
        }
        Ok(())
    }

    /// Refuses what nobody must ask of a server, whoever the client is.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let counts = [self.depth, self.receive_depth, self.queue_pairs];
        let seconds = match self.amount {
            Amount::Messages(_) => 1.0,
            Amount::Seconds(seconds) => seconds,
        };
        let possible = counts.iter().all(|&count| count > 0)
            && !self.sizes.is_empty()
            && !self.sizes.contains(&0)
            && LONGEST.contains(&seconds);
        ensure!(
            possible,
            "the client asks for nothing; use the same version of roci"
        );
        let memory = self.largest().saturating_mul(self.queue_pairs as usize);
        ensure!(
            memory <= MOST_MEMORY,
            "{} queue pairs with {} bytes each are too much; ask for fewer or smaller ones",
            self.queue_pairs,
            self.largest()
        );
        let entries = u64::from(self.depth.max(self.receive_depth)) * u64::from(self.queue_pairs);
        ensure!(
            entries <= MOST_ENTRIES,
            "so many requests at once are too much; lower -t, -r or -q"
        );
        Ok(())
    }
}

/// Messages of all queue pairs together, in one direction.
const MOST_MEMORY: usize = 1 << 30;
/// Requests of all queue pairs together, in one direction.
const MOST_ENTRIES: u64 = 1 << 20;
/// Seconds that a measurement may take.
const LONGEST: RangeInclusive<f64> = 0.01..=86400.0;

impl Options {
    /// The plan that these options describe.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        self.check_service()?;
        self.check_latency()?;
        self.check_comparison()?;
        let default = if self.test.is_latency() { 1000 } else { 5000 };
        let plan = Plan {
            test: self.test,
            service: self.service,
            sizes: self.sizes()?,
            amount: match self.duration {
                Some(seconds) => Amount::Seconds(seconds),
                None => Amount::Messages(self.iterations.unwrap_or(default)),
            },
            depth: self.tx_depth,
            receive_depth: self.rx_depth,
            queue_pairs: self.queue_pairs,
            mtu: self.mtu.as_ref().and_then(|mtu| mtu.parse().ok()),
            bidirectional: self.bidirectional,
            events: self.events,
            vs_tcp: self.vs_tcp,
            rounds: if self.vs_tcp { self.rounds } else { 1 },
        };
        plan.check()?;
        Ok(plan)
    }

    fn sizes(&self) -> anyhow::Result<Vec<usize>> {
        if self.test.verb() == Verb::Atomic {
            let eight = self.size.is_none_or(|size| size == 8) && !self.all;
            ensure!(eight, "an atomic always has 8 bytes; leave out -s and -a");
            return Ok(vec![8]);
        }
        if self.all {
            return Ok((1..=23).map(|power| 1 << power).collect());
        }
        let default = match (self.test.is_latency(), self.service) {
            (true, _) => 2,
            (false, Service::Ud) => 1024,
            (false, _) => 65536,
        };
        Ok(vec![self.size.unwrap_or(default)])
    }

    fn check_service(&self) -> anyhow::Result<()> {
        let name = self.test.name();
        match (self.service, self.test.verb()) {
            (Service::Uc, Verb::Read | Verb::Atomic) => {
                bail!("UC has no reads and no atomics; use -c RC for {name}")
            }
            (Service::Ud, Verb::Write | Verb::Read | Verb::Atomic) => {
                bail!("UD has only sends; use -c RC for {name}, or measure send-bw or send-lat")
            }
            _ => Ok(()),
        }
    }

    fn check_latency(&self) -> anyhow::Result<()> {
        if !self.test.is_latency() {
            return Ok(());
        }
        ensure!(
            !self.bidirectional,
            "latency always goes both ways; leave out -b"
        );
        ensure!(
            self.queue_pairs == 1,
            "latency is measured on one queue pair; leave out -q"
        );
        let sleeps = self.events && self.test == Test::WriteLat;
        ensure!(
            !sleeps,
            "a write wakes nobody; leave out -e, or measure send-lat"
        );
        Ok(())
    }

    fn check_comparison(&self) -> anyhow::Result<()> {
        if self.vs_tcp {
            ensure!(
                !self.bidirectional,
                "--vs-tcp compares one direction at a time; leave out -b"
            );
            let atomic = self.test.verb() == Verb::Atomic;
            ensure!(
                !atomic,
                "TCP has no atomics; use --vs-tcp with sends, writes or reads"
            );
        }
        Ok(())
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.chars().last().map(|unit| unit.to_ascii_uppercase()) {
        Some('K') => (&text[..text.len() - 1], 1 << 10),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let size = digits
        .parse::<usize>()
        .ok()
        .and_then(|size| size.checked_mul(factor));
    size.filter(|size| (1..=1 << 30).contains(size))
        .ok_or_else(|| "give a number from 1 to 1024M".to_owned())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    seconds
        .filter(|seconds| LONGEST.contains(seconds))
        .ok_or_else(|| "give a number of seconds from 0.01 to 86400".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            test: Test::WriteBw,
            service: Service::Rc,
            sizes: vec![64],
            amount: Amount::Messages(1),
            depth: 1,
            receive_depth: 1,
            queue_pairs: 1,
            mtu: None,
            bidirectional: false,
            events: false,
            vs_tcp: false,
            rounds: 1,
        }
    }

    #[test]
    fn a_strangers_plan_can_do_no_harm() {
        assert!(plan().check().is_ok());
        let spoils: [fn(&mut Plan); 8] = [
            |plan| plan.sizes.clear(),
            |plan| plan.sizes.push(0),
            |plan| plan.sizes.push(usize::MAX),
            |plan| plan.depth = 0,
            |plan| plan.depth = u32::MAX,
            |plan| plan.queue_pairs = u32::MAX,
            |plan| plan.amount = Amount::Seconds(f64::NAN),
            |plan| plan.amount = Amount::Seconds(-1.0),
        ];
        for spoil in spoils {
            let mut plan = plan();
            spoil(&mut plan);
            assert!(plan.check().is_err(), "{plan:?}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        for wrong in ["", "K", "0", "-1", "2048M", "1G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}

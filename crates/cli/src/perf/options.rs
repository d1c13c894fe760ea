//! The command line options of `roci perf`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;

use super::test_parameters::{Amount, LONGEST, Service, Test, TestParameters, Verb};

/// The options of `roci perf`.
#[derive(Args)]
#[command(after_help = "\
Without SERVER, this is the server: it waits for one client. The client chooses TEST; the
server's own TEST only appears in its message.
Both sides use the device that has the address of their TCP connection, unless -d names one.

Examples:
  roci perf write-bw --local                  client and server on this machine
  roci perf write-bw --local --vs-tcp         the same, compared with TCP
  roci perf send-lat                          the server …
  roci perf send-lat 192.0.2.7 -s 64          … and the client on another machine
  roci perf read-bw 192.0.2.7 -a --json       all sizes, for a script
  roci perf write-bw 192.0.2.7 -D 10 -i 1     a line each second for ten seconds
  roci perf send-lat --local -a --vs-tcp --html latency.html    plots of all sizes
  roci perf send-bw -d 127.0.0.2 &            two devices on one machine
  roci perf send-bw 127.0.0.2 -d 127.0.0.3 -c UD")]
pub(crate) struct Options {
    /// What to measure
    #[arg(value_enum)]
    pub(super) test: Test,
    /// The server's name or address; without it, this process is the server
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
    /// Message size in bytes, or with the suffix K or M [default: 65536; for latency 2]
    #[arg(short, long, value_parser = parse_size, conflicts_with = "all")]
    size: Option<usize>,
    /// Number of messages [default: 5000; for latency 1000]
    #[arg(short = 'n', long = "iters", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Measure for this many seconds instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "iterations")]
    duration: Option<f64>,
    /// Print a line at this interval in seconds, as iperf3 does
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "json")]
    interval: Option<f64>,
    /// Also write the results as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Measure all sizes from 2 bytes to 8 MiB
    #[arg(short, long)]
    all: bool,
    /// Depth of the send queue: requests outstanding at once
    #[arg(short, long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    tx_depth: u32,
    /// Depth of the receive queue: receives posted at once
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..=65536))]
    rx_depth: u32,
    /// Number of queue pairs
    #[arg(short = 'q', long = "qp", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    queue_pairs: u32,
    /// Path MTU [default: the largest that both sides support]
    #[arg(short, long, value_name = "BYTES", value_parser = ["256", "512", "1024", "2048", "4096"])]
    mtu: Option<String>,
    /// The device, its interface or one of its addresses
    #[arg(short = 'd', long, visible_alias = "ib-dev", value_name = "DEVICE")]
    pub(super) device: Option<String>,
    /// GID index [default: the one that `roci gids` marks]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(super) gid_index: Option<u8>,
    /// TCP port on which the two sides exchange their parameters
    #[arg(short, long, default_value_t = 18515)]
    pub(super) port: u16,
    /// Both sides send (bandwidth only)
    #[arg(short, long)]
    bidirectional: bool,
    /// Wait for completion events instead of polling
    #[arg(short, long)]
    events: bool,
    /// Measure TCP between the same addresses in alternating rounds, and compare
    #[arg(long)]
    vs_tcp: bool,
    /// Number of rounds with --vs-tcp
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Also start the server, on this machine
    #[arg(long, visible_alias = "self", conflicts_with = "server")]
    pub(super) local: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    pub(super) json: bool,
    /// Be the server of `--local`: listen on a free loopback address and print it
    #[arg(long, hide = true, conflicts_with_all = ["server", "local"])]
    pub(super) announce: bool,
}

impl Options {
    /// The time between two lines.
    pub(super) fn interval(&self) -> Option<Duration> {
        self.interval.map(Duration::from_secs_f64)
    }

    /// The parameters that these options describe.
    pub(super) fn parameters(&self) -> anyhow::Result<TestParameters> {
        self.check_service()?;
        self.check_latency()?;
        self.check_comparison()?;
        let default = if self.test.is_latency() { 1000 } else { 5000 };
        let parameters = TestParameters {
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
        parameters.check()?;
        Ok(parameters)
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
            "a write causes no completion event at the receiver; leave out -e, or measure send-lat"
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

//! Tables as perftest prints them, the same as JSON, and a bar for the impatient.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::bandwidth::Flow;
use super::options::{Amount, Plan};
use crate::output::{FAINT, STRONG, count, print_json, print_line, styled};

const MIB: f64 = 1024.0 * 1024.0;

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Report {
    server: String,
    mtu: usize,
    #[serde(flatten)]
    plan: Plan,
    results: Vec<Row>,
    packets_sent_again: u64,
    #[serde(skip)]
    json: bool,
}

/// What was measured with one size of message.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Row {
    Bandwidth(BandwidthRow),
    Latency(LatencyRow),
}

#[derive(Serialize)]
pub(super) struct BandwidthRow {
    bytes: usize,
    iterations: u64,
    peak_mib_per_second: f64,
    average_mib_per_second: f64,
    million_messages_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<Comparison>,
}

#[derive(Serialize)]
pub(super) struct LatencyRow {
    bytes: usize,
    iterations: u64,
    min_us: f64,
    max_us: f64,
    typical_us: f64,
    average_us: f64,
    stdev_us: f64,
    p99_us: f64,
    p999_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<Comparison>,
}

/// RDMA beside TCP.
#[derive(Serialize)]
pub(super) struct Comparison {
    /// MiB a second or microseconds, the median of all rounds.
    tcp: f64,
    /// RDMA divided by TCP, the median of all rounds.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

impl Comparison {
    /// Of pairs of RDMA and TCP, one for each round.
    pub(super) fn of(rounds: &[(f64, f64)]) -> Option<Self> {
        let sorted = |value: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (ratios, tcp) = (sorted(|(rdma, tcp)| rdma / tcp), sorted(|(_, tcp)| *tcp));
        Some(Self {
            tcp: median(&tcp)?,
            ratio: median(&ratios)?,
            ratio_min: *ratios.first()?,
            ratio_max: *ratios.last()?,
        })
    }

    fn cells(&self) -> String {
        let range = format!("{:.2}-{:.2}", self.ratio_min, self.ratio_max);
        format!("{:>15.2}{:>10.2}{range:>13}", self.tcp, self.ratio)
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => Some((sorted.get(middle.checked_sub(1)?)? + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

impl Row {
    /// From what both sides saw, and the rounds of RDMA and TCP in messages a second.
    pub(super) fn bandwidth(size: usize, seen: &Seen, rounds: &[(f64, f64)]) -> Self {
        let mib = |messages: f64| messages * size as f64 / MIB;
        let in_mib: Vec<_> = rounds
            .iter()
            .map(|(rdma, tcp)| (mib(*rdma), mib(*tcp)))
            .collect();
        let rate = seen.rate();
        Self::Bandwidth(BandwidthRow {
            bytes: size,
            iterations: seen.client.messages,
            peak_mib_per_second: mib(seen.peak()),
            average_mib_per_second: mib(rate),
            million_messages_per_second: rate / 1e6,
            lost_percent: seen.lost(),
            tcp: Comparison::of(&in_mib),
        })
    }

    /// From the times of all operations, and the rounds of RDMA and TCP in nanoseconds.
    pub(super) fn latency(size: usize, times: &Histogram<u64>, rounds: &[(f64, f64)]) -> Self {
        let us = |nanoseconds: f64| nanoseconds / 1000.0;
        let in_us: Vec<_> = rounds
            .iter()
            .map(|(rdma, tcp)| (us(*rdma), us(*tcp)))
            .collect();
        let quantile = |quantile| us(times.value_at_quantile(quantile) as f64);
        Self::Latency(LatencyRow {
            bytes: size,
            iterations: times.len(),
            min_us: us(times.min() as f64),
            max_us: us(times.max() as f64),
            typical_us: quantile(0.5),
            average_us: us(times.mean()),
            stdev_us: us(times.stdev()),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            tcp: Comparison::of(&in_us),
        })
    }

    fn line(&self) -> String {
        let (mut line, tcp) = match self {
            Self::Bandwidth(row) => (bandwidth_line(row), &row.tcp),
            Self::Latency(row) => (latency_line(row), &row.tcp),
        };
        if let Some(comparison) = tcp {
            line.push_str(&comparison.cells());
        }
        line
    }
}

fn bandwidth_line(row: &BandwidthRow) -> String {
    let lost = row
        .lost_percent
        .map_or_else(String::new, |lost| format!("{lost:>9.2}"));
    format!(
        "{:>9}{:>14}{:>19.2}{:>22.2}{:>16.6}{lost}",
        row.bytes,
        row.iterations,
        row.peak_mib_per_second,
        row.average_mib_per_second,
        row.million_messages_per_second
    )
}

fn latency_line(row: &LatencyRow) -> String {
    let times = [
        (13, row.min_us),
        (13, row.max_us),
        (17, row.typical_us),
        (13, row.average_us),
        (15, row.stdev_us),
        (11, row.p99_us),
        (13, row.p999_us),
    ];
    let times = times.map(|(width, time)| format!("{time:>width$.2}"));
    format!("{:>9}{:>14}{}", row.bytes, row.iterations, times.concat())
}

/// What both sides saw of a bandwidth measurement.
pub(super) struct Seen {
    pub(super) client: Flow,
    pub(super) server: Flow,
    /// Whether what arrives counts, and not what is sent: messages may be lost.
    pub(super) arrivals: bool,
    pub(super) bidirectional: bool,
}

impl Seen {
    /// Messages a second, in both directions together.
    pub(super) fn rate(&self) -> f64 {
        match (self.arrivals, self.bidirectional) {
            (false, false) => self.client.rate(),
            (false, true) => self.client.rate() + self.server.rate(),
            (true, false) => self.server.receive_rate(),
            (true, true) => self.server.receive_rate() + self.client.receive_rate(),
        }
    }

    fn peak(&self) -> f64 {
        match (self.arrivals, self.bidirectional) {
            // How fast something was sent says nothing if it was lost.
            (true, _) => self.rate(),
            (false, true) => self.client.peak + self.server.peak,
            (false, false) => self.client.peak,
        }
    }

    fn lost(&self) -> Option<f64> {
        if !self.arrivals {
            return None;
        }
        let sent = self.client.messages + self.server.messages;
        let arrived = self.client.received + self.server.received;
        Some(100.0 * sent.saturating_sub(arrived) as f64 / sent.max(1) as f64)
    }
}

impl Report {
    /// Begins it: people see the head of the table.
    pub(super) fn begin(server: &str, mtu: usize, plan: &Plan, json: bool) -> anyhow::Result<Self> {
        let report = Self {
            server: server.to_owned(),
            mtu,
            plan: plan.clone(),
            results: Vec::new(),
            packets_sent_again: 0,
            json,
        };
        if !json {
            print_line(styled(FAINT, report.summary()))?;
            print_line(styled(STRONG, report.head()))?;
        }
        Ok(report)
    }

    fn summary(&self) -> String {
        let plan = &self.plan;
        let way = if plan.bidirectional {
            "both ways with"
        } else {
            "to"
        };
        let waiting = if plan.events { "sleeping" } else { "polling" };
        format!(
            "{} over {}, {way} {}: MTU {}, tx-depth {}, queue pairs {}, {waiting}",
            plan.test.name(),
            plan.service.name(),
            self.server,
            self.mtu,
            plan.depth,
            plan.queue_pairs
        )
    }

    fn head(&self) -> String {
        let unit = if self.plan.test.is_latency() {
            "usec"
        } else {
            "MiB/sec"
        };
        let mut head = match self.plan.test.is_latency() {
            true => {
                "   #bytes   #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  \
                 t_stdev[usec]  99%[usec]  99.9%[usec]"
            }
            false => {
                "   #bytes   #iterations    BW peak[MiB/sec]   BW average[MiB/sec]   MsgRate[Mpps]"
            }
        }
        .to_owned();
        if self.plan.counts_arrivals() {
            head.push_str("  lost[%]");
        }
        if self.plan.vs_tcp {
            head.push_str(&format!(
                "{:>15}  RDMA/TCP    (min-max)",
                format!("TCP[{unit}]")
            ));
        }
        head
    }

    /// Adds what was measured with one size.
    pub(super) fn push(&mut self, row: Row) -> anyhow::Result<()> {
        if !self.json {
            print_line(row.line())?;
        }
        self.results.push(row);
        Ok(())
    }

    /// Ends it: scripts get all of it.
    pub(super) fn end(mut self, packets_sent_again: u64) -> anyhow::Result<()> {
        self.packets_sent_again = packets_sent_again;
        if self.json {
            return print_json(&self);
        }
        if packets_sent_again > 0 {
            let packets = count(packets_sent_again as usize, "packet was", "packets were");
            print_line(styled(
                FAINT,
                format_args!("{packets} lost or late and sent again."),
            ))?;
        }
        Ok(())
    }
}

/// A bar on the terminal, if there is one and the run is long.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    amount: Amount,
    begin: Instant,
}

impl Progress {
    pub(super) fn new(plan: &Plan, size: usize, json: bool) -> Self {
        let wanted = !json && std::io::stderr().is_terminal();
        Self {
            bar: wanted.then(|| bar(plan.amount, size)),
            amount: plan.amount,
            begin: Instant::now(),
        }
    }

    /// So many messages are through.
    pub(super) fn at(&self, messages: u64) {
        /// Shorter runs show no bar.
        const SHORT: Duration = Duration::from_millis(700);
        /// Drawing takes time from what is measured.
        const DRAWS_PER_SECOND: u8 = 4;
        let Some(bar) = &self.bar else { return };
        let elapsed = self.begin.elapsed();
        if elapsed < SHORT {
            return;
        }
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
        }
        bar.set_position(match self.amount {
            Amount::Messages(_) => messages,
            Amount::Seconds(_) => elapsed.as_millis() as u64,
        });
    }
}

fn bar(amount: Amount, size: usize) -> ProgressBar {
    let length = match amount {
        Amount::Messages(messages) => messages,
        Amount::Seconds(seconds) => (seconds * 1000.0) as u64,
    };
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{msg:>9} [{bar:40}] {percent:>3} %");
    bar.with_style(style.expect("the template is right"))
        .with_message(size.to_string())
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! The results: as tables like perftest's, or as JSON.

use std::path::Path;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::html_report::{self, Chart};
use super::test_parameters::TestParameters;
use super::throughput::Seen;
use crate::output::{FAINT, STRONG, count, print_json, print_line, styled};

const MIB: f64 = 1024.0 * 1024.0;

/// All results.
#[derive(Serialize)]
pub(super) struct Report {
    server: String,
    /// The parameters, with the path MTU that both sides use.
    #[serde(flatten)]
    parameters: TestParameters,
    results: Vec<Row>,
    /// `null` at a device of the system, which does not tell.
    packets_retransmitted: Option<u64>,
    #[serde(skip)]
    json: bool,
}

/// The results for one message size.
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
    /// How many operations took how long, in microseconds.
    #[serde(skip)]
    histogram: Vec<(f64, u64)>,
}

/// RDMA compared with TCP.
#[derive(Serialize)]
pub(super) struct Comparison {
    /// MiB per second or microseconds: the median of all rounds.
    tcp: f64,
    /// RDMA divided by TCP: the median of all rounds.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

impl Comparison {
    /// From pairs of RDMA and TCP results, one for each round.
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
    /// From the counts of both sides, and the rounds of RDMA and TCP in messages per second.
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
            histogram: histogram(times),
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

/// The counts of times in steps of a twelfth of a doubling.
fn histogram(times: &Histogram<u64>) -> Vec<(f64, u64)> {
    let steps = times.iter_log(times.min().max(1), 2_f64.powf(1.0 / 12.0));
    steps
        .map(|step| {
            let until = step.value_iterated_to() as f64 / 1000.0;
            (until, step.count_since_last_iteration())
        })
        .collect()
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

impl Report {
    /// Prints the header of the table.
    pub(super) fn begin(
        server: &str,
        mtu: usize,
        parameters: &TestParameters,
        json: bool,
    ) -> anyhow::Result<Self> {
        let report = Self {
            server: server.to_owned(),
            parameters: TestParameters {
                mtu: Some(mtu),
                ..parameters.clone()
            },
            results: Vec::new(),
            packets_retransmitted: None,
            json,
        };
        if !json {
            print_line(styled(FAINT, report.summary()))?;
            print_line(styled(STRONG, report.head()))?;
        }
        Ok(report)
    }

    /// What the page shows: results by message size, and the times of each size.
    fn charts(&self) -> Vec<Chart> {
        let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
        let mut charts = Vec::new();
        for row in &self.results {
            let (bytes, values, tcp) = match row {
                Row::Bandwidth(row) => {
                    let values = [row.average_mib_per_second, row.peak_mib_per_second];
                    (row.bytes, values, &row.tcp)
                }
                Row::Latency(row) => (row.bytes, [row.typical_us, row.p99_us], &row.tcp),
            };
            let size = bytes as f64;
            lines[0].push((size, values[0]));
            lines[1].push((size, values[1]));
            lines[2].extend(tcp.as_ref().map(|tcp| (size, tcp.tcp)));
            if let Row::Latency(row) = row {
                let bars = row.histogram.iter();
                charts.push(Chart::bars(
                    format!("Latency of {bytes} bytes"),
                    "us",
                    bars.map(|&(time, count)| (time, count as f64)).collect(),
                ));
            }
        }
        let is_latency = self.parameters.test.is_latency();
        let (title, unit, names) = if is_latency {
            ("Latency by size", "us", ["typical", "99 %", "TCP, typical"])
        } else {
            (
                "Bandwidth by size",
                "MiB/s",
                ["average", "peak", "TCP, average"],
            )
        };
        let named = names.into_iter().zip(lines);
        let by_size = Chart::lines(title.to_owned(), unit, named.collect());
        std::iter::once(by_size).chain(charts).collect()
    }

    /// The lines of the table.
    fn page_table(&self) -> Vec<String> {
        let rows = self.results.iter().map(Row::line);
        std::iter::once(self.head()).chain(rows).collect()
    }

    fn summary(&self) -> String {
        let parameters = &self.parameters;
        let way = if parameters.bidirectional {
            "both ways with"
        } else {
            "to"
        };
        let waiting = if parameters.events {
            "sleeping"
        } else {
            "polling"
        };
        format!(
            "{} over {}, {way} {}: MTU {}, tx-depth {}, queue pairs {}, {waiting}",
            parameters.test.name(),
            parameters.service.name(),
            self.server,
            parameters
                .mtu
                .expect("it was agreed before anything is reported"),
            parameters.depth,
            parameters.queue_pairs
        )
    }

    fn head(&self) -> String {
        let unit = if self.parameters.test.is_latency() {
            "usec"
        } else {
            "MiB/sec"
        };
        let mut head = if self.parameters.test.is_latency() {
            "   #bytes   #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  \
                 t_stdev[usec]  99%[usec]  99.9%[usec]"
        } else {
            "   #bytes   #iterations    BW peak[MiB/sec]   BW average[MiB/sec]   MsgRate[Mpps]"
        }
        .to_owned();
        if self.parameters.counts_arrivals() {
            head.push_str("  lost[%]");
        }
        if self.parameters.vs_tcp {
            head.push_str(&format!(
                "{:>15}  RDMA/TCP    (min-max)",
                format!("TCP[{unit}]")
            ));
        }
        head
    }

    /// Adds the results for one size.
    pub(super) fn push(&mut self, row: Row) -> anyhow::Result<()> {
        if !self.json {
            print_line(row.line())?;
        }
        self.results.push(row);
        Ok(())
    }

    /// Ends the report. With `--json`, prints all of it.
    pub(super) fn end(
        mut self,
        packets_retransmitted: Option<u64>,
        html: Option<&Path>,
    ) -> anyhow::Result<()> {
        self.packets_retransmitted = packets_retransmitted;
        if let Some(path) = html {
            let text = html_report::text(&self.summary(), &self.charts(), &self.page_table());
            std::fs::write(path, text)
                .with_context(|| format!("the page {} can't be written", path.display()))?;
        }
        if self.json {
            return print_json(&self);
        }
        if let Some(number) = packets_retransmitted.filter(|number| *number > 0) {
            let packets = count(number as usize, "packet was", "packets were");
            print_line(styled(
                FAINT,
                format_args!("{packets} retransmitted: lost or late."),
            ))?;
        }
        Ok(())
    }
}

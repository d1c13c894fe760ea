//! `roci stat`: what the RDMA processes of this user have sent and received.

mod prometheus;
mod tables;

use std::thread::sleep;
use std::time::Duration;

use clap::Args;

use super::open_devices::Report;
use crate::find_device;
use crate::output::{print, print_line, remark};

/// The options of `roci stat`.
#[derive(Args)]
#[command(after_help = "\
Shows the devices that running processes of this user have open, with their queue pairs. Each process
publishes its counters every few milliseconds in its runtime directory. The process itself does not notice, and need
not run under `roci run`. LANE is which engine of the device runs a queue pair: a program with several threads
may have several, each with its own lock and sockets. MTU is the path MTU that both sides agreed on.

--json and --prometheus also show how many protection domains, completion queues, memory regions, shared receive queues
and rdma_cm ids each process has. Under `roci run` and `roci env`, `rdma resource` shows their sums for each device.

Under `roci run` and `roci env`, /sys/class/infiniband/DEVICE/ports/1/counters and hw_counters have the sums of all
processes at the device's addresses, those that have ended included.

Examples:
  roci stat                      all processes and queue pairs, once
  roci stat -i 1                 every second, with rates
  roci stat --json -i 1          one JSON object per line and second
  roci stat --prometheus > /var/lib/node_exporter/rdma.prom")]
pub(crate) struct Options {
    /// Only devices with this name
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Report at this interval in seconds, with rates, until Ctrl-C
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// End after this number of reports
    #[arg(short, long, value_name = "REPORTS", requires = "interval")]
    count: Option<u64>,
    /// Print JSON, for scripts: one line per report
    #[arg(long)]
    json: bool,
    /// Print the text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    prometheus: bool,
}

/// A number of seconds from an option.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let shortest = 0.05;
    if !(shortest..=86_400.0).contains(&seconds) {
        return Err(format!("must be from {shortest} to 86400 seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Prints reports.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let wanted = options.device.as_deref();
    let mut report = Report::now(wanted)?;
    if options.prometheus {
        return print(prometheus::text(&report));
    }
    if report.is_empty() && options.interval.is_none() && !options.json {
        remark("no process of this user has a device open in this network namespace");
        if let Some(Err(error)) = wanted.map(find_device::named_of_any_kind) {
            remark(error);
        }
        return Ok(());
    }
    show(options, &report)?;
    let Some(interval) = options.interval else {
        return Ok(());
    };
    for _ in 1..options.count.unwrap_or(u64::MAX) {
        sleep(interval);
        let next = Report::now(wanted)?.since(&report);
        show(options, &next)?;
        report = next;
    }
    Ok(())
}

fn show(options: &Options, report: &Report) -> anyhow::Result<()> {
    if options.json {
        print_line(serde_json::to_string(report)?)
    } else {
        print(tables::tables(report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "nan", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}

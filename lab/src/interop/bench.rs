//! `cargo xtask bench --kernel`: the kernel's Soft-RoCE, Rocinante and TCP side by side.
//!
//! All three run in the same virtual machine, in turns and in several rounds, with the same C program for both
//! libraries. Both ends use an address of a dummy interface. rdma_rxe has the port of RoCE in the machine's first
//! network namespace, so the other two use a second one with the same interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use xtask::command::CommandLine;

use super::backend::Backend;
use super::build_directory::BuildDirectory;
use super::guest_files::Extra;
use super::image::run as run_tool;
use super::machine::Machine;
use super::release::Release;
use super::{Options, boot, namespace, prepare, requirements};

const ROUNDS: usize = 5;

/// How long one round of one runner may take; on a quiet machine it takes about four seconds.
const ROUND_TIMEOUT: Duration = Duration::from_secs(180);

/// How long the whole run may take, including the build of a kernel.
const RUN_TIMEOUT: Duration = Duration::from_secs(60 * 60);

const ADDRESS: &str = "10.213.0.1";
const LIBRARIES: [&str; 2] = [
    "usr/lib/rocinante/libibverbs.so.1",
    "usr/lib/rocinante/librdmacm.so.1",
];

/// The transports, in the order of the columns.
const RUNNERS: [&str; 3] = ["rdma_rxe", "Rocinante", "TCP"];

/// The measurements: the name in the table, and the names that the program prints for RDMA and for TCP.
const MEASUREMENTS: [(&str, &str, &str); 8] = [
    ("WRITE 64 KiB, MB/s", "write 65536", "stream 65536"),
    ("READ 64 KiB, MB/s", "read 65536", "stream 65536"),
    ("SEND 64 KiB, MB/s", "send 65536", "stream 65536"),
    ("WRITE 1 MiB, MB/s", "write 1048576", "stream 1048576"),
    ("READ 1 MiB, MB/s", "read 1048576", "stream 1048576"),
    ("SEND 1 MiB, MB/s", "send 1048576", "stream 1048576"),
    ("8 bytes there, µs", "latency 8", "latency 8"),
    ("connections a second", "connections 0", "connections 0"),
];

/// Compares the kernel, our libraries and TCP, and prints the table.
pub(crate) fn compare(root: &Path, backend: Backend) -> Result<(), String> {
    if let Some(missing) = requirements::missing(backend) {
        return Err(missing);
    }
    let build = CommandLine::cargo("build --release -p capi");
    if !build.run(root).is_ok_and(|built| built) {
        return Err(format!("`{build}` failed"));
    }
    requirements::install(backend)?;
    let build_directory = BuildDirectory::find(Release::default())?;
    prepare(
        root,
        &build_directory,
        backend,
        &libraries(&build_directory)?,
    )?;
    let options = Options {
        backend,
        compare: true,
        ..Options::default()
    };
    namespace::run_inside(&options.words(), Instant::now() + RUN_TIMEOUT)
}

/// Our library under both of its names, without debug information.
fn libraries(build_directory: &BuildDirectory) -> Result<Vec<Extra>, String> {
    let stripped = build_directory.file("librocinante_c.so");
    let built = build_directory.release().join("librocinante_c.so");
    run_tool(Command::new("strip").arg("-o").arg(&stripped).arg(&built))?;
    let extras = LIBRARIES.map(|path| Extra {
        file: stripped.clone(),
        path,
    });
    Ok(extras.into())
}

/// Inside the namespace: boots, measures, prints.
pub(super) fn compare_inside(backend: Backend) -> Result<(), String> {
    let build_directory = BuildDirectory::find(Release::default())?;
    let (mut machine, _) = boot(&build_directory, backend)?;
    create_interfaces(&mut machine)?;
    let mut results = Results::default();
    for round in 1..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        for (runner, name) in RUNNERS.iter().enumerate() {
            let text = run_one(&mut machine, runner)?;
            results
                .add(runner, &text)
                .map_err(|what| format!("{name}: {what}"))?;
        }
    }
    print!("{}", results.table());
    Ok(())
}

fn create_interfaces(machine: &mut Machine) -> Result<(), String> {
    let link = format!(
        "ip link add bench0 type dummy && ip link set bench0 mtu 9000 up && ip addr add {ADDRESS}/24 dev bench0"
    );
    machine.must(&format!(
        "{link} && rdma link add rxe1 type rxe netdev bench0"
    ))?;
    machine.must("ip netns add other && ip netns exec other ip link set lo up")?;
    machine.must(&format!("ip netns exec other dash -c '{link}'"))?;
    Ok(())
}

fn run_one(machine: &mut Machine, runner: usize) -> Result<String, String> {
    let command = match runner {
        0 => format!("loopback-bench rdma {ADDRESS}"),
        1 => format!(
            "ip netns exec other env LD_LIBRARY_PATH=/usr/lib/rocinante \
             ROCI_DEVICES=bench0={ADDRESS} loopback-bench rdma {ADDRESS}"
        ),
        _ => format!("ip netns exec other loopback-bench tcp {ADDRESS}"),
    };
    machine.begin(0, &command)?;
    let outcome = machine.finish(0, ROUND_TIMEOUT)?;
    if outcome.succeeded() {
        Ok(outcome.text)
    } else {
        Err(format!("{}: {}", RUNNERS[runner], outcome.text.trim()))
    }
}

/// Every number, by runner and measurement.
#[derive(Default)]
struct Results(BTreeMap<(usize, String), Vec<f64>>);

impl Results {
    /// Takes lines such as `write 65536 1234.5`.
    fn add(&mut self, runner: usize, text: &str) -> Result<(), String> {
        for line in text.lines() {
            let parts = line.rsplit_once(' ');
            let number = parts.and_then(|(name, number)| Some((name, number.parse().ok()?)));
            let (name, number): (_, f64) = number.ok_or_else(|| format!("said `{line}`"))?;
            self.0
                .entry((runner, name.into()))
                .or_default()
                .push(number);
        }
        Ok(())
    }

    fn table(&self) -> String {
        let [rxe, ours, tcp] = RUNNERS;
        let mut text = format!(
            "\n{:<22}{rxe:>24}{ours:>24}{tcp:>24}{:>12}{:>12}\n",
            "median (least – most)", "ours / rxe", "ours / TCP"
        );
        for (title, word, for_tcp) in MEASUREMENTS {
            let cells = [(0, word), (1, word), (2, for_tcp)];
            let spreads = cells.map(|(runner, word)| self.spread(runner, word));
            let [rxe, ours, tcp] = spreads.map(|spread| spread.median);
            let shown = spreads.map(|spread| spread.to_string());
            text.push_str(&format!(
                "{title:<22}{:>24}{:>24}{:>24}{:>12.2}{:>12.2}\n",
                shown[0],
                shown[1],
                shown[2],
                ours / rxe,
                ours / tcp
            ));
        }
        text
    }

    fn spread(&self, runner: usize, word: &str) -> Spread {
        let none = Vec::new();
        let numbers = self.0.get(&(runner, word.to_owned())).unwrap_or(&none);
        Spread::of(numbers)
    }
}

#[derive(Clone, Copy)]
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(numbers: &[f64]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Self {
            least: at(0),
            median: at(sorted.len() / 2),
            most: at(sorted.len().saturating_sub(1)),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.median < 100.0 { 1 } else { 0 };
        let (least, median, most) = (self.least, self.median, self.most);
        write!(f, "{median:.digits$} ({least:.digits$} – {most:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_median_and_ratios() {
        let mut results = Results::default();
        for (runner, numbers) in [[1.0, 3.0, 2.0], [8.0, 4.0, 4.0], [1.0, 1.0, 1.0]]
            .iter()
            .enumerate()
        {
            for number in numbers {
                let text = format!("latency 8 {number}\n");
                results.add(runner, &text).expect("a measurement");
            }
        }
        let table = results.table();
        let line = table.lines().find(|line| line.starts_with("8 bytes"));
        let line = line.expect("a row of its own");
        assert!(line.contains("2.0 (1.0 – 3.0)"), "{line}");
        assert!(line.ends_with("2.00        4.00"), "{line}");
    }

    #[test]
    fn a_line_without_a_measurement_is_an_error() {
        let complaint = Results::default().add(0, "rdma_connect failed\n");
        assert_eq!(complaint, Err("said `rdma_connect failed`".into()));
    }
}

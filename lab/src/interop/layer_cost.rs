//! `cargo xtask bench --layer`: what the Rust API costs at a device of the system.
//!
//! `roci perf` and perftest take turns on the kernel's device. Both of their ends are in the kernel's machine, and both use its libibverbs, so the
//! difference is our layer and the program.
//!
//! User Mode Linux has one processor. Two programs that poll would take turns there, so only tests in which the server sleeps are run.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use xtask::command::CommandLine;

use super::backend::Backend;
use super::build_directory::BuildDirectory;
use super::guest_files::Extra;
use super::image::run as run_tool;
use super::pair_runner::PairRunner;
use super::program::Programs;
use super::release::Release;
use super::rows::{Row, Way};
use super::{Options, boot, namespace, prepare, requirements};
use crate::library_overhead::{column_of, field_of, median};

const ROUNDS: usize = 9;

/// How often perftest runs until it prints a result.
const MAX_PERFTEST_RUNS: usize = 5;

/// How long the whole run may take.
const RUN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The description of the processor, from which perftest learns its frequency. User Mode Linux has none, so it gets that of its host, whose
/// counter of cycles its programs read.
const PROCESSOR: &str = "/proc/cpuinfo";
const HOST_PROCESSOR: &str = "usr/share/host-cpuinfo";

/// What is measured.
struct Measurement {
    /// Its names in perftest and in `roci perf`.
    program: &'static str,
    test: &'static str,
    size: &'static str,
    /// How many are sent in an emulated machine.
    messages: usize,
    /// Where the result is: the column of perftest, and the field of `roci perf`.
    column: usize,
    field: &'static str,
}

const MEASUREMENTS: [Measurement; 9] = [
    bandwidth("ib_write_bw", "write-bw", "65536", 1000),
    bandwidth("ib_write_bw", "write-bw", "4096", 5000),
    bandwidth("ib_write_bw", "write-bw", "64", 10000),
    bandwidth("ib_read_bw", "read-bw", "65536", 1000),
    bandwidth("ib_read_bw", "read-bw", "4096", 5000),
    bandwidth("ib_send_bw", "send-bw", "65536", 1000),
    latency("ib_send_lat", "send-lat"),
    latency("ib_write_lat", "write-lat"),
    latency("ib_read_lat", "read-lat"),
];

const fn bandwidth(
    program: &'static str,
    test: &'static str,
    size: &'static str,
    messages: usize,
) -> Measurement {
    Measurement {
        program,
        test,
        size,
        messages,
        column: 3,
        field: "average_mib_per_second",
    }
}

const fn latency(program: &'static str, test: &'static str) -> Measurement {
    Measurement {
        program,
        test,
        size: "64",
        messages: 2000,
        column: 4,
        field: "typical_us",
    }
}

/// Measures, and prints the table.
pub(crate) fn measure(root: &Path, backend: Backend) -> Result<(), String> {
    if let Some(missing) = requirements::missing(backend) {
        return Err(missing);
    }
    let build = CommandLine::cargo("build --release -p roci");
    if !build.run(root).is_ok_and(|built| built) {
        return Err(format!("`{build}` failed"));
    }
    requirements::install(backend)?;
    let build_directory = BuildDirectory::find(Release::default())?;
    let roci = build_directory.file("roci-release");
    let built = build_directory.release().join("roci");
    run_tool(Command::new("strip").arg("-o").arg(&roci).arg(&built))?;
    let program = Extra {
        file: roci,
        path: "usr/bin/roci",
    };
    let processor = Extra {
        file: PROCESSOR.into(),
        path: HOST_PROCESSOR,
    };
    prepare(root, &build_directory, backend, &[program, processor])?;
    let options = Options {
        backend,
        layer: true,
        ..Options::default()
    };
    namespace::run_inside(&options.words(), Instant::now() + RUN_TIMEOUT)
}

/// Inside the namespace: boots, measures, prints.
pub(super) fn measure_inside(backend: Backend) -> Result<(), String> {
    let build_directory = BuildDirectory::find(Release::default())?;
    let (mut machine, image) = boot(&build_directory, backend)?;
    if backend == Backend::Uml {
        machine.must(&format!("mount --bind /{HOST_PROCESSOR} {PROCESSOR}"))?;
    }
    let mut runner = PairRunner::new(machine, Programs::new(&build_directory)?)?;
    println!("rdma_rxe of Linux {}, {ROUNDS} rounds", image.release);
    println!(
        "{:<10} {:>6}  {:>26} {:>26}  roci perf / perftest",
        "median", "bytes", "perftest (least – most)", "roci perf (least – most)"
    );
    let runs_here = |it: &Measurement| backend == Backend::Qemu || it.server_sleeps();
    for measurement in MEASUREMENTS.into_iter().filter(runs_here) {
        println!("{}", measurement.run(&mut runner)?);
    }
    Ok(())
}

impl Measurement {
    /// The result of perftest. It prints 0 if it could not determine the frequency of the processor, which a machine that is busy disturbs; then
    /// it runs again.
    fn run_perftest(&self, runner: &mut PairRunner, row: &Row) -> Result<f64, String> {
        let mut text = String::new();
        for _ in 0..MAX_PERFTEST_RUNS {
            text = printed(runner, row)?;
            let found = column_of(&text, self.size, self.column);
            if let Some(found) = found.filter(|it| *it > 0.0) {
                return Ok(found);
            }
        }
        Err(format!("{} said: {text}", row.name))
    }

    /// Whether the server has nothing to do but to wait for the end.
    fn server_sleeps(&self) -> bool {
        ["write-bw", "read-bw", "read-lat"].contains(&self.test)
    }

    fn run(&self, runner: &mut PairRunner) -> Result<String, String> {
        let Self {
            program,
            test,
            size,
            messages,
            ..
        } = self;
        let messages = messages * repetitions(runner.machine.backend);
        let perftest = format!("{program} -d {{device}} -x {{gid}} -F -s {size} -n {messages}");
        let perftest = Row::new(*program, &perftest, format!("{perftest} {{server}}"));
        let ours = format!("roci perf {test} -d {{device}} --json -s {size} -n {messages}");
        let ours = Row::new(*test, &ours, format!("{ours} {{server}}")).way(Way::Roci);
        let (mut theirs_found, mut ours_found) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            theirs_found.push(self.run_perftest(runner, &perftest)?);
            let text = printed(runner, &ours)?;
            let found = field_of(&text, self.field);
            ours_found.push(found.ok_or_else(|| format!("roci perf {test} said: {text}"))?);
        }
        let (theirs, their_spread) = spread(&mut theirs_found);
        let (ours, our_spread) = spread(&mut ours_found);
        let ratio = ours / theirs;
        Ok(format!(
            "{test:<10} {size:>6}  {their_spread:>26} {our_spread:>26}  {ratio:.3}"
        ))
    }
}

/// How many times as many messages are sent as in an emulated machine. The first ones take longer, because memory is touched for
/// the first time.
fn repetitions(backend: Backend) -> usize {
    match backend {
        Backend::Qemu => 1,
        Backend::Uml => 5,
    }
}

/// What the client prints, with both ends in the machine.
fn printed(runner: &mut PairRunner, row: &Row) -> Result<String, String> {
    let client = runner.run(row, None)?.client;
    if client.succeeded() {
        Ok(client.text.replace("\r\n", "\n"))
    } else {
        Err(format!("{} failed: {}", row.name, client.text.trim()))
    }
}

/// The median, and a text with the least and the most.
fn spread(numbers: &mut [f64]) -> (f64, String) {
    let median = median(numbers);
    let (least, most) = (numbers[0], numbers[numbers.len() - 1]);
    (median, format!("{median:.2} ({least:.2} – {most:.2})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_and_both_ends() {
        let (median, text) = spread(&mut [3.0, 1.0, 2.5]);
        assert_eq!((median, text.as_str()), (2.5, "2.50 (1.00 – 3.00)"));
    }
}

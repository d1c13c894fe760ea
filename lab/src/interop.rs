//! `cargo xtask interop`: Rocinante and the Linux kernel's Soft-RoCE, in both directions.
//!
//! Debian's kernel with `rdma_rxe` boots in an emulated machine that has the distribution's own RDMA programs. A tap
//! connects it with a network namespace in which our programs run. Each row of the matrix runs with us as the client
//! and as the server.

mod apt;
mod architecture;
mod backend;
mod bench;
pub(crate) mod build_directory;
mod cell;
mod checks;
mod command_channel;
mod device_files;
pub(crate) mod guest_files;
mod icrc_check;
pub(crate) mod image;
mod layer_cost;
mod library_tests;
mod machine;
pub(crate) mod namespace;
mod network;
pub(crate) mod packages;
mod pair_runner;
mod program;
mod qemu;
mod release;
mod requirements;
mod rows;
mod rust_api;
mod system_programs;
mod table;
mod tutorial_programs;
mod uml;

use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use crate::programs;
use build_directory::BuildDirectory;
use cell::Cell;
use guest_files::Extra;
use icrc_check::{Tally, Traffic};
use image::Image;
use machine::Machine;
use packages::Packages;
use pair_runner::PairRunner;
use program::Programs;
use release::Release;
use rows::{Judge, Role, Row};
use table::Line;

/// After this time a run without `--full` starts no further row, so that a slow machine checks fewer rows
/// instead of none.
const LAST_ROW_START: Duration = Duration::from_secs(6 * 60);

/// A run that takes longer than this hangs. One without `--full` takes less than ten minutes, downloads included.
const QUICK_RUN_TIMEOUT: Duration = Duration::from_secs(9 * 60 + 30);
const FULL_RUN_TIMEOUT: Duration = Duration::from_secs(60 * 60);

pub(crate) use apt::Apt;
pub(crate) use backend::Backend;
pub(crate) use bench::compare;
pub(crate) use layer_cost::measure as measure_layer;

/// What to run.
#[derive(Args, Clone, Default)]
pub(crate) struct Options {
    /// Also run the slow rows: lost packets, every path MTU
    #[arg(long)]
    full: bool,
    /// Run only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run each row this many times, to find failures that are rare
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "record")]
    times: usize,
    /// The kernel; without it, a full run uses both and any other run the first
    #[arg(long, value_enum)]
    kernel: Option<Release>,
    /// How to run the kernel
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// Write the table into docs/interop.md
    #[arg(long, conflicts_with = "only")]
    record: bool,
    /// This process is already in the namespace
    #[arg(long, hide = true)]
    inside: bool,
    /// Run the benchmark instead of the rows
    #[arg(long, hide = true)]
    compare: bool,
    /// Measure the cost of the Rust API instead
    #[arg(long, hide = true)]
    layer: bool,
}

/// The name of the tests of our C libraries for `--only`.
const LIBRARY_TESTS: &str = "C libraries";

/// Runs the matrix and prints it; the error lists what failed.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    if options.inside {
        return run_inside(root, options);
    }
    if let Some(missing) = requirements::missing(options.backend) {
        return Err(missing);
    }
    if options.backend == Backend::Uml && !options.is_first_kernel() {
        return Err("User Mode Linux is built from the source of Linux 6.1 only".into());
    }
    programs::build(root)?;
    let tests = rust_api::build(root)?;
    requirements::install(options.backend)?;
    for kernel in options.kernels() {
        let options = Options {
            kernel: Some(kernel),
            ..options.clone()
        };
        run_with(root, kernel, &options, &tests)?;
    }
    Ok(())
}

/// Runs the matrix with one kernel.
fn run_with(root: &Path, kernel: Release, options: &Options, tests: &Path) -> Result<(), String> {
    let end = Instant::now()
        + if options.full {
            FULL_RUN_TIMEOUT
        } else {
            QUICK_RUN_TIMEOUT
        };
    let build_directory = BuildDirectory::find(kernel)?;
    let programs = rust_api::programs(&build_directory, tests)?;
    prepare(root, &build_directory, options.backend, &programs)?;
    namespace::run_inside(&options.words(), end)
}

/// The usual run, as a step of the tests.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, &Options::default())
}

/// Why that step can't run here; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    requirements::missing(Backend::Qemu)
}

impl Options {
    /// The kernels to run with. Only the first can be built as User Mode Linux.
    fn kernels(&self) -> Vec<Release> {
        match (self.kernel, self.backend) {
            (Some(kernel), _) => vec![kernel],
            (None, Backend::Qemu) if self.full => vec![Release::Bookworm, Release::Trixie],
            (None, _) => vec![Release::default()],
        }
    }

    /// The kernel of a run with one of them.
    fn kernel(&self) -> Release {
        self.kernel.unwrap_or_default()
    }

    /// The arguments of the process inside.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["interop".to_owned(), "--inside".to_owned()];
        words.extend(["--backend".to_owned(), self.backend.word().to_owned()]);
        if self.times > 1 {
            words.extend(["--times".to_owned(), self.times.to_string()]);
        }
        if let Some(kernel) = self.kernel {
            words.extend(["--kernel".to_owned(), kernel.kernel().to_owned()]);
        }
        let flags = [
            (self.full, "--full"),
            (self.record, "--record"),
            (self.compare, "--compare"),
            (self.layer, "--layer"),
        ];
        words.extend(flags.iter().filter(|it| it.0).map(|it| it.1.to_owned()));
        if let Some(only) = &self.only {
            words.extend(["--only".to_owned(), only.clone()]);
        }
        words
    }

    fn wants_library_tests(&self) -> bool {
        let only = self.only.as_deref();
        self.is_first_kernel() && only.is_none_or(|text| LIBRARY_TESTS.contains(text))
    }

    fn wants_device_files(&self) -> bool {
        let only = self.only.as_deref();
        self.is_first_kernel() && only.is_none_or(|text| device_files::NAME.contains(text))
    }

    fn wants_rust_api(&self) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|text| rust_api::NAME.contains(text))
    }

    /// Whether this is the kernel whose device files and libraries are compared with ours.
    fn is_first_kernel(&self) -> bool {
        self.kernel() == Release::default()
    }

    fn wants(&self, row: &Row) -> bool {
        let has_it = row.since <= self.kernel();
        match &self.only {
            Some(text) => has_it && row.name.contains(text),
            None => has_it && (self.full || !row.long),
        }
    }
}

/// Everything that needs the network of this machine.
fn prepare(
    root: &Path,
    build_directory: &BuildDirectory,
    backend: Backend,
    extras: &[Extra],
) -> Result<(), String> {
    if build_directory.debian != Release::OURS {
        // The programs of our side.
        unpack(&BuildDirectory::find(Release::OURS)?, backend)?;
    }
    let (packages, image) = unpack(build_directory, backend)?;
    let overlay = guest_files::lay_out(root, build_directory, &image, extras)?;
    image.add(build_directory, &overlay)?;
    match backend {
        Backend::Qemu => Ok(()),
        Backend::Uml => uml::build(build_directory, &image, &packages),
    }
}

fn unpack(build_directory: &BuildDirectory, backend: Backend) -> Result<(Packages, Image), String> {
    let packages = Packages::fetch(build_directory)?;
    let image = Image::new(build_directory, &packages, backend);
    image.build(build_directory, &packages)?;
    Ok((packages, image))
}

fn run_inside(root: &Path, options: &Options) -> Result<(), String> {
    namespace::end_with_the_outside();
    if options.compare {
        return bench::compare_inside(options.backend);
    }
    if options.layer {
        return layer_cost::measure_inside(options.backend);
    }
    let start = Instant::now();
    let build_directory = BuildDirectory::find(options.kernel())?;
    let (mut machine, image) = boot(&build_directory, options.backend)?;
    println!(
        "Linux {} is up after {:.0?}",
        image.release,
        start.elapsed()
    );
    if options.wants_device_files() {
        device_files::check(root, &mut machine)?;
    }
    let mut remarks = Vec::new();
    if options.wants_rust_api() {
        remarks.push(rust_api::check(&mut machine)?);
    }
    let programs = Programs::new(&build_directory)?;
    let mut matrix = Matrix::new(PairRunner::new(machine, programs)?, start, options.clone());
    matrix.run()?;
    remarks.extend(matrix.check_icrcs(&image.release)?);
    for remark in &remarks {
        println!("{remark}");
    }
    if options.record {
        table::record(&root.join("docs/interop.md"), &matrix, &remarks)?;
    }
    matrix.complaints()
}

/// Creates the links and starts the machine.
fn boot(build_directory: &BuildDirectory, backend: Backend) -> Result<(Machine, Image), String> {
    own_run_directory()?;
    network::create_link()?;
    if backend == Backend::Uml {
        network::create_control_link()?;
    }
    let packages = Packages::fetch(build_directory)?;
    let image = Image::new(build_directory, &packages, backend);
    let machine = Machine::boot(build_directory, &image)?;
    Ok((machine, image))
}

/// Mounts a `/run` that exists only in the namespace.
fn own_run_directory() -> Result<(), String> {
    let mount = ["-t", "tmpfs", "-o", "mode=0700", "tmpfs", "/run"];
    let status = Command::new("mount").args(mount).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err("a directory in memory can't be mounted".into()),
    }
}

/// The rows as they are run.
struct Matrix {
    runner: PairRunner,
    options: Options,
    start: Instant,
    lines: Vec<Line>,
    tests: Vec<library_tests::Line>,
    /// The kernel's ICRC counts for packets between two kernels, which are not on the link.
    among_kernels: Tally,
    faults: Vec<String>,
}

impl Matrix {
    fn new(runner: PairRunner, start: Instant, options: Options) -> Self {
        Self {
            runner,
            options,
            start,
            lines: Vec::new(),
            tests: Vec::new(),
            among_kernels: Tally::default(),
            faults: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        println!("{}", table::head());
        let mut rows = rows::all();
        rows.retain(|row| self.options.wants(row));
        let times = self.options.times.max(1);
        for row in rows.iter().flat_map(|row| iter::repeat_n(row, times)) {
            let line = self.try_row(row)?;
            println!("{}", table::line(&line));
            for complaint in line.complaints() {
                println!("    {complaint}");
            }
            self.lines.push(line);
        }
        if self.options.wants_library_tests() {
            self.run_library_tests()
        } else {
            Ok(())
        }
    }

    fn run_library_tests(&mut self) -> Result<(), String> {
        if self.is_late() {
            println!("\nthe tests of the C libraries are left out for lack of time");
            return Ok(());
        }
        let runner = &mut self.runner;
        self.tests = library_tests::run(&mut runner.machine, &runner.programs)?;
        println!("\n{}", table::tests(&self.tests));
        Ok(())
    }

    /// Whether a run without `--full` starts no further row.
    fn is_late(&self) -> bool {
        !self.options.full && self.start.elapsed() > LAST_ROW_START
    }

    fn try_row(&mut self, row: &Row) -> Result<Line, String> {
        if self.is_late() {
            return Ok(Line {
                name: row.name.clone(),
                as_client: Cell::LeftOut,
                as_server: Cell::LeftOut,
            });
        }
        let kernels = match row.judge {
            Judge::LikeKernels(_) => Some(self.run_between_kernels(row)?),
            _ => None,
        };
        let mut cell = |ours| {
            let said = match self.runner.run(row, Some(ours)) {
                Ok(said) => said,
                Err(reason) => return Cell::Bad(reason),
            };
            match checks::judge(&row.judge, ours, &said, kernels.as_ref()) {
                Ok(()) => Cell::Good(said.took),
                Err(reason) => Cell::Bad(reason),
            }
        };
        Ok(Line {
            name: row.name.clone(),
            as_client: cell(Role::Client),
            as_server: cell(Role::Server),
        })
    }

    fn run_between_kernels(&mut self, row: &Row) -> Result<pair_runner::Conversation, String> {
        let before = icrc_check::kernel_icrc_counts(&mut self.runner.machine)?;
        let said = self.runner.run(row, None)?;
        let after = icrc_check::kernel_icrc_counts(&mut self.runner.machine)?;
        self.among_kernels.packets += after.packets - before.packets;
        self.among_kernels.wrong += after.wrong - before.wrong;
        Ok(said)
    }

    /// Checks the ICRCs of the run. Returns remarks for the report.
    fn check_icrcs(&mut self, release: &str) -> Result<Vec<String>, String> {
        let traffic = Traffic::read(&self.runner.machine.capture)?;
        let counts = icrc_check::kernel_icrc_counts(&mut self.runner.machine)?;
        let checked = counts.packets - self.among_kernels.packets;
        let flushes = traffic.flushes_from_us;
        // The kernel rejects every FLUSH of ours. It must reject nothing else.
        let rejected = (counts.wrong - self.among_kernels.wrong).saturating_sub(flushes.packets);
        let (ours, theirs) = (traffic.from_us, traffic.from_kernel);
        self.demand(
            ours.wrong == 0 && theirs.wrong == 0 && flushes.wrong == 0,
            "an ICRC on the link is wrong",
        );
        self.demand(rejected == 0, "the kernel has rejected an ICRC of ours");
        self.demand(
            self.lines.is_empty() || (ours.packets > 0 && theirs.packets > 0),
            "nothing was captured",
        );
        let noticed = icrc_check::notices_damage(&mut self.runner.machine)?;
        self.demand(
            noticed,
            "the kernel's counters do not show that it rejected a damaged packet",
        );
        let mut remarks = vec![
            format!(
                "The kernel's machine was {}: Linux {release}.",
                self.runner.machine.backend.name()
            ),
            format!(
                "Packets that we sent: {} on the link, {} with a wrong ICRC; the kernel checked \
                 {checked} and rejected {rejected}.",
                ours.packets, ours.wrong
            ),
            format!(
                "Packets that the kernel sent: {} on the link, {} with an ICRC that is wrong for us.",
                theirs.packets, theirs.wrong
            ),
            "A packet that we damaged on purpose was rejected.".to_owned(),
        ];
        if flushes.packets > 0 {
            remarks.push(flush_remark(flushes, traffic.flushes_from_kernel));
        }
        Ok(remarks)
    }

    fn demand(&mut self, holds: bool, otherwise: &str) {
        if !holds {
            self.faults.push(otherwise.to_owned());
        }
    }

    fn complaints(&self) -> Result<(), String> {
        let bad = self.lines.iter().filter(|line| !line.is_good()).count();
        let late = self.lines.iter().filter(|line| line.is_left_out()).count();
        if late > 0 {
            println!(
                "{late} of {} rows were left out for lack of time",
                self.lines.len()
            );
        }
        let mut complaints = self.faults.clone();
        complaints.extend(self.tests.iter().flat_map(table::complaints_of_test));
        if bad > 0 {
            complaints.push(format!("{bad} of {} rows failed", self.lines.len()));
        }
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(complaints.join("\n"))
        }
    }
}

fn flush_remark(ours: Tally, theirs: Tally) -> String {
    format!(
        "FLUSH, whose ICRC the kernel computes in another way: we sent {}, which it rejects; {} of its {} are wrong for us.",
        ours.packets, theirs.wrong, theirs.packets
    )
}

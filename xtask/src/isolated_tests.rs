//! Runs the tests so that none disturbs another.
//!
//! A test that opens a device binds port 4791 of an address, writes into the runtime directory, and notices captures
//! and interfaces of its network. So each such test is a process in a network namespace of its own, with a runtime
//! directory of its own. A test that fails runs a second time, alone: if it passes then, it depends on something that it
//! should not depend on, and the run says so.

mod isolation;
mod job;
mod summary;
mod test_programs;

use std::path::Path;
use std::thread;

use xtask::command::CommandLine;
use xtask::debian::{self, Package};

use crate::pool;
use isolation::Isolation;
use summary::Summary;

/// Every test of the workspace.
const ALL: &str = "--workspace --all-features";

/// The same without the laboratory, which a quick run does not use.
const QUICK: &str = "--workspace --exclude lab --all-features";

/// The tests of the C libraries. With the features of [`ALL`], nothing is built again.
const C_LIBRARIES: &str = "--workspace --all-features --test capi";

/// A variable of the tests' environment.
pub(crate) type Variable<'a> = (&'static str, &'a str);

/// What tests leave out if it is missing: headers, programs and `ip`.
const PACKAGES: [Package; 5] = [
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("ibverbs-utils", "/usr/bin/ibv_rc_pingpong"),
    ("iproute2", "/usr/bin/ip"),
    ("tmux", "/usr/bin/tmux"),
];

/// Every test, and every example in the docs.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    match debian::missing(&PACKAGES) {
        None => debian::install(&PACKAGES)?,
        Some(missing) => println!("some tests leave something out: {missing}"),
    }
    check_all(root, ALL, &[])
}

/// The same with fewer random cases, and without the laboratory.
pub(crate) fn check_quickly(root: &Path) -> Result<(), String> {
    check_all(root, QUICK, &[("PROPTEST_CASES", "32")])
}

/// The tests of the C libraries.
pub(crate) fn check_c_libraries(root: &Path, environment: &[Variable<'_>]) -> Result<(), String> {
    run(root, C_LIBRARIES, environment)
}

fn check_all(root: &Path, selection: &str, environment: &[Variable<'_>]) -> Result<(), String> {
    run(root, selection, environment)?;
    run_examples_in_docs(root, selection)
}

fn run(root: &Path, selection: &str, environment: &[Variable<'_>]) -> Result<(), String> {
    let isolation = Isolation::available();
    println!("{isolation}");
    let programs = test_programs::build(root, selection)?;
    let jobs = job::all(&programs)?;
    let threads = match isolation {
        // Tests that share the network would take each other's addresses.
        Isolation::None(_) => 1,
        Isolation::Root | Isolation::User => thread::available_parallelism().map_or(1, Into::into),
    };
    let reports = pool::run(&jobs, threads, |job| job.run(&isolation, environment));
    let mut summary = Summary::default();
    for (job, report) in jobs.iter().zip(reports) {
        // Alone, and whatever it printed the first time is kept.
        let again = (!report.passed).then(|| job.run(&isolation, environment));
        summary.add(job, report, again);
    }
    println!("{summary}");
    summary.verdict()
}

/// One process runs the examples of a crate. They share a namespace, which no test is in.
fn run_examples_in_docs(root: &Path, selection: &str) -> Result<(), String> {
    let command = CommandLine::cargo("test --doc").arguments_of(selection);
    println!("$ {command}");
    let directory = isolation::RuntimeDirectory::new()?;
    let status = Isolation::available()
        .command("cargo", &directory)
        .args(command.words())
        .current_dir(root)
        .status()
        .map_err(|error| format!("`{command}` can't be started: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{command}` failed"))
}

//! The project's own commands, the same for a person and for a machine that checks every change.
//! `cargo xtask --help` lists them.

#![forbid(unsafe_code)]

mod bans;
mod book;
mod browser;
mod command;
mod conformance;
mod debian;
mod ecosystem;
mod fuzz;
mod install;
mod instructions;
mod interop;
mod isolated_tests;
mod library_overhead;
mod linkers;
mod oldest_compiler;
mod package;
mod programs;
mod recipes;
mod reference;
mod registry;
mod spec_rules;
mod steps;
mod storm;
mod style;
mod targets;
mod test_steps;
mod tutorial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use command::CommandLine;
use steps::{Step, Work};
use test_steps::Pace;

/// Commands for developers. Run `cargo xtask test` before you send a change.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all checks that a change must pass
    #[command(
        after_help = "The steps run in the order of the list at --only, until one fails.\n\
                      The output of each step is in target/test-logs."
    )]
    Test {
        /// Skip slow steps and run fewer random cases and seeds: less than three minutes
        #[arg(long)]
        quick: bool,
        /// Run only this step, and print its whole output
        #[arg(long, value_name = "STEP", value_parser = test_steps::STEP_NAMES)]
        only: Option<String>,
    },
    /// Run the benchmarks in a release build, with copy, CRC, TCP and UDP for comparison
    Bench {
        /// Compare with the kernel's Soft-RoCE and TCP instead
        #[arg(long, group = "in_a_kernel", conflicts_with = "arguments")]
        kernel: bool,
        /// Compare `roci perf` with perftest, both on the kernel's Soft-RoCE, instead
        #[arg(long, group = "in_a_kernel", conflicts_with = "arguments")]
        layer: bool,
        /// Count the instructions of requests within a process instead, and compare them with the last count
        #[arg(long, conflicts_with_all = ["in_a_kernel", "arguments"])]
        instructions: bool,
        /// How to run that kernel
        #[arg(long, value_enum, requires = "in_a_kernel", default_value_t = interop::Backend::Uml)]
        backend: interop::Backend,
        /// Arguments of the engine's benchmark: `bulk` or `scaling` prints one of its tables
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzz one target, or every target in turn
    #[command(after_help = "Targets are the files in fuzz/fuzz_targets.")]
    Fuzz {
        /// The target; without it, all of them
        target: Option<String>,
        /// How long each target runs, in seconds
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u32,
    },
    /// Build the command and its libraries, and install them in a directory
    #[command(
        after_help = "The command goes to DIR/bin, the libraries to DIR/lib/rocinante, the rest to DIR/share."
    )]
    Install {
        /// The directory, such as ~/.local or /usr/local
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
    },
    /// Build a Debian package of the command, its libraries, completions and manual; or an archive
    #[command(after_help = "The package replaces no file of the distribution.")]
    Package(package::Options),
    /// Run programs against the Soft-RoCE of a Linux kernel, in both directions, and print a table
    #[command(
        after_help = "The kernel is Debian's, in QEMU or built as User Mode Linux, in a network namespace."
    )]
    Interop(interop::Options),
    /// Run rdma-core's own test suite on our device, and write docs/conformance.md
    #[command(
        after_help = "Needs root, for Debian's package python3-pyverbs and a network namespace."
    )]
    Conformance {
        /// Run only cases whose name contains this, and write nothing
        #[arg(default_value = "")]
        name: String,
        /// The suite of the newest rdma-core in Debian, with its libraries and Python, instead
        #[arg(long)]
        newest: bool,
    },
    /// Run UCX, libfabric, MPI, fio and other users of RDMA, unmodified, and write docs/ecosystem.md
    #[command(after_help = "Needs root, to install packages and to make network namespaces.")]
    Ecosystem(ecosystem::Options),
    /// Write docs/rules.md: each rule of the specification, with the code and the tests that cite it
    Rules,
    /// Run the recipes of docs/ci.md unchanged, each in a fresh file system
    #[command(after_help = "Needs root. Packages come from the distribution.")]
    Recipes(recipes::Options),
    /// Run other people's RDMA programs, unmodified, and write docs/programs.md
    #[command(
        after_help = "Needs root, to install packages and to make network namespaces; without root, rows that need them are skipped."
    )]
    Programs {
        /// Check the programs as `roci run --check` does, and write nothing
        #[arg(long)]
        check: bool,
        /// Run only programs whose name contains this, and write nothing
        #[arg(default_value = "")]
        name: String,
    },
    /// Compile for other architectures and for musl; with --full, also run on aarch64
    #[command(after_help = "Standard libraries come from rustup, the aarch64 machine from Debian.")]
    Targets(targets::Options),
    /// Kill, stop and disconnect real programs at random, and check that nothing hangs or is lost
    #[command(after_help = "Needs root, for network namespaces and a full disk.")]
    Storm(storm::Options),
}

fn main() -> ExitCode {
    let steps = match Arguments::parse().task {
        Task::Test { quick, only: None } => return test(quick),
        Task::Test {
            quick,
            only: Some(name),
        } => one_step(quick, &name),
        Task::Bench {
            kernel: true,
            backend,
            ..
        } => return done(interop::compare(workspace_root(), backend)),
        Task::Bench {
            layer: true,
            backend,
            ..
        } => return done(interop::measure_layer(workspace_root(), backend)),
        Task::Bench {
            instructions: true, ..
        } => return done(instructions::measure(workspace_root())),
        Task::Bench { arguments, .. } => Ok(vec![bench(&arguments), library_overhead()]),
        Task::Fuzz { target, seconds } => {
            test_steps::fuzzing(workspace_root(), target.as_deref(), seconds).map(|step| vec![step])
        }
        Task::Install { prefix } => return done(install::install(workspace_root(), &prefix)),
        Task::Package(options) => return done(package::package(workspace_root(), &options)),
        Task::Interop(options) => return done(interop::run(workspace_root(), &options)),
        Task::Conformance { name, newest } => {
            return done(conformance::write(workspace_root(), &name, newest));
        }
        Task::Ecosystem(options) => return done(ecosystem::write(workspace_root(), &options)),
        Task::Recipes(options) => return done(recipes::run(workspace_root(), &options)),
        Task::Rules => return done(spec_rules::write(workspace_root())),
        Task::Targets(options) => return done(targets::run(workspace_root(), &options)),
        Task::Storm(options) => return done(storm::run(workspace_root(), &options)),
        Task::Programs { check, name } => {
            return done(programs::write(workspace_root(), &name, check));
        }
    };
    match steps {
        Ok(steps) => steps::run(workspace_root(), &steps),
        Err(rejection) => done(Err(rejection)),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(rejection) => {
            eprintln!("{rejection}");
            ExitCode::FAILURE
        }
    }
}

fn test(quick: bool) -> ExitCode {
    match test_steps::steps(workspace_root(), pace(quick)) {
        Ok(steps) => steps::run_logged(workspace_root(), &steps, quick),
        Err(rejection) => done(Err(rejection)),
    }
}

fn one_step(quick: bool, name: &str) -> Result<Vec<Step>, String> {
    let mut steps = test_steps::steps(workspace_root(), pace(quick))?;
    steps.retain(|step| step.name == name);
    Ok(steps)
}

fn pace(quick: bool) -> Pace {
    if quick { Pace::Quick } else { Pace::Full }
}

fn bench(arguments: &[String]) -> Step {
    let engine =
        CommandLine::cargo("bench -p rocinante-engine --bench datapath --").arguments(arguments);
    let device = CommandLine::cargo("bench -p rocinante --bench loopback");
    let connections = CommandLine::cargo("bench -p rocinante --bench connections");
    let promise = "how fast the engine is alone, and the device over loopback";
    Step::new(
        "bench",
        promise,
        Work::Commands(vec![engine, device, connections]),
    )
}

fn library_overhead() -> Step {
    let work = match library_overhead::missing() {
        None => Work::Check(library_overhead::measure),
        Some(missing) => Work::LeftOut(missing),
    };
    Step::new(
        "library-overhead",
        "the overhead of the C libraries, with perftest",
        work,
    )
}

/// Commands run here whatever directory they were called from, and findings name paths from here.
fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory of the workspace")
}

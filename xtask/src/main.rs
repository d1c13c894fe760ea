//! The project's own commands, the same for a person and for a machine that checks every change.
//! `cargo xtask --help` lists them.

#![forbid(unsafe_code)]

mod bans;
mod browser;
mod command;
mod conformance;
mod debian;
mod ecosystem;
mod fuzz;
mod install;
mod interop;
mod library_overhead;
mod package;
mod plan;
mod programs;
mod recipes;
mod registry;
mod rules;
mod steps;
mod storm;
mod style;
mod targets;
mod tutorial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use command::CommandLine;
use plan::Pace;
use steps::{Step, Work};

/// The project's own commands. `cargo xtask test` is the one to run before a change goes in.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything that must hold before a change goes in
    #[command(
        after_help = "The steps run in the order of that list; the first one that fails ends the run.\n\
                      The output of each step is in target/test-logs."
    )]
    Test {
        /// Stay below three minutes: fewer random cases and seeds, no fuzzing, no Miri
        #[arg(long)]
        quick: bool,
        /// Run this step alone and print its whole output
        #[arg(long, value_name = "STEP", value_parser = plan::STEP_NAMES)]
        only: Option<String>,
    },
    /// Measure the engine and the device in a release build, beside copy and CRC, TCP and UDP
    Bench {
        /// Race the kernel's Soft-RoCE and TCP instead
        #[arg(long, conflicts_with = "arguments")]
        kernel: bool,
        /// Where that kernel runs: as a program of this machine, or in an emulated one
        #[arg(long, value_enum, requires = "kernel", default_value_t = interop::Backend::Uml)]
        backend: interop::Backend,
        /// Handed to the engine's benchmark: `bulk` or `scaling` for one of its tables
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzz one target, or every target in turn
    #[command(after_help = "Targets are the files in fuzz/fuzz_targets.")]
    Fuzz {
        /// The target to fuzz; all of them when left out
        target: Option<String>,
        /// How long each target runs
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u32,
    },
    /// Build the command and its libraries, and put them where you want them
    #[command(
        after_help = "The command goes to DIR/bin, the libraries to DIR/lib/rocinante, the rest to DIR/share."
    )]
    Install {
        /// The folder, such as ~/.local or /usr/local
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
    },
    /// Build a Debian package of the command, its libraries, completions and manual
    #[command(after_help = "It is built by dpkg-deb, and replaces nothing of the distribution.")]
    Package(package::Options),
    /// Talk to a real Linux kernel's Soft-RoCE, in both directions, and print the matrix
    #[command(
        after_help = "The kernel is Debian's, in QEMU, on a network of its own that ends with the run."
    )]
    Interop(interop::Options),
    /// Run rdma-core's own test-suite on a device of ours, and write docs/conformance.md
    #[command(
        after_help = "It takes root: the suite is Debian's python3-pyverbs, and its network is a namespace."
    )]
    Conformance {
        /// Only cases with this in their name; then nothing is written
        #[arg(default_value = "")]
        name: String,
        /// The suite of the newest rdma-core in Debian, with its libraries and Python, instead
        #[arg(long)]
        newest: bool,
    },
    /// Run UCX, libfabric, MPI, fio and other users of RDMA, unmodified, and write docs/ecosystem.md
    #[command(after_help = "Packages are installed and namespaces made as root.")]
    Ecosystem(ecosystem::Options),
    /// Write docs/rules.md: which rule of the specification is obeyed and tested where
    Rules,
    /// Run the recipes of docs/ci.md as they stand there, each in a fresh system
    #[command(after_help = "Only root can make one. Packages are fetched from the distribution.")]
    Recipes(recipes::Options),
    /// Run other people's RDMA programs, unmodified, and write docs/programs.md
    #[command(
        after_help = "Packages are installed as root; without root, namespaces are left out."
    )]
    Programs {
        /// Only programs with this in their name; then nothing is written
        #[arg(default_value = "")]
        name: String,
    },
    /// Kill, stop and cut off real programs at random, and see that nothing hangs or is lost
    #[command(after_help = "It takes root, for network namespaces and a full disk.")]
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
        } => return done(interop::race(workspace_root(), backend)),
        Task::Bench { arguments, .. } => Ok(vec![bench(&arguments), library_overhead()]),
        Task::Fuzz { target, seconds } => {
            plan::fuzzing(workspace_root(), target.as_deref(), seconds).map(|step| vec![step])
        }
        Task::Install { prefix } => return done(install::install(workspace_root(), &prefix)),
        Task::Package(options) => return done(package::package(workspace_root(), &options)),
        Task::Interop(options) => return done(interop::run(workspace_root(), &options)),
        Task::Conformance { name, newest } => {
            return done(conformance::write(workspace_root(), &name, newest));
        }
        Task::Ecosystem(options) => return done(ecosystem::write(workspace_root(), &options)),
        Task::Recipes(options) => return done(recipes::run(workspace_root(), &options)),
        Task::Rules => return done(rules::write(workspace_root())),
        Task::Storm(options) => return done(storm::run(workspace_root(), &options)),
        Task::Programs { name } => return done(programs::write(workspace_root(), &name)),
    };
    match steps {
        Ok(steps) => steps::run(workspace_root(), &steps),
        Err(refusal) => done(Err(refusal)),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("{refusal}");
            ExitCode::FAILURE
        }
    }
}

fn test(quick: bool) -> ExitCode {
    match plan::steps(workspace_root(), pace(quick)) {
        Ok(steps) => steps::run_logged(workspace_root(), &steps, quick),
        Err(refusal) => done(Err(refusal)),
    }
}

fn one_step(quick: bool, name: &str) -> Result<Vec<Step>, String> {
    let mut steps = plan::steps(workspace_root(), pace(quick))?;
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
        .expect("xtask is a folder of the workspace")
}

//! The laboratory: other people's programs, kernels, test suites and systems on our devices. `cargo xtask` runs it for the
//! commands and the steps of its test that need it.

#![forbid(unsafe_code)]

mod conformance;
mod ecosystem;
mod instructions;
mod interop;
mod library_overhead;
mod link_bench;
mod package;
mod programs;
mod recipes;
mod storm;
mod targets;
mod tutorial;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use xtask::command::CommandLine;
use xtask::steps::{self, Step, Work};
use xtask::{done, laboratory, workspace_root};

/// Commands for developers that run other people's software.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

/// What each does is in [`laboratory::COMMANDS`].
#[derive(Subcommand)]
enum Task {
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
        /// Compare with TCP over emulated links instead: slow, long, lossy and with short queues
        #[arg(long, conflicts_with_all = ["in_a_kernel", "instructions"])]
        network: bool,
        /// This process is already in the namespaces
        #[arg(long, hide = true, requires = "network")]
        inside: bool,
        /// How to run that kernel
        #[arg(long, value_enum, requires = "in_a_kernel", default_value_t = interop::Backend::Uml)]
        backend: interop::Backend,
        /// Arguments of the engine's benchmark: `bulk` or `scaling` prints one of its tables; with --network, a part of the
        /// names of the links
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    #[command(after_help = "The package replaces no file of the distribution.")]
    Package(package::Options),
    #[command(
        after_help = "The kernel is Debian's, in QEMU or built as User Mode Linux, in a network namespace."
    )]
    Interop(interop::Options),
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
    #[command(after_help = "Needs root, to install packages and to make network namespaces.")]
    Ecosystem(ecosystem::Options),
    #[command(after_help = "Needs root. Packages come from the distribution.")]
    Recipes(recipes::Options),
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
    #[command(after_help = "Standard libraries come from rustup, the aarch64 machine from Debian.")]
    Targets(targets::Options),
    #[command(after_help = "Needs root, for network namespaces and a full disk.")]
    Storm(storm::Options),
    /// Print why a step of the test can't run here; nothing if it can
    #[command(hide = true)]
    Missing {
        #[arg(value_parser = STEPS.map(|step| step.name))]
        step: String,
    },
    /// Run a step of the test
    #[command(hide = true)]
    Check {
        #[arg(value_parser = STEPS.map(|step| step.name))]
        step: String,
    },
}

/// A step of `cargo xtask test`.
struct Check {
    name: &'static str,
    /// Why it can't run here.
    missing: fn() -> Option<String>,
    check: fn(&Path) -> Result<(), String>,
}

macro_rules! steps {
    ($($name:ident)*) => {
        [$(Check { name: stringify!($name), missing: $name::missing, check: $name::check }),*]
    };
}

const STEPS: [Check; 8] =
    steps!(targets programs storm tutorial conformance ecosystem interop recipes);

fn main() -> ExitCode {
    let matches = arguments().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let root = workspace_root();
    done(match arguments.task {
        Task::Bench {
            kernel: true,
            backend,
            ..
        } => interop::compare(root, backend),
        Task::Bench {
            layer: true,
            backend,
            ..
        } => interop::measure_layer(root, backend),
        Task::Bench {
            instructions: true, ..
        } => instructions::measure(root),
        Task::Bench {
            network: true,
            inside: true,
            arguments,
            ..
        } => link_bench::run_inside(&arguments.join(" ")),
        Task::Bench {
            network: true,
            arguments,
            ..
        } => link_bench::run(root, &arguments.join(" ")),
        Task::Bench { arguments, .. } => {
            return steps::run(root, &[bench(&arguments), library_overhead()]);
        }
        Task::Package(options) => package::package(root, &options),
        Task::Interop(options) => interop::run(root, &options),
        Task::Conformance { name, newest } => conformance::write(root, &name, newest),
        Task::Ecosystem(options) => ecosystem::write(root, &options),
        Task::Recipes(options) => recipes::run(root, &options),
        Task::Targets(options) => targets::run(root, &options),
        Task::Storm(options) => storm::run(root, &options),
        Task::Programs { check, name } => programs::write(root, &name, check),
        Task::Missing { step } => {
            print!("{}", (step_of(&step).missing)().unwrap_or_default());
            Ok(())
        }
        Task::Check { step } => (step_of(&step).check)(root),
    })
}

fn arguments() -> clap::Command {
    let describe = |all: clap::Command, (name, about): (&str, &'static str)| {
        all.mut_subcommand(name, |one| one.about(about))
    };
    laboratory::COMMANDS
        .into_iter()
        .fold(Arguments::command(), describe)
}

fn step_of(name: &str) -> Check {
    let mut steps = STEPS.into_iter();
    steps
        .find(|step| step.name == name)
        .expect("the arguments allow only these")
}

fn bench(arguments: &[String]) -> Step {
    let engine =
        CommandLine::cargo("bench -p rocinante-engine --bench datapath --").arguments(arguments);
    let device = CommandLine::cargo("bench -p rocinante --bench loopback --features async");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_no_other_is_in_the_list_of_xtask() {
        let commands = arguments();
        let visible = commands.get_subcommands().filter(|one| !one.is_hide_set());
        let mut names: Vec<_> = visible.map(clap::Command::get_name).collect();
        let mut listed = laboratory::COMMANDS.map(|(name, _)| name);
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(names, listed);
    }
}

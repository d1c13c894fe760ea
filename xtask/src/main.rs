//! The project's own commands, the same for a person and for a machine that checks every change.
//! `cargo xtask --help` lists them.

#![forbid(unsafe_code)]

mod bans;
mod book;
mod browser;
mod fuzz;
mod gpu;
mod import_knots;
mod isolated_tests;
mod linkers;
mod oldest_compiler;
mod pool;
mod reference;
mod registry;
mod spec_rules;
mod style;
mod test_steps;
mod translations;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use xtask::steps::{self, Step};
use xtask::{done, install, laboratory, workspace_root};

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
        after_help = "The steps run in the order of the list at --only, some beside others, until one fails.\n\
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
    /// Fuzz one target, or every target in turn
    #[command(after_help = "Targets are the files in fuzz/fuzz_targets.")]
    Fuzz {
        /// The target; without it, all of them
        target: Option<String>,
        /// How long each target runs, in seconds
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u32,
    },
    /// Move memory of this machine's GPU between two processes, compare every byte, and measure; says so if there is none
    #[command(
        after_help = "The program and its libraries are in target/gpu, and can be copied to a machine with a GPU:\n\
                      cd gpu && LD_LIBRARY_PATH=. ROCI_DEVICES=left=127.0.0.1,right=127.0.0.2 ./gpu_probe"
    )]
    Gpu,
    /// Build the command and its libraries, and install them in a directory
    #[command(
        after_help = "The command goes to DIR/bin, the libraries to DIR/lib/rocinante, the rest to DIR/share."
    )]
    Install {
        /// The directory, such as ~/.local or /usr/local
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
    },
    /// Write docs/rules.md: each rule of the specification, with the code and the tests that cite it
    Rules,
}

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    if words.first().is_some_and(|name| laboratory::has(name)) {
        return in_laboratory(&words);
    }
    let matches = arguments().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let steps = match arguments.task {
        Task::Test { quick, only: None } => return test(quick),
        Task::Test {
            quick,
            only: Some(name),
        } => Ok(one_step(quick, &name)),
        Task::Fuzz { target, seconds } => {
            test_steps::fuzzing(workspace_root(), target.as_deref(), seconds).map(|step| vec![step])
        }
        Task::Install { prefix } => return done(install::install(workspace_root(), &prefix)),
        Task::Gpu => return done(gpu::run(workspace_root())),
        Task::Rules => return done(spec_rules::write(workspace_root())),
    };
    match steps {
        Ok(steps) => steps::run(workspace_root(), &steps),
        Err(rejection) => done(Err(rejection)),
    }
}

/// Our own commands, and those of the laboratory for the list of `--help`.
fn arguments() -> clap::Command {
    let others = laboratory::COMMANDS.map(|(name, about)| clap::Command::new(name).about(about));
    Arguments::command().subcommands(others)
}

/// The laboratory knows its arguments itself, `--help` included, and prints why something failed.
fn in_laboratory(words: &[String]) -> ExitCode {
    let command = laboratory::command(words);
    // Paths among the arguments start where the caller is.
    match env::current_dir().and_then(|here| command.run(&here)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => done(Err(format!("`{command}` can't be started: {error}"))),
    }
}

fn test(quick: bool) -> ExitCode {
    let steps = test_steps::steps(workspace_root(), pace(quick));
    steps::run_logged(workspace_root(), &steps, quick)
}

fn one_step(quick: bool, name: &str) -> Vec<Step> {
    let mut steps = test_steps::steps(workspace_root(), pace(quick));
    steps.retain(|step| step.name == name);
    steps
}

fn pace(quick: bool) -> Pace {
    if quick { Pace::Quick } else { Pace::Full }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_commands_has_those_of_the_laboratory() {
        let help = arguments().render_help().to_string();
        for (name, about) in laboratory::COMMANDS {
            assert!(help.contains(name) && help.contains(about), "{help}");
        }
    }

    /// The fresh system of the step `recipes` has no compiler, so this half of the action is only read.
    #[test]
    fn the_action_builds_by_a_command_that_we_have() {
        let action = include_str!("../../action.yml");
        let mut lines = action.lines().map(str::trim_start);
        let words = lines.find_map(|line| line.strip_prefix("run: cargo xtask "));
        let words = words.expect("a step that builds").split(' ');
        arguments()
            .try_get_matches_from(["cargo xtask"].into_iter().chain(words))
            .expect("a command of ours");
    }
}

//! `roci`: shows, tests and measures RDMA devices.

#![forbid(unsafe_code)]

mod commands;
mod explain;
mod find_device;
mod free_loopback_address;
mod json_channel;
mod markup;
mod output;
mod perf;
mod shortcut_use;
mod stand_in;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[cfg(feature = "manual")]
use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// RDMA for any Linux machine: a RoCEv2 device in user space.
///
/// It needs no RDMA hardware, no kernel module, no root and no daemon. Each network interface is a
/// device, unless ROCI_DEVICES or `roci link` defines others.
#[derive(Parser)]
#[command(name = "roci", version, arg_required_else_help = true)]
#[command(after_help = "\
Start here:
  roci demo                     two processes exchange data
  roci doctor                   check this machine
  roci run -- PROGRAM           run an unmodified RDMA program

Does mine run?      Yes, if it loads libibverbs or librdmacm. The kernel itself (NVMe-oF host, NFS
                    over RDMA, SMB Direct) can't use a device in user space.
How fast is it?     On one machine faster than TCP, between machines somewhat slower, and slower
                    than a card: roci perf write-bw --local --vs-tcp
How to install it?  `roci doctor` says what is missing here. Completions and manual pages:
                    roci completions, roci manual
What can't it do?   Answer while its process is stopped, and what only cards have, such as flow
                    steering. It says why a request failed: roci run --explain -- PROGRAM")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show SEND, RDMA WRITE, RDMA READ and an atomic between two processes
    Demo(commands::demo::Options),
    /// Check this machine, and say what to do about each problem
    Doctor(commands::doctor::Options),
    /// List the devices
    Devices(commands::devices::Options),
    /// Describe devices, as ibv_devinfo does
    Devinfo(commands::devinfo::Options),
    /// List the GIDs, as show_gids does, and mark the one to use
    Gids(commands::gids::Options),
    /// Add, delete and show devices with names of your own
    Link(commands::link::Options),
    /// Ping over RDMA, as rping does
    Ping(commands::ping::Options),
    /// Measure bandwidth and latency, as perftest does
    Perf(Box<perf::Options>),
    /// Show what the RDMA processes of this user send and receive
    Stat(commands::stat::Options),
    /// Watch the RDMA processes of this user and their queue pairs, live
    #[command(alias = "monitor")]
    Top(commands::top::Options),
    /// Explain a capture, or an error code
    Explain(explain::Options),
    /// Run an unmodified RDMA program on these devices
    Run(commands::run::Options),
    /// Run a test again and again under faults, and find the packet that breaks it
    Torture(Box<torture::Options>),
    /// Print shell commands that set the environment of `roci run`
    Env(commands::env::Options),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  roci completions bash > ~/.local/share/bash-completion/completions/roci
  roci completions fish > ~/.config/fish/completions/roci.fish
  roci completions zsh > \"${fpath[1]}/_roci\"")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a directory
    #[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/man/man1
  roci manual ~/.local/share/man/man1
  man roci-explain")]
    Manual {
        /// The directory; it must exist
        directory: PathBuf,
    },
    /// The second process of `roci demo`
    #[command(hide = true)]
    DemoPeer,
}

fn main() -> ExitCode {
    let done = stand_in::run().unwrap_or_else(|| run(Arguments::parse().command));
    match done {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Demo(options) => commands::demo::run(&options),
        Command::Doctor(options) => return commands::doctor::run(&options),
        Command::Devices(options) => commands::devices::run(&options),
        Command::Devinfo(options) => commands::devinfo::run(&options),
        Command::Gids(options) => commands::gids::run(&options),
        Command::Link(options) => commands::link::run(&options),
        Command::Ping(options) => return commands::ping::run(&options),
        Command::Perf(options) => return perf::run(&options),
        Command::Stat(options) => commands::stat::run(&options),
        Command::Top(options) => commands::top::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Run(options) => return Ok(commands::run::run(&options)),
        Command::Torture(options) => return torture::run(&options),
        Command::Env(options) => commands::env::run(&options),
        Command::Completions { shell } => completions(shell),
        Command::Manual { directory } => manual(&directory),
        Command::DemoPeer => commands::demo::run_peer(),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "roci", &mut script);
    output::print(String::from_utf8_lossy(&script))
}

#[cfg(feature = "manual")]
fn manual(directory: &Path) -> anyhow::Result<()> {
    commands::manual::write(Arguments::command(), directory)
        .with_context(|| format!("no manual can be written into {}", directory.display()))
}

#[cfg(not(feature = "manual"))]
fn manual(_directory: &Path) -> anyhow::Result<()> {
    left_out("manual pages", "manual")
}

/// Complains that this build can't do something that installed ones can.
#[cfg(not(all(feature = "manual", feature = "monitor")))]
fn left_out(what: &str, feature: &str) -> anyhow::Result<()> {
    anyhow::bail!(
        "this `roci` was built without {what}: `cargo xtask install --prefix ~/.local` installs one with everything, \
         `cargo build --release --features roci/{feature}` adds it to this one"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_parser_is_consistent() {
        Arguments::command().debug_assert();
    }
}

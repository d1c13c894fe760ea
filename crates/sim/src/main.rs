//! Runs the simulation: one seed with its details, or many seeds to find one that fails.
#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use engine::Congestion;
use sim::links::{Network, Report};
use sim::{Bug, Options, campaign, run};

/// Simulated hosts and networks for the engine and the connection manager: one seed is one run.
#[derive(Parser)]
struct Arguments {
    /// Run only this seed, and print its summary.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Print every packet: time, source and destination host, what the network did to it, and its content.
    #[arg(long, requires = "seed")]
    packets: bool,
    /// Enable a deliberate bug in every device or connection manager, to see whether it is found.
    #[arg(long, value_name = "BUG", value_parser = parse_bug)]
    plant: Option<Bug>,
    /// Print what our senders reach on links with a rate, a queue and losses, beside models of TCP: `dumbbell` or `incast`. `--seed`
    /// repeats one run.
    #[arg(long, value_name = "NETWORK", value_parser = parse_network, conflicts_with_all = ["packets", "plant"])]
    network: Option<Network>,
    /// How many hosts send at once in an incast; without it, the usual numbers.
    #[arg(long, requires = "network")]
    senders: Option<usize>,
    /// The control of congestion of our senders instead of the default.
    #[arg(long, requires = "network", value_parser = parse_congestion)]
    congestion: Option<Congestion>,
    /// Receivers do not list what they hold behind a loss, as those of other implementations.
    #[arg(long, requires = "network")]
    without_lists: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(network) = arguments.network {
        let report = Report {
            network,
            congestion: arguments.congestion.unwrap_or_default(),
            held_lists: !arguments.without_lists,
            senders: arguments.senders,
            seed: arguments.seed,
        };
        report.print(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    // A panic is caught and reported with its seed. The backtrace is printed for a single run only.
    if arguments.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let options = Options {
        bug: arguments.plant,
        packets: arguments.packets,
    };
    match arguments.seed {
        Some(seed) => run_one(seed, options),
        None => run_many(&arguments, options),
    }
}

fn run_one(seed: u64, options: Options) -> ExitCode {
    match run(seed, options) {
        Ok(summary) => {
            println!("seed {seed}: {summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_many(arguments: &Arguments, options: Options) -> ExitCode {
    let seeds = arguments.from..arguments.from + arguments.seeds;
    let watched = std::io::stderr().is_terminal();
    let campaign = campaign(seeds, options, |done| {
        if watched && done.is_multiple_of(100) {
            eprint!("\r{done} of {} ", arguments.seeds);
        }
    });
    if watched {
        eprintln!();
    }
    println!("{campaign}");
    if campaign.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse_bug(name: &str) -> Result<Bug, String> {
    let named = |bug: &Bug| bug.to_string().eq_ignore_ascii_case(name);
    Bug::all().find(named).ok_or_else(|| {
        let names: Vec<String> = Bug::all().map(|bug| bug.to_string()).collect();
        format!("no such bug; there are {}", names.join(", "))
    })
}

fn parse_network(name: &str) -> Result<Network, String> {
    match name {
        "dumbbell" => Ok(Network::Dumbbell),
        "incast" => Ok(Network::Incast),
        _ => Err("there are dumbbell and incast".to_owned()),
    }
}

fn parse_congestion(name: &str) -> Result<Congestion, String> {
    match name {
        "local" => Ok(Congestion::Local),
        "cubic" => Ok(Congestion::Cubic),
        "model" => Ok(Congestion::Model),
        _ => Err("there are local, cubic and model".to_owned()),
    }
}

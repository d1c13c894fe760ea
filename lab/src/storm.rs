//! A storm: real programs on shared addresses, while processes are killed and stopped, interfaces
//! go down, addresses disappear, and descriptors, memory and disk run out.
//!
//! Each program must succeed, exit with a message, or continue. Nothing hangs, and no acknowledged
//! message is lost. Every decision comes from the seed. The timing does not, because the programs are
//! real.

mod cluster;
mod exit_check;
mod faults;
mod lost_messages;
mod outcome_counts;
mod program;
mod random;
mod services;
mod workload;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use xtask::command::program_beside_us;
use xtask::debian;
use xtask::scratch::Scratch;

use crate::programs;
use cluster::Cluster;
use faults::Faults;
use random::Random;
use workload::{Population, Tools};

/// How long the step of the test command injects faults. Programs that still run then need up to half a
/// minute more.
const USUAL_SECONDS: u64 = 50;

/// How often to check the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long after the last fault everything but the servers may still run: longer than all retries of a queue pair
/// or of the connection manager take, and than any program may run.
const QUIET_TIMEOUT: Duration = Duration::from_secs(100);

#[derive(Args)]
pub(crate) struct Options {
    /// Repeat the random decisions of an earlier run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long faults are injected, in seconds
    #[arg(long, value_name = "S", default_value_t = USUAL_SECONDS)]
    seconds: u64,
    /// Print how each program ended
    #[arg(long)]
    verbose: bool,
}

/// Why this machine can't run the step, or `None`.
pub(crate) fn missing() -> Option<String> {
    if !debian::are_we_root() {
        return Some("network namespaces and full disks take root".into());
    }
    programs::missing()
}

/// The step of the test command, with a new seed each time.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let options = Options {
        seed: None,
        seconds: USUAL_SECONDS,
        verbose: false,
    };
    run(root, &options)
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    programs::install()?;
    programs::build(root)?;
    let seed = options.seed.unwrap_or_else(seed_of_the_clock);
    let repeat = format!(
        "cargo xtask storm --seed {seed} --seconds {}",
        options.seconds
    );
    println!("seed {seed}: `{repeat}` repeats its decisions");
    storm(seed, options)
        .map_err(|finding| format!("{finding}\n\nseed {seed}: `{repeat}` repeats its decisions"))
}

fn seed_of_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()))
}

fn storm(seed: u64, options: &Options) -> Result<(), String> {
    let scratch = Scratch::new("storm")?;
    let cluster = Cluster::new(&scratch.0)?;
    let tools = Tools {
        roci: program_beside_us("roci")?,
        ledger: program_beside_us("examples/ledger")?,
        scratch: scratch.0.clone(),
    };
    let mut random = Random::new(seed);
    let mut faults = Faults::new(random.fork());
    let mut population = Population::new(&cluster, &tools, random)?;
    population.is_verbose = options.verbose;
    population.start_servers()?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        population.tick()?;
        population.grow()?;
        faults.tick(&cluster, &mut population)?;
        sleep(POLL_INTERVAL);
    }
    faults.end(&cluster, &mut population)?;
    wait_until_quiet(&mut population)?;
    population.prove_servers_work()?;
    population.find_zombies()?;
    population.end_servers()?;
    cluster.is_empty()?;
    let ledger = lost_messages::check(&scratch.0)?;
    println!("{}\n{faults}\n{ledger}", population.tally());
    Ok(())
}

/// Waits until every program except the servers has ended; no faults are injected any more.
fn wait_until_quiet(population: &mut Population<'_>) -> Result<(), String> {
    let end = Instant::now() + QUIET_TIMEOUT;
    while population.is_busy() {
        population.tick()?;
        if Instant::now() > end {
            return Err(population.describe_hanging());
        }
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

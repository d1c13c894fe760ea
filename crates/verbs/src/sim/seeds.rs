//! One simulation with many seeds.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use driver::CheckOptions;

use super::Simulation;
use super::runtime::message_of;

/// The environment variable that names the only seed to run.
const SEED_VARIABLE: &str = "ROCI_SEED";

/// The environment variable that says how many seeds to run.
const SEEDS_VARIABLE: &str = "ROCI_SEEDS";

/// Runs a simulation with many seeds, on all CPUs.
///
/// ```
/// use std::time::Duration;
///
/// rocinante::sim::Seeds::new(100).run("clocks_go_on", |simulation| {
///     let report = simulation
///         .host("only", |host| async move { host.sleep(Duration::from_secs(1)).await })
///         .run();
///     assert!(report.elapsed >= Duration::from_secs(1));
/// });
/// ```
#[derive(Debug, Clone)]
pub struct Seeds {
    count: u64,
    faults: Option<String>,
    check: bool,
}

/// A seed that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedSeed {
    /// The seed.
    pub seed: u64,
    /// The message of the panic.
    pub message: String,
}

impl Seeds {
    /// The seeds from 0 to `count` - 1.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self {
            count,
            faults: None,
            check: false,
        }
    }

    /// Injects faults, see [`Simulation::faults`].
    #[must_use]
    pub fn faults(mut self, faults: &str) -> Self {
        self.faults = Some(faults.to_owned());
        self
    }

    /// Checks the programs for violations of the rules of the verbs, see [`Simulation::check`].
    #[must_use]
    pub fn check(mut self) -> Self {
        self.check = true;
        self
    }

    /// Calls `test` with a simulation of each seed, until one panics. Returns the lowest seed that does.
    pub fn find(&self, test: impl Fn(Simulation) + Sync) -> Option<FailedSeed> {
        let next = AtomicU64::new(0);
        let failed: Mutex<Option<FailedSeed>> = Mutex::new(None);
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.count {
                    return;
                }
                if let Err(message) = run_once(&test, self.simulation(seed)) {
                    // No later seed starts. Earlier ones are done or still run.
                    next.store(self.count, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed.as_ref().is_none_or(|other| seed < other.seed) {
                        *failed = Some(FailedSeed { seed, message });
                    }
                }
            }
        };
        thread::scope(|scope| {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            for _ in 1..cpus {
                scope.spawn(work);
            }
            work();
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `test`, which is named `name`, with a simulation of each seed. The seed that fails is run once more, with a
    /// capture.
    ///
    /// If the environment variable `ROCI_SEED` is set, only that seed runs, with a capture. `ROCI_SEEDS` changes the number
    /// of seeds.
    ///
    /// # Panics
    /// If a seed fails. The message says how to repeat it, and where its packets are.
    pub fn run(&self, name: &str, test: impl Fn(Simulation) + Sync) {
        if let Some(seed) = number_in(SEED_VARIABLE) {
            let directory = directory(name, seed);
            eprintln!("seed {seed}: its packets are in {}", directory.display());
            return test(self.simulation(seed).capture(&directory));
        }
        let mut seeds = self.clone();
        seeds.count = number_in(SEEDS_VARIABLE).unwrap_or(self.count);
        let Some(FailedSeed { seed, message }) = seeds.find(&test) else {
            return;
        };
        let directory = directory(name, seed);
        let again = run_once(&test, self.simulation(seed).capture(&directory));
        if again.as_ref() != Err(&message) {
            panic!(
                "seed {seed} fails: {message}\nA second run of this seed ends differently, so the program depends on something \
                 outside of the simulation: threads, real time, random numbers or the order of a `HashMap`."
            );
        }
        panic!(
            "{message}\nRepeat it with {SEED_VARIABLE}={seed} cargo test {name}\nIts packets are in {}, one file for each host, \
             for Wireshark and `roci explain`",
            directory.display()
        );
    }

    fn simulation(&self, seed: u64) -> Simulation {
        let mut simulation = Simulation::with_seed(seed);
        if let Some(faults) = &self.faults {
            simulation = simulation.faults(faults);
        }
        if self.check {
            simulation = simulation.check(CheckOptions::default());
        }
        simulation
    }
}

fn run_once(test: &impl Fn(Simulation), simulation: Simulation) -> Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| test(simulation)));
    outcome.map_err(|panic| message_of(&*panic))
}

/// Where the captures of a seed are.
fn directory(name: &str, seed: u64) -> PathBuf {
    let name = name.replace("::", "-");
    env::temp_dir().join(format!("rocinante-{name}-{seed}"))
}

/// # Panics
/// If the variable is not a number: a typing error must not run something else.
fn number_in(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is `{text}`, which is not a number")))
}

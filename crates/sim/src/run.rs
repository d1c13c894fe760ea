//! One seed, one run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::CheckError;
use crate::bug::Bug;
use crate::connections::EventCounts;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::world::World;

/// The options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A bug to enable in all devices, or in all connection managers.
    pub bug: Option<Bug>,
    /// Whether every packet is printed.
    pub packets: bool,
}

impl Options {
    pub(crate) fn device_bug(self) -> Option<engine::Bug> {
        self.bug.and_then(Bug::of_device)
    }
}

/// The summary of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The kind of run.
    pub scenario: Scenario,
    /// The number of hosts.
    pub hosts: usize,
    /// The number of queue pairs of all hosts.
    pub queue_pairs: usize,
    /// The number of packets sent.
    pub packets: u64,
    /// How many of them were retransmissions.
    pub retransmitted: u64,
    /// How much virtual time passed.
    pub time: Duration,
    /// The digest of all events.
    pub digest: u64,
    /// Connection events by kind, for runs with connection managers.
    pub event_counts: EventCounts,
}

impl Summary {
    pub(crate) fn of(scenario: Scenario, queue_pairs: usize, world: &World) -> Self {
        Self {
            scenario,
            hosts: world.hosts.len(),
            queue_pairs,
            packets: world.packets,
            retransmitted: world
                .counters()
                .map(|counters| counters.retransmitted)
                .sum(),
            time: world.now(),
            digest: world.digest.value(),
            event_counts: EventCounts::default(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}: {} hosts, {} queue pairs, {} packets ({} repeated), {:?} of virtual time, digest {:016x}",
            self.scenario,
            self.hosts,
            self.queue_pairs,
            self.packets,
            self.retransmitted,
            self.time,
            self.digest
        )
    }
}

/// A run in which a check failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// The kind of run.
    pub scenario: Scenario,
    /// The check that failed.
    pub error: CheckError,
    /// The bug that was enabled.
    pub bug: Option<Bug>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            seed,
            scenario,
            error,
            bug,
        } = self;
        writeln!(f, "seed {seed} ({scenario:?}): {error}")?;
        write!(f, "replay: cargo run --release -p sim -- --seed {seed}")?;
        match bug {
            Some(bug) => write!(f, " --plant {bug}"),
            None => Ok(()),
        }
    }
}

/// Runs one seed. A panic counts as a failure.
pub fn run(seed: u64, options: Options) -> Result<Summary, Box<Failure>> {
    let mut rng = Rng::new(seed);
    let scenario = Scenario::draw(&mut rng);
    let execute = AssertUnwindSafe(|| scenario.execute(rng, options));
    let outcome = catch_unwind(execute).unwrap_or_else(|panic| Err(describe_panic(panic.as_ref())));
    outcome.map_err(|error| {
        Box::new(Failure {
            seed,
            scenario,
            error,
            bug: options.bug,
        })
    })
}

fn describe_panic(panic: &(dyn std::any::Any + Send)) -> CheckError {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    CheckError::new(format!("panic: {text}"))
}

//! One seed, one run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::Complaint;
use crate::connections::Census;
use crate::plant::Bug;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::world::World;

/// How a run is watched or spoiled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A bug to plant in all devices, or in all connection managers.
    pub bug: Option<Bug>,
    /// Whether every packet is printed.
    pub packets: bool,
}

impl Options {
    pub(crate) fn device_bug(self) -> Option<engine::Bug> {
        self.bug.and_then(Bug::of_device)
    }
}

/// What a run was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The kind of run.
    pub scenario: Scenario,
    /// How many hosts there were.
    pub hosts: usize,
    /// How many queue pairs they had in all.
    pub queue_pairs: usize,
    /// How many packets were sent.
    pub packets: u64,
    /// How many of them were repetitions.
    pub retransmitted: u64,
    /// How much virtual time passed.
    pub time: Duration,
    /// The fingerprint of everything that happened.
    pub digest: u64,
    /// What happened to connections, if there were any.
    pub census: Census,
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
            census: Census::default(),
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

/// A run in which something was wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The number that makes it happen again.
    pub seed: u64,
    /// The kind of run.
    pub scenario: Scenario,
    /// What was wrong.
    pub complaint: Complaint,
    /// The bug that had been planted.
    pub bug: Option<Bug>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            seed,
            scenario,
            complaint,
            bug,
        } = self;
        writeln!(f, "seed {seed} ({scenario:?}): {complaint}")?;
        write!(f, "replay: cargo run --release -p sim -- --seed {seed}")?;
        match bug {
            Some(bug) => write!(f, " --plant {bug}"),
            None => Ok(()),
        }
    }
}

/// Runs one seed. A panic of the engine is a failure like any other.
pub fn run(seed: u64, options: Options) -> Result<Summary, Box<Failure>> {
    let mut rng = Rng::new(seed);
    let scenario = Scenario::draw(&mut rng);
    let play = AssertUnwindSafe(|| scenario.play(rng, options));
    let outcome = catch_unwind(play).unwrap_or_else(|panic| Err(describe_panic(panic.as_ref())));
    outcome.map_err(|complaint| {
        Box::new(Failure {
            seed,
            scenario,
            complaint,
            bug: options.bug,
        })
    })
}

fn describe_panic(panic: &(dyn std::any::Any + Send)) -> Complaint {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    Complaint::new(format!("panic: {text}"))
}

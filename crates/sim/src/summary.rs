//! The options of a run and its summary.

use std::fmt;
use std::time::Duration;

use crate::connections::EventCounts;
use crate::planted_bug::Bug;
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
            "{:?}: {} hosts, {} queue pairs, {} packets ({} retransmitted), {:?} of virtual time, digest {:016x}",
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

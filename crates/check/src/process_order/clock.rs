//! Vector clocks.

use std::collections::HashMap;
use std::sync::Arc;

/// What is known of each process: how many of its events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(HashMap<u64, u64>);

impl Clock {
    pub(super) fn of(&self, process: u64) -> u64 {
        self.0.get(&process).copied().unwrap_or(0)
    }

    pub(super) fn learn(&mut self, process: u64, events: u64) {
        let known = self.0.entry(process).or_insert(0);
        *known = events.max(*known);
    }

    /// Learns all that another clock knows. The clock is copied only if it changes.
    pub(super) fn join(clock: &mut Arc<Self>, other: &Self) {
        let is_new = |(process, events): &(&u64, &u64)| clock.of(**process) < **events;
        let new: Vec<_> = other.0.iter().filter(is_new).collect();
        if !new.is_empty() {
            let clock = Arc::make_mut(clock);
            new.into_iter()
                .for_each(|(process, events)| clock.learn(*process, *events));
        }
    }
}

/// The clock of a process at a moment. The process's own count changes often, so it is kept apart.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub(super) process: u64,
    /// How many events of its own the process had.
    pub(super) own: u64,
    /// What it knew of others.
    pub(super) known: Arc<Clock>,
}

impl Moment {
    /// Whether the process knew that another had reached this count.
    pub(super) fn covers(&self, process: u64, events: u64) -> bool {
        let known = if process == self.process {
            self.own
        } else {
            self.known.of(process)
        };
        known >= events
    }

    /// Another clock learns of this moment.
    pub(super) fn teach(&self, clock: &mut Arc<Clock>) {
        Clock::join(clock, &self.known);
        if clock.of(self.process) < self.own {
            Arc::make_mut(clock).learn(self.process, self.own);
        }
    }
}

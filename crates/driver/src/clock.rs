//! The only module that reads the clock.

use std::time::{Duration, Instant, SystemTime};

use crate::simulation;

/// The current time; in a simulation, that of its world.
pub fn now() -> Instant {
    simulation::now().unwrap_or_else(Instant::now)
}

/// The deadline for polling before a thread sleeps, if it may poll for `longest`. In a simulation it is now: time does not
/// pass while a thread polls.
pub fn spin_until(longest: Duration) -> Instant {
    match simulation::now() {
        Some(now) => now,
        None => now() + longest,
    }
}

/// The time of the day, for captures.
pub(crate) fn wall_time() -> SystemTime {
    simulation::wall_time().unwrap_or_else(SystemTime::now)
}

/// The earlier of two times that may not exist.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

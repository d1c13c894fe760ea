//! The only module that reads the clock.

use std::time::{Duration, Instant, SystemTime};

use crate::simulation;

/// The current time; in a simulation, that of its world.
pub fn now() -> Instant {
    simulation::now().unwrap_or_else(Instant::now)
}

/// Until when a thread that waits polls before it sleeps, if it may poll for `longest`. In a simulation the clock stands still
/// while it polls, so it does not.
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

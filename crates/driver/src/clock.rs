//! The only module that reads the clock.

use std::time::{Duration, Instant, SystemTime};

use crate::fabric::here;

/// The current time; in a simulation, that of its world.
#[inline]
pub fn now() -> Instant {
    here(|machine| machine.now())
}

/// The deadline of a call that waits at most for `timeout`; `None` if there is no such time, as for [`Duration::MAX`]: it waits
/// without one.
pub fn deadline(timeout: Duration) -> Option<Instant> {
    now().checked_add(timeout)
}

/// The deadline for polling before a thread sleeps, if it may poll for `longest`. In a simulation it is now: time does not
/// pass while a thread polls.
pub fn spin_until(longest: Duration) -> Instant {
    here(|machine| match machine.run() {
        Some(_) => machine.now(),
        None => machine.now() + longest,
    })
}

/// The time of the day, for captures.
pub(crate) fn wall_time() -> SystemTime {
    here(|machine| machine.wall_time())
}

/// The earlier of two times that may not exist.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

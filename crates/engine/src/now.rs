//! The time of a call, which is read only if something depends on it.

use std::cell::Cell;
use std::fmt;
use std::time::Instant;

/// The time of one call into the device: known already, or read from the caller's clock when something first depends on it.
/// It is read at most once, so all of the call has the same time.
///
/// A request that is delivered and acknowledged within the device starts no timer and needs no time. Where reading the
/// clock is a system call, that reading would take longer than the request.
pub struct Now(Cell<Reading>);

#[derive(Clone, Copy)]
enum Reading {
    Known(Instant),
    Unread(fn() -> Instant),
}

impl Now {
    /// The time that this clock tells when it is needed.
    #[must_use]
    pub const fn read_by(clock: fn() -> Instant) -> Self {
        Self(Cell::new(Reading::Unread(clock)))
    }

    /// The time.
    #[inline]
    pub fn get(&self) -> Instant {
        match self.0.get() {
            Reading::Known(now) => now,
            Reading::Unread(clock) => {
                let now = clock();
                self.0.set(Reading::Known(now));
                now
            }
        }
    }

    /// The time, if it is known already.
    #[inline]
    #[must_use]
    pub fn known(&self) -> Option<Instant> {
        match self.0.get() {
            Reading::Known(now) => Some(now),
            Reading::Unread(_) => None,
        }
    }
}

impl From<Instant> for Now {
    fn from(now: Instant) -> Self {
        Self(Cell::new(Reading::Known(now)))
    }
}

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Now").field(&self.known()).finish()
    }
}

//! Looking for packets before a sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::times::LOOK;

/// How many opportunities are left out at most before the next attempt.
const MAX_SKIPPED: u32 = 32;

/// The looks of a lane. Each kind ends for its own reasons, so each has a history of its own.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// For the rest of a message whose first packets have arrived.
    pub(crate) message: Look,
    /// For what comes through shared memory, before a thread sleeps.
    pub(crate) rings: Look,
    /// For what comes before a program waits at a descriptor.
    pub(crate) outside: Look,
    /// The same, of a program that has just replied to the last message.
    pub(crate) reply: Look,
}

/// Whether to look before a sleep, judged by how earlier looks ended.
///
/// A look is worth while if what it waits for arrives before a sleep would have ended. It never does if the other
/// program needs this very CPU, as on a machine with one CPU or with many busy threads. So each look that ends without it doubles the
/// number of opportunities that are left out, and one that succeeds ends this.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// How many opportunities are still left out.
    skips: AtomicU32,
    /// How many were left out after the last look.
    skipped: AtomicU32,
}

impl Look {
    /// How long to look this time.
    pub(crate) fn time(&self) -> Duration {
        if self.is_worthwhile() {
            LOOK
        } else {
            Duration::ZERO
        }
    }

    /// Whether to look this time.
    pub(crate) fn is_worthwhile(&self) -> bool {
        let one_less = |skips: u32| skips.checked_sub(1);
        self.skips
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_err()
    }

    /// Reports how a look ended.
    pub(crate) fn note(&self, succeeded: bool) {
        let skips = match self.skipped.load(Ordering::Relaxed) {
            _ if succeeded => 0,
            skipped => (2 * skipped).clamp(1, MAX_SKIPPED),
        };
        self.skipped.store(skips, Ordering::Relaxed);
        self.skips.store(skips, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many opportunities are left out before the next look.
    fn skipped(history: &Look) -> usize {
        std::iter::repeat_with(|| history.is_worthwhile())
            .take_while(|looks| !looks)
            .count()
    }

    #[test]
    fn useless_looks_become_rare_and_a_successful_one_makes_them_usual_again() {
        let history = Look::default();
        assert_eq!(skipped(&history), 0);
        let after_failures = [(); 7].map(|()| {
            history.note(false);
            skipped(&history)
        });
        assert_eq!(after_failures, [1, 2, 4, 8, 16, 32, 32]);
        history.note(true);
        assert_eq!(skipped(&history), 0);
        history.note(false);
        assert_eq!(skipped(&history), 1);
    }
}

//! Whether it is worth while to spin before a sleep.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many opportunities are left out at most before the next attempt.
const MAX_SKIPPED: u32 = 32;

/// How earlier spins ended.
///
/// A spin is worth while if what it waits for arrives before a sleep would have ended. It never does if the other
/// program needs this very CPU, as on a machine with one CPU or with many busy threads. So each spin that ends without it doubles the
/// number of opportunities to spin that are left out, and one that succeeds ends this.
#[derive(Debug, Default)]
pub(crate) struct SpinHistory {
    /// How many opportunities are still left out.
    skips: AtomicU32,
    /// How many were left out after the last spin.
    skipped: AtomicU32,
}

impl SpinHistory {
    /// Whether to spin this time.
    pub(crate) fn is_worthwhile(&self) -> bool {
        let one_less = |skips: u32| skips.checked_sub(1);
        self.skips
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_err()
    }

    /// Reports how a spin ended.
    pub(crate) fn note(&self, succeeded: bool) {
        let skips = match self.skipped.load(Ordering::Relaxed) {
            _ if succeeded => 0,
            skipped => (2 * skipped).clamp(1, MAX_SKIPPED),
        };
        self.skipped.store(skips, Ordering::Relaxed);
        self.skips.store(skips, Ordering::Relaxed);
    }
}

/// How many spins in a row may succeed.
const MAX_IN_A_ROW: u32 = 8;

/// Spins of a program that takes messages until there are none, and then waits for other things, too.
///
/// Each spin that succeeds gives it one more message. Without a limit, a busy peer would keep it from ever waiting.
#[derive(Debug, Default)]
pub(crate) struct BoundedSpins {
    history: SpinHistory,
    /// How many spins have succeeded since the program last waited.
    in_a_row: AtomicU32,
}

impl BoundedSpins {
    /// Whether to spin this time.
    pub(crate) fn is_worthwhile(&self) -> bool {
        if self.in_a_row.load(Ordering::Relaxed) >= MAX_IN_A_ROW {
            self.in_a_row.store(0, Ordering::Relaxed);
            return false;
        }
        self.history.is_worthwhile()
    }

    /// Reports how a spin ended.
    pub(crate) fn note(&self, succeeded: bool) {
        self.history.note(succeeded);
        if succeeded {
            self.in_a_row.fetch_add(1, Ordering::Relaxed);
        } else {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_after_some_spins_that_succeeded() {
        let spins = BoundedSpins::default();
        let row = || {
            (0..)
                .take_while(|_| {
                    let spins_on = spins.is_worthwhile();
                    spins.note(true);
                    spins_on
                })
                .count()
        };
        assert!(spins.is_worthwhile());
        spins.note(false);
        assert!(!spins.is_worthwhile(), "the last one found nothing");
        assert_eq!(row(), MAX_IN_A_ROW as usize);
    }

    /// How many opportunities are left out before the next spin.
    fn skipped(history: &SpinHistory) -> usize {
        std::iter::repeat_with(|| history.is_worthwhile())
            .take_while(|spins| !spins)
            .count()
    }

    #[test]
    fn useless_spins_become_rare_and_a_successful_one_makes_them_usual_again() {
        let history = SpinHistory::default();
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

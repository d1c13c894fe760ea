//! Looking for packets before a sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::times::LOOK;

/// How many opportunities are left out at most before the next attempt.
const MAX_SKIPPED: u32 = 32;

/// How many looks of tasks in a row may succeed. Then other tasks of the executor have their turn.
#[cfg(feature = "async")]
const MAX_TASK_LOOKS: u32 = 8;

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
    /// For what a task waits for next.
    #[cfg(feature = "async")]
    pub(crate) tasks: TaskLooks,
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

/// The looks of the tasks that a lane serves.
#[cfg(feature = "async")]
#[derive(Debug, Default)]
pub(crate) struct TaskLooks {
    look: Look,
    /// How many in a row succeeded.
    successes: AtomicU32,
}

/// What a task does that finds no completion.
#[cfg(feature = "async")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterVainPoll {
    /// It looks for packets.
    Look,
    /// It lets others run, and polls again.
    Yield,
    /// It waits.
    Wait,
}

#[cfg(feature = "async")]
impl TaskLooks {
    pub(crate) fn next(&self) -> AfterVainPoll {
        if self.successes.load(Ordering::Relaxed) >= MAX_TASK_LOOKS {
            self.successes.store(0, Ordering::Relaxed);
            AfterVainPoll::Yield
        } else if self.look.is_worthwhile() {
            AfterVainPoll::Look
        } else {
            AfterVainPoll::Wait
        }
    }

    pub(crate) fn note(&self, succeeded: bool) {
        self.look.note(succeeded);
        let successes = match self.successes.load(Ordering::Relaxed) {
            before if succeeded => before + 1,
            _ => 0,
        };
        self.successes.store(successes, Ordering::Relaxed);
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

    /// Its looks may succeed for ever.
    #[cfg(feature = "async")]
    #[test]
    fn a_task_whose_looks_succeed_yields_after_some_of_them() {
        let looks = TaskLooks::default();
        for _ in 0..2 {
            for _ in 0..MAX_TASK_LOOKS {
                assert_eq!(looks.next(), AfterVainPoll::Look);
                looks.note(true);
            }
            assert_eq!(looks.next(), AfterVainPoll::Yield);
        }
        assert_eq!(looks.next(), AfterVainPoll::Look);
        looks.note(false);
        assert_eq!(looks.next(), AfterVainPoll::Wait);
    }
}

//! Tasks that wait for a time. The thread that runs the timers wakes them.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// The key of a timer: its time, and a number because two may have the same time.
pub(crate) type TimerKey = (Instant, u64);

/// Which tasks to wake, and when.
#[derive(Default)]
pub(crate) struct TaskTimers {
    tasks: BTreeMap<TimerKey, Waker>,
    #[cfg(feature = "async")]
    set: u64,
}

impl TaskTimers {
    /// A new key for a timer at `deadline`.
    #[cfg(feature = "async")]
    pub(crate) fn new_key(&mut self, deadline: Instant) -> TimerKey {
        self.set += 1;
        (deadline, self.set)
    }

    /// Sets a timer or changes its task. Returns the previous waker. The caller drops it after it has
    /// released the lane's lock, because dropping it runs code of the executor.
    #[cfg(feature = "async")]
    #[must_use]
    pub(crate) fn set(&mut self, key: TimerKey, task: Waker) -> Option<Waker> {
        self.tasks.insert(key, task)
    }

    /// Cancels a timer.
    #[cfg(feature = "async")]
    #[must_use]
    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<Waker> {
        self.tasks.remove(&key)
    }

    /// The tasks to wake at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        if self.next().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let later = self.tasks.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.tasks, later);
        due.into_values().collect()
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.tasks.keys().next().map(|(at, _)| *at)
    }
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::now;

    #[test]
    fn due_timers_are_taken_and_later_ones_stay() {
        let start = now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut task_timers = TaskTimers::default();
        let keys = [3, 1, 2, 2].map(|seconds| task_timers.new_key(at(seconds)));
        for key in keys {
            assert!(task_timers.set(key, Waker::noop().clone()).is_none());
        }
        assert!(
            task_timers.set(keys[0], Waker::noop().clone()).is_some(),
            "replaced"
        );
        assert_eq!(task_timers.next(), Some(at(1)));
        assert_eq!(task_timers.take_due(start).len(), 0);
        assert_eq!(task_timers.take_due(at(2)).len(), 3);
        assert_eq!(task_timers.next(), Some(at(3)));
        assert!(task_timers.cancel(keys[0]).is_some());
        assert!(task_timers.cancel(keys[0]).is_none());
        assert_eq!(task_timers.next(), None);
    }
}

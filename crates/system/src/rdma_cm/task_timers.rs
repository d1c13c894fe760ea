//! Timers that wake tasks. The thread of the dispatcher runs them.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// The key of a timer: its time, and a number because two may have the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerKey {
    at: Instant,
    number: u64,
}

/// The timers that are set.
#[derive(Debug, Default)]
pub(super) struct TaskTimers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    wakers: BTreeMap<TimerKey, Waker>,
    next_number: u64,
}

impl TaskTimers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a timer. Returns its key, and whether it is the first that is due.
    pub(super) fn set(&self, at: Instant, waker: &Waker) -> (TimerKey, bool) {
        // Cloned before the lock is taken, because that runs code of the executor.
        let waker = waker.clone();
        let mut inner = self.lock();
        let number = inner.next_number;
        inner.next_number += 1;
        let key = TimerKey { at, number };
        inner.wakers.insert(key, waker);
        let is_first = inner.wakers.first_key_value().map(|(key, _)| *key) == Some(key);
        (key, is_first)
    }

    /// Removes a timer, if it is not due yet.
    pub(super) fn cancel(&self, key: TimerKey) {
        let waker = self.lock().wakers.remove(&key);
        // The lock is released: dropping a waker runs code of the executor, too.
        drop(waker);
    }

    /// When the next timer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lock().wakers.first_key_value().map(|(key, _)| key.at)
    }

    /// Wakes the tasks whose timers are due.
    pub(super) fn wake_due(&self, now: Instant) {
        loop {
            let waker = {
                let mut inner = self.lock();
                let due = inner.wakers.first_entry().filter(|it| it.key().at <= now);
                due.map(OccupiedEntry::remove)
            };
            match waker {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn timers_wake_tasks_at_their_time_unless_they_are_cancelled() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let (task_timers, now) = (TaskTimers::default(), Instant::now());
        let second = Duration::from_secs(1);
        let (late, is_first) = task_timers.set(now + 3 * second, &waker);
        assert!(is_first);
        let (_, is_first) = task_timers.set(now + second, &waker);
        assert!(is_first);
        let (_, is_first) = task_timers.set(now + 2 * second, &waker);
        assert!(!is_first);
        task_timers.wake_due(now);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        task_timers.wake_due(now + 2 * second);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        task_timers.cancel(late);
        assert_eq!(task_timers.next(), None);
    }
}

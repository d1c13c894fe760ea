//! Timers that wake tasks.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::Driver;
use crate::waiting::task_timers::TimerKey;

/// A timer of a device that wakes a task. Dropping it cancels it.
#[derive(Debug)]
pub struct TaskTimer {
    driver: Arc<Driver>,
    /// `None` until it is set.
    key: Option<TimerKey>,
}

impl TaskTimer {
    /// A timer that is not set.
    #[must_use]
    pub fn new(driver: &Arc<Driver>) -> Self {
        Self {
            driver: Arc::clone(driver),
            key: None,
        }
    }

    /// Wakes the task at `deadline`, which is the same in all calls.
    pub fn wake_at(&mut self, deadline: Instant, task: &Waker) {
        let driver = &self.driver;
        if driver.is_inherited() {
            return;
        }
        // Clone and drop wakers without the lock: they run code of the executor, which may need it.
        let task = task.clone();
        let lane = &driver.opened.lane;
        let (key, former, next) = lane.step(|state| {
            let task_timers = state.task_timers();
            let key = (self.key).unwrap_or_else(|| task_timers.new_key(deadline));
            let former = task_timers.set(key, task);
            (key, former, state.next_deadline())
        });
        self.key = Some(key);
        drop(former);
        lane.wake_thread_before(next);
    }
}

impl Drop for TaskTimer {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.driver.is_inherited()
        {
            let lane = &self.driver.opened.lane;
            let former = lane.step(|state| state.task_timers().cancel(key));
            drop(former);
        }
    }
}

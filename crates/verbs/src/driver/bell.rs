//! Waking those who wait for completions or events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task;

use net::poll::Waker;

/// Rings when something happened: a descriptor that becomes readable, so that it can be waited for
/// together with others, a list of who rang, and tasks to wake.
#[derive(Debug)]
pub(crate) struct Bell {
    waker: Waker,
    rang: Mutex<Rang>,
}

#[derive(Debug, Default)]
struct Rang {
    whom: VecDeque<u64>,
    tasks: Vec<task::Waker>,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new()?,
            rang: Mutex::default(),
        })
    }

    /// Rings for `whom`.
    pub(crate) fn ring(&self, whom: u64) {
        let mut rang = self.lock();
        rang.whom.push_back(whom);
        self.waker.wake();
        for task in rang.tasks.drain(..) {
            task.wake();
        }
    }

    /// Wakes a task at the next ring.
    #[cfg(feature = "async")]
    pub(crate) fn wake_at_next(&self, task: &task::Waker) {
        let mut rang = self.lock();
        if !rang.tasks.iter().any(|known| known.will_wake(task)) {
            rang.tasks.push(task.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rang> {
        self.rang.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody rang and was not answered.
    pub(crate) fn is_ringing(&self) -> bool {
        !self.lock().whom.is_empty()
    }

    /// The oldest ring that nobody has answered. The descriptor is readable as long as there is one.
    pub(crate) fn answer(&self) -> Option<u64> {
        let mut rang = self.lock();
        let oldest = rang.whom.pop_front();
        if rang.whom.is_empty() {
            self.waker.clear();
        }
        oldest
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

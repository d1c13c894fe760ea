//! The objects of asynchronous events, and the counts of their unacknowledged events.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The object of an event: its address in C, and its count of unacknowledged events.
#[derive(Clone)]
pub(crate) struct EventTarget {
    pub(super) element: usize,
    pub(super) unacknowledged: Arc<UnacknowledgedEvents>,
}

/// Counts the events of an object that a program has got and not acknowledged. Destroying the object waits
/// until there are none.
#[derive(Default)]
pub(crate) struct UnacknowledgedEvents {
    outstanding: Mutex<u64>,
    acknowledged: Condvar,
}

impl EventTarget {
    pub(crate) fn new<T>(element: *mut T, unacknowledged: &Arc<UnacknowledgedEvents>) -> Self {
        Self {
            element: element.expose_provenance(),
            unacknowledged: Arc::clone(unacknowledged),
        }
    }
}

impl UnacknowledgedEvents {
    /// One more event was delivered.
    pub(crate) fn add(&self) {
        *self.lock() += 1;
    }

    /// This many were acknowledged.
    pub(crate) fn acknowledge(&self, count: u64) {
        let mut outstanding = self.lock();
        *outstanding = outstanding.saturating_sub(count);
        self.acknowledged.notify_all();
    }

    /// Waits until all are acknowledged: then no thread of the program handles one.
    pub(crate) fn wait(&self) {
        let mut outstanding = self.lock();
        while *outstanding > 0 {
            outstanding = self
                .acknowledged
                .wait(outstanding)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

//! Work that goes over several calls from C, of one thread at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is worked on from `begin` to `end`; other threads wait at `begin`.
#[derive(Default)]
pub(crate) struct Turn<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

#[derive(Default)]
struct State<T> {
    taken: bool,
    work: T,
}

impl<T> Turn<T> {
    /// Waits until nobody else is at work.
    pub(crate) fn begin(&self) {
        let mut state = self.lock();
        while state.taken {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.taken = true;
    }

    /// Lets the next one begin.
    pub(crate) fn end(&self) {
        self.lock().taken = false;
        self.ended.notify_one();
    }

    /// Does a part of the work.
    pub(crate) fn work<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.lock().work)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

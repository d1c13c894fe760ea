//! A lock that a thread holds across several C calls, such as from `ibv_start_poll` to `ibv_end_poll`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A lock that one thread holds from `begin` to `end`, and the state that it protects. Other threads wait in `begin`.
#[derive(Default)]
pub(crate) struct MultiCallLock<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

#[derive(Default)]
struct State<T> {
    taken: bool,
    work: T,
}

impl<T> MultiCallLock<T> {
    /// Waits until no other thread holds the lock, and takes it.
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

    /// Releases it to the next thread.
    pub(crate) fn end(&self) {
        self.lock().taken = false;
        self.ended.notify_one();
    }

    /// Accesses the state between `begin` and `end`.
    pub(crate) fn work<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.lock().work)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

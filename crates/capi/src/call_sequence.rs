//! State that several C calls of one thread use in sequence, such as `ibv_start_poll` to `ibv_end_poll`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// State that one thread owns from `begin` to `end`; other threads wait in `begin`.
#[derive(Default)]
pub(crate) struct CallSequence<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

#[derive(Default)]
struct State<T> {
    taken: bool,
    work: T,
}

impl<T> CallSequence<T> {
    /// Waits until no other thread owns it, and owns it.
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

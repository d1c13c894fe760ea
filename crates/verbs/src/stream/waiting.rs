//! The tasks that wait for a stream.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// All tasks of a stream, whatever they wait for. Each progress wakes all of them, and each looks again.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    /// How often there was progress.
    progress: u64,
    tasks: Vec<Waker>,
}

impl Waiting {
    /// How often there was progress until now, for [`add`](Self::add).
    pub(super) fn progress(&self) -> u64 {
        self.tasks().progress
    }

    /// Lets the next progress wake a task. If there was some since `seen`, the task is woken now.
    pub(super) fn add(&self, seen: u64, task: &Waker) {
        // Without the lock, because this runs code of the executor.
        let task = task.clone();
        let mut tasks = self.tasks();
        if tasks.progress != seen {
            drop(tasks);
            task.wake();
        } else if !tasks.tasks.iter().any(|it| it.will_wake(&task)) {
            tasks.tasks.push(task);
        }
    }

    /// A task does not wait any more.
    pub(super) fn remove(&self, task: &Waker) {
        let mut tasks = self.tasks();
        let place = tasks.tasks.iter().position(|it| it.will_wake(task));
        let removed = place.map(|place| tasks.tasks.swap_remove(place));
        drop(tasks);
        // Without the lock, because this runs code of the executor.
        drop(removed);
    }

    /// There is progress.
    pub(super) fn wake_all(&self) {
        let mut tasks = self.tasks();
        tasks.progress += 1;
        let woken = mem::take(&mut tasks.tasks);
        drop(tasks);
        woken.into_iter().for_each(Waker::wake);
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

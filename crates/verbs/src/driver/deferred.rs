//! Waking tasks after a lock is released.
//!
//! A waker is code of the executor. It may poll the task at once, which takes the device's lock.

use std::cell::{Cell, RefCell};
use std::task;

thread_local! {
    /// How many such locks this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    static TASKS: RefCell<Vec<task::Waker>> = const { RefCell::new(Vec::new()) };
}

/// This thread holds a lock that a waker may need. It is dropped after the lock is released.
#[derive(Debug)]
pub(crate) struct Deferral(());

impl Deferral {
    pub(crate) fn begin() -> Self {
        let _ = HELD.try_with(|held| held.set(held.get() + 1));
        Self(())
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        let held = HELD.try_with(|held| {
            held.set(held.get() - 1);
            held.get()
        });
        if held == Ok(0) {
            let tasks = TASKS.try_with(RefCell::take).unwrap_or_default();
            tasks.into_iter().for_each(task::Waker::wake);
        }
    }
}

/// Wakes tasks: now, or when this thread holds no such lock any more.
pub(super) fn wake(tasks: Vec<task::Waker>) {
    if tasks.is_empty() {
        return;
    }
    match HELD.try_with(Cell::get) {
        Ok(1..) => {
            let _ = TASKS.try_with(|waiting| waiting.borrow_mut().extend(tasks));
        }
        Ok(0) | Err(_) => tasks.into_iter().for_each(task::Waker::wake),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Count(AtomicU32);

    impl task::Wake for Count {
        fn wake(self: Arc<Self>) {
            assert_eq!(HELD.get(), 0, "no lock is held");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn tasks_are_woken_when_the_last_lock_is_released() {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let woken = || count.0.load(Ordering::Relaxed);
        wake(vec![Arc::clone(&count).into()]);
        assert_eq!(woken(), 1);
        let (outer, inner) = (Deferral::begin(), Deferral::begin());
        wake(vec![Arc::clone(&count).into()]);
        drop(inner);
        assert_eq!(woken(), 1);
        drop(outer);
        assert_eq!(woken(), 2);
    }
}

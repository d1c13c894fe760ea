//! Waking threads and tasks after a lock is released.
//!
//! A woken thread takes the lane's lock first: if it is woken while the lock is held, it sleeps
//! again at once. A task's waker is code of the executor, and may poll the task on this thread,
//! which takes the lock, too.
//!
//! Wake-ups are collected by the thread that causes them: the lane's thread for packets that it takes
//! from the sockets, otherwise the program's own. That thread delivers them in order when it has released
//! the lock, before it sleeps or returns to the program.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task;

thread_local! {
    /// How many such locks this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// It has no destructor, because glibc ends a process that has no memory to register one. No memory is lost: the
    /// list is empty whenever this thread holds no such lock.
    static WAKEUPS: ManuallyDrop<RefCell<Vec<Wake>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Something that threads, tasks or programs wait for.
pub(crate) trait Awaited: Send + Sync {
    /// Wakes them. The caller holds no lock that they need.
    fn wake(&self);
}

/// What is to be woken.
pub(crate) enum Wake {
    /// Those who wait for this.
    Waiting(Arc<dyn Awaited>),
    /// Tasks whose deadline has passed.
    Tasks(Vec<task::Waker>),
    /// Code of the application, which may use the device: a subscriber of its events.
    #[cfg(feature = "tracing")]
    Subscriber(Box<dyn FnOnce()>),
}

impl Wake {
    fn deliver(self) {
        match self {
            Self::Waiting(awaited) => awaited.wake(),
            Self::Tasks(tasks) => tasks.into_iter().for_each(task::Waker::wake),
            #[cfg(feature = "tracing")]
            Self::Subscriber(tell) => tell(),
        }
    }
}

/// This thread holds a lock that a woken thread or task may need.
struct Held;

impl Held {
    fn begin() -> Self {
        HELD.set(HELD.get() + 1);
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// Runs `work`, which takes and releases a lock that a woken thread or task may need, and then wakes what `work` wanted to
/// wake, unless this thread still holds another such lock.
#[inline]
pub(crate) fn deliver_after<R>(work: impl FnOnce() -> R) -> R {
    let held = Held::begin();
    let result = work();
    drop(held);
    if HELD.get() == 0 && WAKEUPS.with(|wakeups| !wakeups.borrow().is_empty()) {
        deliver_all();
    }
    result
}

/// Whether this thread holds such a lock.
#[cfg(test)]
pub(crate) fn holds_lock() -> bool {
    HELD.get() > 0
}

#[cold]
fn deliver_all() {
    let wakeups = WAKEUPS.with(|wakeups| wakeups.take());
    wakeups.into_iter().for_each(Wake::deliver);
}

/// Wakes now, or when this thread holds no such lock any more.
pub(crate) fn wake(wakeup: Wake) {
    if HELD.get() > 0 {
        WAKEUPS.with(|wakeups| wakeups.borrow_mut().push(wakeup));
    } else {
        wakeup.deliver();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use net::poll::{Interest, wait};

    use super::*;
    use crate::waiting::notifier::Notifier;

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
        wake(Wake::Tasks(vec![Arc::clone(&count).into()]));
        assert_eq!(woken(), 1);
        deliver_after(|| {
            deliver_after(|| wake(Wake::Tasks(vec![Arc::clone(&count).into()])));
            assert_eq!(woken(), 1);
        });
        assert_eq!(woken(), 2);
    }

    #[test]
    fn a_descriptor_becomes_readable_when_the_last_lock_is_released() {
        let notifier = Notifier::new().expect("a descriptor");
        let readable = || {
            let ready = wait(
                &[Interest::readable(notifier.expose())],
                Some(Duration::ZERO),
            );
            !ready.expect("a descriptor").is_empty()
        };
        let sleeper = notifier.waiting().enter();
        deliver_after(|| {
            assert!(!readable());
            deliver_after(|| notifier.notify(1));
            assert!(notifier.has_notification() && !readable() && !sleeper.was_woken());
        });
        assert!(readable() && sleeper.was_woken());
    }

    #[test]
    fn a_panic_under_the_lock_does_not_keep_later_wake_ups_back() {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let work = || deliver_after(|| panic!("a bug"));
        assert!(std::panic::catch_unwind(work).is_err());
        wake(Wake::Tasks(vec![Arc::clone(&count).into()]));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_notification_that_is_taken_under_the_lock_leaves_the_descriptor_alone() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.expose();
        deliver_after(|| {
            notifier.notify(1);
            assert_eq!(notifier.take(), Some(1));
        });
        let ready = wait(
            &[Interest::readable(notifier.expose())],
            Some(Duration::ZERO),
        );
        assert!(ready.expect("a descriptor").is_empty());
    }
}

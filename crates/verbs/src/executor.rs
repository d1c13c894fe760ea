//! Running a future on this thread.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use driver::{Awaited, Driver, Notifier, TaskWakeups};

thread_local! {
    /// The device on whose sockets [`block_on`] sleeps on this thread; `None` outside of it.
    static SLEEPS_AT: RefCell<Option<Weak<Driver>>> = const { RefCell::new(None) };
}

/// Runs a future on this thread, and sleeps while it waits.
///
/// The thread sleeps on the sockets of the first device whose completions the future awaits, so a packet wakes it directly. On
/// other executors a thread of the device receives the packet, and wakes the executor, unless it is tokio and the feature `tokio` is enabled.
///
/// # Panics
/// In a simulated host, whose own executor runs its tasks.
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let wakeup = Arc::new(Wakeup {
        notifier: Notifier::without_descriptor(),
        thread: thread::current(),
    });
    let waker = Waker::from(Arc::clone(&wakeup));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future.into_future());
    let _running = Running::begin();
    loop {
        while wakeup.notifier.take().is_some() {}
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        wakeup.sleep();
    }
}

/// Who receives the packets of a task that waits for completions of this device on this thread.
pub(crate) fn wakeups_of(driver: &Arc<Driver>) -> TaskWakeups<'static> {
    SLEEPS_AT.with_borrow_mut(|sleeps_at| {
        let Some(at) = sleeps_at else {
            #[cfg(feature = "tokio")]
            return crate::tokio_reactor::wakeups();
            #[cfg(not(feature = "tokio"))]
            return TaskWakeups::LaneThread;
        };
        let is_here = match at.upgrade() {
            Some(other) => other.shares_lane_with(driver),
            None => {
                *at = Arc::downgrade(driver);
                true
            }
        };
        if is_here {
            TaskWakeups::OwnThread
        } else {
            TaskWakeups::LaneThread
        }
    })
}

/// A future runs on this thread while this exists. Another one may run within it.
struct Running {
    outer: Option<Weak<Driver>>,
}

impl Running {
    fn begin() -> Self {
        Self {
            outer: SLEEPS_AT.replace(Some(Weak::new())),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        SLEEPS_AT.set(self.outer.take());
    }
}

/// Wakes the thread, wherever it sleeps.
struct Wakeup {
    /// For a thread that sleeps on sockets.
    notifier: Notifier,
    /// For one that has no device yet.
    thread: Thread,
}

impl Wakeup {
    /// Sleeps until the future is woken, or for a shorter time.
    fn sleep(&self) {
        // A task that only lets others run.
        if self.notifier.has_notification() {
            return;
        }
        let driver = SLEEPS_AT.with_borrow(|at| at.as_ref().and_then(Weak::upgrade));
        match driver {
            Some(driver) => {
                driver.sleep(&Awaited::Notification(&self.notifier), None);
            }
            None => thread::park(),
        }
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One notification is enough, and the thread takes all of them.
        if !self.notifier.has_notification() {
            self.notifier.notify(0);
        }
        self.thread.unpark();
    }
}

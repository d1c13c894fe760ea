//! Threads and tasks that wait for the same object.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use net::poll::{Interest, Waker};

use crate::deferred;

/// Threads and tasks that wait for the same object. All of them are woken, and each checks again.
///
/// Each thread has its own descriptor. If they shared one, the first thread would clear it, and the kernel
/// would put the others back to sleep.
#[derive(Debug, Default)]
pub struct WaitSet(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    threads: Vec<Arc<Wakeup>>,
    tasks: Vec<task::Waker>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.tasks.is_empty()
    }
}

/// How one thread is woken.
#[derive(Debug)]
struct Wakeup {
    /// `None` if the process has no descriptor left.
    waker: Option<Waker>,
    woken: AtomicBool,
    /// The fork generation in which it was created: after a fork the parent shares the descriptor.
    generation: u32,
}

/// A thread in a [`WaitSet`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Sleeper<'s> {
    set: &'s WaitSet,
    wakeup: Arc<Wakeup>,
}

thread_local! {
    /// Kept for the thread's next sleep.
    static WAKEUP: RefCell<Option<Arc<Wakeup>>> = const { RefCell::new(None) };
}

impl WaitSet {
    /// Adds this thread. Wake-ups count from now on, so the thread must check once more before it sleeps.
    pub(crate) fn enter(&self) -> Sleeper<'_> {
        let wakeup = Wakeup::of_this_thread();
        self.lock().threads.push(Arc::clone(&wakeup));
        Sleeper { set: self, wakeup }
    }

    /// Adds a task. It is woken once, by wake-ups from now on, so it must check once more before it waits.
    #[cfg(feature = "async")]
    pub fn add_task(&self, task: &task::Waker) {
        // Cloning a waker runs code of the executor: not under the lock.
        let task = task.clone();
        let mut waiting = self.lock();
        if !waiting.tasks.iter().any(|known| known.will_wake(&task)) {
            waiting.tasks.push(task);
        }
    }

    /// Wakes all threads and tasks as soon as this thread holds no driver lock.
    pub(crate) fn wake_all_later(self: &Arc<Self>) {
        if !self.lock().is_empty() {
            deferred::wake(deferred::Wake::WaitSet(Arc::clone(self)));
        }
    }

    /// Wakes all threads and tasks.
    pub(crate) fn wake_all(&self) {
        let mut waiting = self.lock();
        for wakeup in &waiting.threads {
            wakeup.wake();
        }
        let tasks = std::mem::take(&mut waiting.tasks);
        drop(waiting);
        tasks.into_iter().for_each(task::Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wakeup {
    fn of_this_thread() -> Arc<Self> {
        let generation = net::fork::generation();
        let kept = WAKEUP.try_with(RefCell::take).ok().flatten();
        kept.filter(|it| it.generation == generation && it.waker.is_some())
            .unwrap_or_else(|| {
                Arc::new(Self {
                    waker: Waker::new().ok(),
                    woken: AtomicBool::new(false),
                    generation,
                })
            })
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Some(waker) = &self.waker
        {
            waker.wake();
        }
    }

    /// Called only by its thread, when it is in no set.
    fn reset(&self) {
        if self.woken.swap(false, Ordering::AcqRel)
            && let Some(waker) = &self.waker
        {
            waker.clear();
        }
    }
}

impl Sleeper<'_> {
    /// Whether the set was woken since this thread entered it.
    pub(crate) fn was_woken(&self) -> bool {
        self.wakeup.woken.load(Ordering::Acquire)
    }

    /// Readable when the set is woken; `None` if the process has no descriptor left.
    pub(crate) fn interest(&self) -> Option<Interest<'_>> {
        use std::os::fd::AsFd;
        let waker = self.wakeup.waker.as_ref();
        waker.map(|waker| Interest::readable(waker.as_fd()))
    }

    /// When to check again without a wake-up, if there is no descriptor.
    pub(crate) fn next_check(&self, now: Instant) -> Option<Instant> {
        const CHECK_INTERVAL: Duration = Duration::from_millis(5);
        self.wakeup.waker.is_none().then(|| now + CHECK_INTERVAL)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut waiting = self.set.lock();
        waiting
            .threads
            .retain(|other| !Arc::ptr_eq(other, &self.wakeup));
        drop(waiting);
        self.wakeup.reset();
        let kept = Arc::clone(&self.wakeup);
        let _ = WAKEUP.try_with(|slot| slot.replace(Some(kept)));
    }
}

#[cfg(test)]
mod tests {
    use net::poll::wait;

    use super::*;

    fn is_readable(sleeper: &Sleeper<'_>) -> bool {
        let interest = sleeper.interest().expect("a descriptor");
        let ready = wait(&[interest], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    #[test]
    fn every_sleeper_of_a_set_is_woken() {
        let set = WaitSet::default();
        let (one, two) = (set.enter(), set.enter());
        assert!(!one.was_woken() && !is_readable(&one));
        set.wake_all();
        set.wake_all();
        drop(one);
        assert!(two.was_woken() && is_readable(&two));
        drop(two);
        let late = set.enter();
        assert!(!late.was_woken() && !is_readable(&late));
    }

    #[test]
    fn a_thread_reuses_its_descriptor() {
        let set = WaitSet::default();
        let first = Arc::clone(&set.enter().wakeup);
        assert!(Arc::ptr_eq(&first, &set.enter().wakeup));
    }
}

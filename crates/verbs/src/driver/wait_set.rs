//! Threads and tasks that wait for the same thing.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use net::poll::{Interest, Waker};

use super::deferred;

/// Threads and tasks that wait for the same thing. All of them are woken, and each looks again.
///
/// Each thread is woken by a descriptor of its own. With a common one, the thread that came first would
/// clear it, and the kernel would put the others back to sleep.
#[derive(Debug, Default)]
pub(crate) struct WaitSet(Mutex<Waiting>);

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
    /// Nothing if the process has no descriptor left.
    waker: Option<Waker>,
    woken: AtomicBool,
    /// How many forks there were when it was made: the descriptor is the parent's, too.
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
    /// Adds this thread. It is woken by what happens from now on: it looks again before it sleeps.
    pub(crate) fn enter(&self) -> Sleeper<'_> {
        let wakeup = Wakeup::of_this_thread();
        self.lock().threads.push(Arc::clone(&wakeup));
        Sleeper { set: self, wakeup }
    }

    /// Adds a task. It is woken once, by what happens from now on: it looks again before it waits.
    #[cfg(feature = "async")]
    pub(crate) fn add_task(&self, task: &task::Waker) {
        // Cloning a waker runs code of the executor: not under the lock.
        let task = task.clone();
        let mut waiting = self.lock();
        if !waiting.tasks.iter().any(|known| known.will_wake(&task)) {
            waiting.tasks.push(task);
        }
    }

    /// Wakes all threads and tasks, when this thread holds no lock that they may need.
    pub(crate) fn wake_all_later(self: &Arc<Self>) {
        if !self.lock().is_empty() {
            deferred::wake(deferred::Wake::WaitSet(Arc::clone(self)));
        }
    }

    /// Wakes all threads and tasks.
    pub(super) fn wake_all(&self) {
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

    /// Only by its thread, when no set has it.
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

    /// What comes true when the set is woken; nothing if the process has no descriptor left.
    pub(crate) fn interest(&self) -> Option<Interest<'_>> {
        use std::os::fd::AsFd;
        let waker = self.wakeup.waker.as_ref();
        waker.map(|waker| Interest::readable(waker.as_fd()))
    }

    /// When to look again without being woken, because there is no descriptor.
    pub(crate) fn look_again(&self, now: Instant) -> Option<Instant> {
        const PAUSE: Duration = Duration::from_millis(5);
        self.wakeup.waker.is_none().then(|| now + PAUSE)
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
        let _ = WAKEUP.try_with(|place| place.replace(Some(kept)));
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
    fn every_sleeper_is_woken_and_none_takes_it_from_another() {
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
    fn a_thread_keeps_its_descriptor() {
        let set = WaitSet::default();
        let first = Arc::clone(&set.enter().wakeup);
        assert!(Arc::ptr_eq(&first, &set.enter().wakeup));
    }
}

//! Threads and tasks that wait for the same object.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use net::poll::{Interest, Waker};

use crate::deferred_wakeups;

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

/// Wake-ups of threads that do not sleep any more, for the next sleep of any thread.
///
/// They are not thread-local: a thread-local variable would need a destructor to close the descriptor, and glibc ends
/// a process that has no memory to register one.
struct Spares(Mutex<[Option<Arc<Wakeup>>; Spares::LIMIT]>);

static SPARES: Spares = Spares::new();

impl WaitSet {
    /// Adds this thread. Wake-ups count from now on, so the thread must check once more before it sleeps.
    pub(crate) fn enter(&self) -> Sleeper<'_> {
        let wakeup = Wakeup::obtain();
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
            deferred_wakeups::wake(deferred_wakeups::Wake::WaitSet(Arc::clone(self)));
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
    fn obtain() -> Arc<Self> {
        let generation = net::fork::generation();
        SPARES.take(generation).unwrap_or_else(|| {
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

    /// Called only by the thread that slept, when this is in no set.
    fn reset(&self) {
        if self.woken.swap(false, Ordering::AcqRel)
            && let Some(waker) = &self.waker
        {
            waker.clear();
        }
    }
}

impl Spares {
    /// How many descriptors are kept open. More threads than this may sleep at once; then some of them create one for
    /// each sleep.
    const LIMIT: usize = 32;

    const fn new() -> Self {
        Self(Mutex::new([const { None }; Self::LIMIT]))
    }

    /// A wake-up of this fork generation, if there is one. Those of an ancestor are dropped.
    fn take(&self, generation: u32) -> Option<Arc<Wakeup>> {
        let mut spares = self.try_lock()?;
        let mut found = spares.iter_mut().filter_map(Option::take);
        found.find(|it| it.generation == generation)
    }

    fn keep(&self, wakeup: &Arc<Wakeup>) {
        if wakeup.waker.is_none() {
            return;
        }
        if let Some(mut spares) = self.try_lock()
            && let Some(free) = spares.iter_mut().find(|it| it.is_none())
        {
            *free = Some(Arc::clone(wakeup));
        }
    }

    /// Does not wait: in the child of a fork the lock may be held forever, by a thread that only the parent has.
    fn try_lock(&self) -> Option<MutexGuard<'_, [Option<Arc<Wakeup>>; Self::LIMIT]>> {
        self.0.try_lock().ok()
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
        SPARES.keep(&self.wakeup);
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

    fn wakeup(generation: u32) -> Arc<Wakeup> {
        Arc::new(Wakeup {
            waker: Some(Waker::new().expect("a descriptor")),
            woken: AtomicBool::new(false),
            generation,
        })
    }

    #[test]
    fn a_descriptor_is_reused_by_one_sleeper_at_a_time() {
        let spares = Spares::new();
        let first = wakeup(0);
        assert!(spares.take(0).is_none());
        spares.keep(&first);
        let again = spares.take(0).expect("it was kept");
        assert!(Arc::ptr_eq(&first, &again));
        assert!(spares.take(0).is_none());
    }

    #[test]
    fn a_descriptor_of_the_parent_is_not_reused_after_a_fork() {
        let spares = Spares::new();
        let old = wakeup(0);
        spares.keep(&old);
        assert!(spares.take(1).is_none());
        assert_eq!(Arc::strong_count(&old), 1, "the copy of it is dropped");
    }

    #[test]
    fn the_number_of_spare_descriptors_is_limited() {
        let spares = Spares::new();
        for _ in 0..=Spares::LIMIT {
            spares.keep(&wakeup(0));
        }
        let taken = std::iter::from_fn(|| spares.take(0));
        assert_eq!(taken.count(), Spares::LIMIT);
    }

    /// Other tests use the same list: one of them may hold its lock when a sleeper ends, but not each time.
    #[test]
    fn a_sleeper_leaves_its_descriptor_to_the_next() {
        let set = WaitSet::default();
        let is_kept = |_| {
            let wakeup = Arc::downgrade(&set.enter().wakeup);
            wakeup.upgrade().is_some()
        };
        assert!((0..100).any(is_kept));
    }
}

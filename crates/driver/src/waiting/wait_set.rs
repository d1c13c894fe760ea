//! Threads and tasks that wait for the same object.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use net::poll::Interest;

use crate::sync::{AtomicU8, Mutex, MutexGuard, Ordering, StaticMutex, StaticMutexGuard, Waker};
use crate::times::LONG;
use crate::waiting::deferred_wakeups::{self, Awaited, Wake};

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
pub(crate) struct Wakeup {
    /// `None` if the process has no descriptor left.
    waker: Option<Waker>,
    /// An [`Attention`].
    attention: AtomicU8,
    /// The fork generation in which it was created: after a fork the parent shares the descriptor.
    generation: u32,
}

/// What a wake-up finds, and leaves. A thread that is awake needs no system call to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Attention {
    /// The thread looks here before it sleeps.
    Awake,
    /// It sleeps at its descriptor, or is about to.
    Asleep,
    /// It was woken while it was awake.
    Noted,
    /// It was woken through its descriptor.
    Roused,
}

const AWAKE: u8 = Attention::Awake as u8;
const ASLEEP: u8 = Attention::Asleep as u8;
const NOTED: u8 = Attention::Noted as u8;
const ROUSED: u8 = Attention::Roused as u8;

/// A thread that sleeps, until this is dropped.
#[derive(Debug)]
pub(crate) struct Sleeper<'s> {
    /// The set that it leaves then; `None` if it stays in those of its watch.
    set: Option<&'s WaitSet>,
    wakeup: Arc<Wakeup>,
}

/// Wake-ups of threads that do not sleep any more, for the next sleep of any thread.
///
/// They are not thread-local: a thread-local variable would need a destructor to close the descriptor, and glibc ends
/// a process that has no memory to register one.
struct Spares(StaticMutex<[Option<Arc<Wakeup>>; Spares::LIMIT]>);

#[cfg(not(all(test, loom)))]
static SPARES: Spares = Spares::new();

// Each run of a model check starts without spares.
#[cfg(all(test, loom))]
loom::lazy_static! {
    static ref SPARES: Spares = Spares::new();
}

/// How many threads of this process sleep without a descriptor: the fork generation in the high 32 bits, the number
/// in the low ones. They are one variable, so that the child of a fork does not count threads that only the parent has.
struct PollingSleepers(AtomicU64);

static POLLING: PollingSleepers = PollingSleepers::new();

impl WaitSet {
    /// Adds this thread. Wake-ups count from now on, so the thread must check once more before it sleeps.
    pub(crate) fn enter(&self) -> Sleeper<'_> {
        self.enter_with(Wakeup::obtain())
    }

    fn enter_with(&self, wakeup: Arc<Wakeup>) -> Sleeper<'_> {
        wakeup.begin();
        wakeup.fall_asleep();
        self.add_thread(&wakeup);
        Sleeper {
            set: Some(self),
            wakeup,
        }
    }

    /// Adds a thread that [`begin`](Wakeup::begin)s to wait.
    pub(crate) fn add_thread(&self, wakeup: &Arc<Wakeup>) {
        self.lock().threads.push(Arc::clone(wakeup));
    }

    /// When it returns, nobody of this set wakes the thread any more.
    pub(crate) fn remove_thread(&self, wakeup: &Arc<Wakeup>) {
        let mut waiting = self.lock();
        waiting.threads.retain(|other| !Arc::ptr_eq(other, wakeup));
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

    /// Wakes all threads and tasks as soon as this thread holds no lane's lock. Returns whether there are tasks.
    pub(crate) fn wake_all_later(self: &Arc<Self>) -> bool {
        let waiting = self.lock();
        let (is_empty, has_tasks) = (waiting.is_empty(), !waiting.tasks.is_empty());
        drop(waiting);
        if !is_empty {
            deferred_wakeups::wake(Wake::Waiting(Arc::clone(self) as _));
        }
        has_tasks
    }

    /// Wakes all threads and tasks.
    pub fn wake_all(&self) {
        let mut waiting = self.lock();
        for wakeup in &waiting.threads {
            wakeup.wake();
        }
        let tasks = std::mem::take(&mut waiting.tasks);
        drop(waiting);
        tasks.into_iter().for_each(task::Waker::wake);
    }

    #[cfg(test)]
    pub(crate) fn has_threads(&self) -> bool {
        !self.lock().threads.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited for WaitSet {
    fn wake(&self) {
        self.wake_all();
    }
}

impl Wakeup {
    /// One that is in no set.
    pub(crate) fn obtain() -> Arc<Self> {
        let generation = net::fork::generation();
        SPARES.take(generation).unwrap_or_else(|| {
            Arc::new(Self {
                waker: Waker::new().ok(),
                attention: AtomicU8::new(AWAKE),
                generation,
            })
        })
    }

    /// Called before it enters its first set.
    pub(crate) fn begin(&self) {
        if self.waker.is_none() {
            POLLING.add(self.generation);
        }
    }

    /// Called when it has left all sets, so nobody wakes it meanwhile.
    pub(crate) fn end(self: &Arc<Self>) {
        if self.waker.is_none() {
            POLLING.remove(self.generation);
        }
        if self.attention.swap(AWAKE, Ordering::AcqRel) == ROUSED
            && let Some(waker) = &self.waker
        {
            waker.clear();
        }
        SPARES.keep(self);
    }

    /// The thread checks [`was_woken`](Self::was_woken) after this, and sleeps if it was not.
    pub(crate) fn fall_asleep(&self) {
        self.turn(AWAKE, ASLEEP);
    }

    /// The thread sleeps no more. A wake-up so far stays.
    fn stay_awake(&self) {
        self.turn(ASLEEP, AWAKE);
    }

    fn turn(&self, from: u8, to: u8) {
        // If it fails, the thread was woken.
        let _ = (self.attention).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it was woken since it entered its first set.
    pub(crate) fn was_woken(&self) -> bool {
        matches!(self.attention.load(Ordering::Acquire), NOTED | ROUSED)
    }

    fn wake(&self) {
        let next = |attention| match attention {
            AWAKE => Some(NOTED),
            ASLEEP => Some(ROUSED),
            _ => None,
        };
        let before = (self.attention).fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        if before == Ok(ASLEEP)
            && let Some(waker) = &self.waker
        {
            waker.wake();
        }
    }
}

impl Spares {
    /// How many descriptors are kept open. More threads than this may sleep at once; then some of them create one for
    /// each sleep.
    const LIMIT: usize = 32;

    const fn new() -> Self {
        Self(StaticMutex::new([const { None }; Self::LIMIT]))
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
    fn try_lock(&self) -> Option<StaticMutexGuard<'_, [Option<Arc<Wakeup>>; Self::LIMIT]>> {
        self.0.try_lock().ok()
    }
}

impl PollingSleepers {
    /// How often each of a few such threads checks, in milliseconds ([`LONG`]).
    const SHORTEST_INTERVAL: u32 = 5;

    /// How many threads may check that often. More of them check less often, so that all together check 1,600 times
    /// per second, as often as this many do.
    const FEW: u32 = 8;

    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn add(&self, generation: u32) {
        self.update(generation, |number| number + 1);
    }

    fn remove(&self, generation: u32) {
        self.update(generation, |number| number.saturating_sub(1));
    }

    fn update(&self, generation: u32, change: impl Fn(u32) -> u32) {
        let next = |counted| {
            let number = change(Self::number(counted, generation));
            Some(u64::from(generation) << 32 | u64::from(number))
        };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// How long a thread sleeps before it checks again.
    ///
    /// A wake-up that does not come from a socket takes up to this long to be noticed: 5 ms with up to eight such
    /// threads, 250 ms with 400.
    fn interval(&self, generation: u32) -> Duration {
        let number = Self::number(self.0.load(Ordering::Relaxed), generation);
        Self::SHORTEST_INTERVAL * LONG * number.max(Self::FEW) / Self::FEW
    }

    /// Those of an ancestor do not exist in this process.
    const fn number(counted: u64, generation: u32) -> u32 {
        if (counted >> 32) as u32 == generation {
            counted as u32
        } else {
            0
        }
    }
}

impl Sleeper<'_> {
    /// A thread that is in its sets already.
    pub(crate) fn of(wakeup: &Arc<Wakeup>) -> Self {
        wakeup.fall_asleep();
        Self {
            set: None,
            wakeup: Arc::clone(wakeup),
        }
    }

    /// Whether a set was woken since this thread entered it.
    pub(crate) fn was_woken(&self) -> bool {
        self.wakeup.was_woken()
    }

    /// Readable when the set is woken; `None` if the process has no descriptor left.
    pub(crate) fn interest(&self) -> Option<Interest<'_>> {
        use std::os::fd::AsFd;
        let waker = self.wakeup.waker.as_ref();
        waker.map(|waker| Interest::readable(waker.as_fd()))
    }

    /// When to check again without a wake-up, if there is no descriptor.
    pub(crate) fn next_check(&self, now: Instant) -> Option<Instant> {
        let Wakeup {
            waker, generation, ..
        } = &*self.wakeup;
        let is_polling = waker.is_none();
        is_polling.then(|| now + POLLING.interval(*generation))
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        match self.set {
            Some(set) => {
                set.remove_thread(&self.wakeup);
                self.wakeup.end();
            }
            None => self.wakeup.stay_awake(),
        }
    }
}

#[cfg(all(test, loom))]
mod model_checks;

#[cfg(test)]
mod tests {
    #[cfg(feature = "async")]
    use std::sync::atomic::AtomicBool;

    use net::poll::wait;

    use super::*;

    pub(super) fn is_readable(sleeper: &Sleeper<'_>) -> bool {
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

    /// A thread that enters sets before it checks them is usually woken by its own packets, in the look before the sleep.
    #[test]
    fn a_thread_that_is_awake_is_woken_without_its_descriptor() {
        for is_asleep in [false, true] {
            let sets = [(); 2].map(|()| WaitSet::default());
            let wakeup = wakeup(0);
            wakeup.begin();
            sets.iter().for_each(|set| set.add_thread(&wakeup));
            // A packet that is not for it ended its sleep.
            drop(Sleeper::of(&wakeup));
            let sleeper = is_asleep.then(|| Sleeper::of(&wakeup));
            sets[1].wake_all();
            let sleeper = sleeper.unwrap_or_else(|| Sleeper::of(&wakeup));
            assert!(sleeper.was_woken());
            assert_eq!(is_readable(&sleeper), is_asleep);
            drop(sleeper);
            assert!(wakeup.was_woken(), "until it has left its sets");
            sets.iter().for_each(|set| set.remove_thread(&wakeup));
            wakeup.end();
            let next = sets[0].enter_with(wakeup);
            assert!(!next.was_woken() && !is_readable(&next));
        }
    }

    fn wakeup(generation: u32) -> Arc<Wakeup> {
        Arc::new(Wakeup {
            waker: Some(Waker::new().expect("a descriptor")),
            attention: AtomicU8::new(AWAKE),
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

    #[test]
    fn threads_without_a_descriptor_check_less_often_the_more_there_are() {
        let polling = PollingSleepers::new();
        let millis = |millis| Duration::from_millis(millis);
        assert_eq!(polling.interval(0), millis(5));
        (0..8).for_each(|_| polling.add(0));
        assert_eq!(polling.interval(0), millis(5));
        (8..400).for_each(|_| polling.add(0));
        assert_eq!(polling.interval(0), millis(250));
        (8..400).for_each(|_| polling.remove(0));
        assert_eq!(polling.interval(0), millis(5));
    }

    #[test]
    fn the_child_of_a_fork_does_not_count_the_threads_of_its_parent() {
        let polling = PollingSleepers::new();
        (0..400).for_each(|_| polling.add(0));
        assert_eq!(polling.interval(1), Duration::from_millis(5));
        (0..16).for_each(|_| polling.add(1));
        assert_eq!(polling.interval(1), Duration::from_millis(10));
    }

    #[test]
    fn a_sleeper_without_a_descriptor_is_counted_while_it_sleeps() {
        let set = WaitSet::default();
        // No other test of this process uses this generation.
        let sleepers: Vec<_> = (0..80).map(|_| set.enter_with(polling_wakeup(7))).collect();
        let now = Instant::now();
        let last = sleepers.last().expect("there are eighty");
        assert_eq!(last.next_check(now), Some(now + Duration::from_millis(50)));
        drop(sleepers);
        assert_eq!(POLLING.interval(7), Duration::from_millis(5));
        let with_descriptors: Vec<_> = (0..80)
            .map(|_| Wakeup {
                waker: Some(Waker::new().expect("a descriptor")),
                attention: AtomicU8::new(AWAKE),
                generation: 7,
            })
            .map(|wakeup| set.enter_with(Arc::new(wakeup)))
            .collect();
        assert_eq!(POLLING.interval(7), Duration::from_millis(5));
        drop(with_descriptors);
        assert!(set.enter().next_check(now).is_none());
    }

    fn polling_wakeup(generation: u32) -> Arc<Wakeup> {
        Arc::new(Wakeup {
            waker: None,
            attention: AtomicU8::new(AWAKE),
            generation,
        })
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

    /// An executor may run the task at once, in the thread that wakes it.
    #[cfg(feature = "async")]
    #[test]
    fn a_task_that_is_woken_may_use_the_set_at_once() {
        struct Task {
            set: WaitSet,
            found_it_free: AtomicBool,
        }
        impl task::Wake for Task {
            fn wake(self: Arc<Self>) {
                let is_free = self.set.0.try_lock().is_ok();
                self.found_it_free.store(is_free, Ordering::Release);
            }
        }
        let task = Arc::new(Task {
            set: WaitSet::default(),
            found_it_free: AtomicBool::new(false),
        });
        task.set.add_task(&Arc::clone(&task).into());
        task.set.wake_all();
        assert!(task.found_it_free.load(Ordering::Acquire));
    }
}

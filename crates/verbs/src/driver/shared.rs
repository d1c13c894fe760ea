//! What the driver's users and its thread have in common.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use engine::{Completion, CompletionQueue, Device, Id};
use net::interface::Monitor;
use net::poll::{Ready, Waker, wait};

use super::bell::Bell;
use super::core::Core;
use super::deferred::Deferral;
use super::port::Doors;
use super::wait_set::{Sleeper, WaitSet};
use super::yielding::Yielding;
use crate::clock::now;
use crate::narrator::Narrator;

/// While somebody polled less than this ago, the device's own thread leaves the sockets alone; or less
/// long, if that proves wrong.
pub(super) const POLLED_RECENTLY: Duration = Duration::from_micros(200);

/// So long somebody looks for what comes through memory before he sleeps.
const GLANCE: Duration = Duration::from_micros(10);

/// How long a thread pauses that can't wait because the program has closed descriptors of the device.
pub(super) const CLOSED_PAUSE: Duration = Duration::from_millis(50);

/// How often a post that sends to its own device yields the CPU for the kernel to deliver the packets.
const OWN_DELIVERY_YIELDS: usize = 32;

/// One lock, and what must be known without it.
pub(super) struct Shared {
    /// The sockets, to sleep on without the core's lock. Before the core, which owns them.
    pub(super) doors: Mutex<Arc<Doors>>,
    /// How many forks there were when it was opened.
    pub(super) generation: u32,
    pub(super) core: Mutex<Core>,
    /// Who explains what goes wrong, if anybody does.
    pub(super) narrator: Option<Narrator>,
    /// What a forked child gets to see instead: its parent's lock may be held for ever.
    pub(super) in_child: OnceLock<Mutex<Device>>,
    /// Ends the thread's sleep: an earlier deadline, or the end.
    pub(super) waker: Waker,
    /// Tells the thread that interfaces have changed; without it, nobody learns of that.
    pub(super) monitor: Option<Monitor>,
    /// The moment at which times are counted from.
    pub(super) epoch: Instant,
    /// When somebody polled last, in nanoseconds from the epoch on.
    pub(super) polled: AtomicU64,
    /// When a queue was armed last whose notification is awaited outside of the library, in nanoseconds
    /// from the epoch on.
    pub(super) armed: AtomicU64,
    /// Whether the thread sleeps without looking at the sockets, because a program polled.
    pub(super) thread_stands_by: AtomicBool,
    pub(super) yielding: Yielding,
    /// How many users sleep on the sockets themselves.
    pub(super) sleepers: AtomicUsize,
    /// Until when the thread sleeps, in nanoseconds from the epoch on.
    pub(super) thread_sleeps_until: AtomicU64,
    /// Whether the thread sleeps without looking at the sockets, because a sleeper does.
    pub(super) thread_parked: AtomicBool,
    pub(super) stopping: AtomicBool,
}

impl Shared {
    pub(super) fn is_inherited(&self) -> bool {
        self.generation != net::fork::generation()
    }

    pub(super) fn doors(&self) -> Arc<Doors> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&doors)
    }

    pub(super) fn lock_in_child(&self) -> MutexGuard<'_, Device> {
        let device = self
            .in_child
            .get_or_init(|| Mutex::new(Device::opened_before_fork()));
        device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        // A panic in the engine is a bug of ours; the others' work is not worth losing for it.
        self.locked(self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        match self.core.try_lock() {
            Ok(core) => Some(self.locked(core)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.locked(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn locked<'s>(&'s self, core: MutexGuard<'s, Core>) -> Locked<'s> {
        Locked {
            core: Some(core),
            narrator: self.narrator.as_ref(),
            _deferral: Deferral::begin(),
        }
    }

    pub(super) fn nanoseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    pub(super) fn note_poll(&self, now: Instant) {
        self.polled.store(self.nanoseconds(now), Ordering::Release);
    }

    /// Makes progress for somebody who polls.
    pub(super) fn progress_for(
        &self,
        core: &mut Core,
        queue: Id<CompletionQueue>,
    ) -> Option<Completion> {
        let now = now();
        self.note_poll(now);
        let completion = core
            .progress_for(now, queue)
            .or_else(|| core.look_before_sleep(now, queue));
        if completion.is_some() {
            self.yielding.found();
        }
        self.watch_over_unsent(core, now);
        completion
    }

    /// When answers wait for their owner's next call, or a disconnection for a poll, the thread sees to it
    /// that they don't wait long. It may still sleep on the sockets, where everything has been taken already.
    pub(super) fn watch_over_unsent(&self, core: &Core, now: Instant) {
        if core.has_unsent() {
            self.warn_thread(Some(now + POLLED_RECENTLY));
        }
        self.warn_thread(core.next_release());
    }

    /// Delivers what went to this device itself. Mostly the kernel has it ready when a send returns; on a
    /// busy machine it takes a moment, in which the lock is free.
    pub(super) fn deliver_to_self<'s>(&'s self, mut core: Locked<'s>, now: Instant) -> Locked<'s> {
        for _ in 0..OWN_DELIVERY_YIELDS {
            if core.deliver_to_self(now) {
                return core;
            }
            let before = core.arrivals();
            drop(core);
            std::thread::yield_now();
            core = self.lock();
            if core.arrivals() != before {
                break;
            }
        }
        core.deliver_to_self(now);
        core.stop_delivery_to_self();
        core
    }

    /// A program goes to wait outside of the library: the thread does not wait for another poll.
    pub(super) fn end_standby(&self, now: Instant) {
        self.armed.store(self.nanoseconds(now), Ordering::Release);
        if self.thread_stands_by.load(Ordering::Acquire) {
            self.waker.wake();
        }
    }

    /// Whether a program armed a queue so recently that it waits outside of the library by now, or will
    /// again: a poll after that says nothing.
    pub(super) fn awaits_outside(&self, now: Instant) -> bool {
        const RECENTLY: Duration = Duration::from_millis(1);
        let armed = self.armed.load(Ordering::Acquire);
        armed != 0 && now < self.epoch + Duration::from_nanos(armed) + RECENTLY
    }

    /// Until when somebody will have polled so recently, if that is so now.
    pub(super) fn polled_within(&self, recently: Duration, now: Instant) -> Option<Instant> {
        let polled = Duration::from_nanos(self.polled.load(Ordering::Acquire));
        let until = self.epoch + polled + recently;
        (now < until).then_some(until)
    }

    /// The thread will sleep until then.
    pub(super) fn plan_thread(&self, until: Option<Instant>) {
        let planned = until.map_or(u64::MAX, |at| self.nanoseconds(at));
        self.thread_sleeps_until.store(planned, Ordering::Release);
    }

    /// Ends the thread's sleep if it would sleep beyond `next`.
    pub(super) fn warn_thread(&self, next: Option<Instant>) {
        let Some(next) = next else { return };
        let planned = self.thread_sleeps_until.load(Ordering::Acquire);
        if self.nanoseconds(next) < planned {
            self.waker.wake();
        }
    }

    /// Sleeps as [`Driver::sleep`](super::Driver::sleep) does.
    pub(super) fn sleep(&self, awaited: &Awaited<'_>, until: Option<Instant>) -> io::Result<bool> {
        awaited.note_sleep();
        while until.is_none_or(|at| now() < at) && !self.glance(awaited) {
            // First entered, then looked: nothing can slip through between.
            let sleeper = awaited.waiting().enter();
            let asleep = now();
            let mut core = self.lock();
            if awaited.is_there_or_watched(&mut core) {
                return Ok(false);
            }
            let due = earliest(until, core.before_sleep(asleep));
            drop(core);
            let interrupted = self.wait_with(&sleeper, asleep, due)?;
            let woken = sleeper.was_woken();
            // Awake: what comes now is seen without the detour over the descriptor.
            drop(sleeper);
            let now = now();
            let mut core = self.lock();
            core.progress_until(now, awaited);
            self.watch_over_unsent(&core, now);
            if interrupted || woken {
                return Ok(interrupted);
            }
        }
        Ok(false)
    }

    /// Looks for a moment whether what is awaited comes, where that costs no system calls: an answer
    /// through memory is here before a thread is asleep.
    fn glance(&self, awaited: &Awaited<'_>) -> bool {
        let mut core = self.lock();
        let until = now() + GLANCE;
        while core.has_shortcuts() {
            let now = now();
            if core.glance(now, awaited) {
                self.watch_over_unsent(&core, now);
                return true;
            }
            if now >= until {
                break;
            }
            drop(core);
            std::hint::spin_loop();
            core = self.lock();
        }
        awaited.is_there(&mut core)
    }

    /// Waits for packets, a wake-up or the time; whether a signal ended it.
    fn wait_with(
        &self,
        sleeper: &Sleeper<'_>,
        now: Instant,
        due: Option<Instant>,
    ) -> io::Result<bool> {
        let next = earliest(due, sleeper.look_again(now));
        let timeout = next.map(|at| at.saturating_duration_since(now));
        let doors = self.doors();
        let mut interests: Vec<_> = sleeper.interest().into_iter().collect();
        doors.add_to(&mut interests);
        wait(&interests, timeout).map(Ready::was_interrupted)
    }
}

/// What a thread sleeps for.
pub(crate) enum Awaited<'a> {
    /// A notification.
    Notification(&'a Bell),
    /// A completion in a queue.
    Completion(Id<CompletionQueue>, &'a WaitSet),
}

impl<'a> Awaited<'a> {
    fn waiting(&self) -> &'a WaitSet {
        match self {
            Self::Notification(bell) => bell.waiting(),
            Self::Completion(_, waiting) => waiting,
        }
    }

    fn note_sleep(&self) {
        if let Self::Notification(bell) = self {
            bell.note_sleep();
        }
    }

    pub(super) fn is_there(&self, core: &mut Core) -> bool {
        match self {
            Self::Notification(bell) => bell.has_rung(),
            Self::Completion(id, _) => {
                let queue = core.device_mut().completion_queue(*id);
                queue.is_some_and(|queue| !queue.is_empty())
            }
        }
    }

    /// As [`is_there`](Self::is_there); if not, its coming wakes the wait set.
    fn is_there_or_watched(&self, core: &mut Core) -> bool {
        let there = self.is_there(core);
        if let Self::Completion(id, _) = self
            && !there
        {
            core.device_mut().watch_completions(*id);
        }
        there
    }
}

/// The lock, held. Once it is released, what went wrong meanwhile is told: words take their time.
pub(super) struct Locked<'s> {
    core: Option<MutexGuard<'s, Core>>,
    narrator: Option<&'s Narrator>,
    /// After the lock: tasks are woken when it is released.
    _deferral: Deferral,
}

impl Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("it is held until it is dropped")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("it is held until it is dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(narrator) = self.narrator
            && let Some(mut core) = self.core.take()
            && core.has_news()
        {
            let news = core.take_news();
            drop(core);
            narrator.tell(news);
        }
    }
}

pub(super) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

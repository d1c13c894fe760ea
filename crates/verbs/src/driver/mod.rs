//! The driver joins engine, connection manager, sockets and clock.
//!
//! Whoever has something to do makes progress on its own thread: posting transmits, polling
//! receives. Only when nobody polls, the device's own thread serves the sockets and the timers, so
//! that a one-sided target answers while its application sleeps.
//!
//! There is one lock. It is held for as long as the engine works on what has arrived or is to be
//! sent, never while somebody sleeps.

mod alarms;
mod bell;
mod connections;
mod core;
mod deferred;
mod exit;
mod pace;
mod packet_wakeups;
mod port;
mod shared;
mod tap;
mod thread;
mod wait_set;
mod yielding;

#[cfg(feature = "async")]
pub(crate) use alarms::AlarmKey;
pub use bell::Bell;
pub(crate) use connections::Subscriber;
pub(crate) use deferred::Deferral;
pub(crate) use shared::Awaited;
pub(crate) use wait_set::WaitSet;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Instant;

use cm::Manager;
use engine::{AsyncEvent, Completion, CompletionQueue, Counters, Device, Id, Notify};
use net::interface::Monitor;
use net::poll::Waker;
use net::share::ServiceError;
use net::socket::SocketError;
use net::watcher::Watcher;
use wire::Gid;

use self::core::Core;
use crate::clock::now;
use crate::narrator::{Narrator, News};
use crate::opening::{OpenError, Options};
use packet_wakeups::AtReadable;
use port::Ports;
use shared::{CLOSED_PAUSE, Shared};
use thread::Thread;
use yielding::Yielding;

/// One open device.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// Done when this device has told the watcher; none if peers are not to be told of our end.
    exit_announced: Option<Once>,
    _thread: Thread,
}

impl Driver {
    pub(crate) fn open(
        device: &net::interface::Device,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let ports = Ports::open(device, options.shortcut)?;
        let doors = ports.doors().map_err(OpenError::System)?;
        let core = Core::new(device, ports, options)?;
        let shared = Arc::new(Shared {
            narrator: options.explain.then(|| Narrator::new(device)),
            core: Mutex::new(core),
            doors: Mutex::new(Arc::new(doors)),
            generation: net::fork::generation(),
            in_child: OnceLock::new(),
            waker: Waker::new().map_err(OpenError::System)?,
            monitor: Monitor::new().ok(),
            epoch: now(),
            polled: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            thread_stands_by: AtomicBool::new(false),
            yielding: Yielding::default(),
            sleepers: AtomicUsize::new(0),
            thread_sleeps_until: AtomicU64::new(u64::MAX),
            thread_parked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let thread = Thread::start(Arc::clone(&shared)).map_err(OpenError::System)?;
        Ok(Self {
            shared,
            exit_announced: options.watcher.then(Once::new),
            _thread: thread,
        })
    }

    /// Does something to the engine and sends what comes of it, on this thread.
    pub(crate) fn call<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if self.is_inherited() {
            return work(&mut self.shared.lock_in_child());
        }
        let now = now();
        let mut core = self.shared.lock();
        // What others sent to this device, others look for.
        core.stop_delivery_to_self();
        let result = work(core.device_mut());
        core.transmit(now);
        if core.has_sent_to_self() {
            core = self.shared.deliver_to_self(core, now);
        }
        let next = core.next_deadline();
        drop(core);
        self.shared.warn_thread(next);
        result
    }

    /// Does something to a queue pair that may be its end. An acknowledgement that waits goes first:
    /// the peer would ask for it in vain.
    pub(crate) fn change<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if !self.is_inherited() {
            self.shared.lock().send_waiting(now());
        }
        self.call(work)
    }

    /// Does something to the engine that gives it nothing to send.
    ///
    /// Answers that wait to be sent go on waiting: what follows a receive is mostly a reply.
    pub(crate) fn tell<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if self.is_inherited() {
            return work(&mut self.shared.lock_in_child());
        }
        let mut core = self.shared.lock();
        let result = work(core.device_mut());
        core.tell_events();
        result
    }

    /// From now on the peers of this device's connections are told when this process dies. For the first
    /// use of the connection manager; where there can be no watcher, they are not told.
    pub(crate) fn announce_exit(&self) {
        let Some(announced) = &self.exit_announced else {
            return;
        };
        if self.is_inherited() {
            return;
        }
        announced.call_once(|| {
            // Before the lock is taken: it takes its time to start a process.
            if let Ok(watcher) = Watcher::of_process() {
                self.shared.lock().announce_exit(&watcher);
            }
        });
    }

    /// Asks for one notification when the next completion comes. If the program awaits it outside of the
    /// library, the device's thread serves the sockets at once, even after a poll.
    pub(crate) fn arm(&self, queue: Id<CompletionQueue>, notify: Notify) {
        if self.is_inherited() {
            return;
        }
        let mut core = self.shared.lock();
        let outside = core.arm(queue, notify);
        core.tell_events();
        drop(core);
        if outside {
            self.shared.end_standby(now());
        }
    }

    /// Asks something of the connection manager and sends what comes of it, on this thread; nothing
    /// in a forked child, where there is none.
    pub(crate) fn manage<R>(&self, work: impl FnOnce(&mut Manager, Instant) -> R) -> Option<R> {
        if self.is_inherited() {
            return None;
        }
        let now = now();
        let mut core = self.shared.lock();
        let result = work(core.manager(), now);
        core.transmit(now);
        if core.doors_changed() {
            self.change_doors(&mut core);
        }
        let next = core.next_deadline();
        drop(core);
        self.shared.warn_thread(next);
        Some(result)
    }

    /// Wakes a task at `deadline`, or instead of the one that was to be woken before; the name of the
    /// alarm.
    #[cfg(feature = "async")]
    pub(crate) fn set_alarm(
        &self,
        key: Option<AlarmKey>,
        deadline: Instant,
        task: &std::task::Waker,
    ) -> Option<AlarmKey> {
        if self.is_inherited() {
            return None;
        }
        // Cloned before and dropped after: a waker is code of the executor, and may need the lock.
        let task = task.clone();
        let mut core = self.shared.lock();
        let alarms = core.alarms();
        let key = key.unwrap_or_else(|| alarms.name(deadline));
        let former = alarms.set(key, task);
        let next = core.next_deadline();
        drop(core);
        drop(former);
        self.shared.warn_thread(next);
        Some(key)
    }

    /// Takes an alarm back.
    #[cfg(feature = "async")]
    pub(crate) fn cancel_alarm(&self, key: AlarmKey) {
        if !self.is_inherited() {
            let mut core = self.shared.lock();
            let former = core.alarms().cancel(key);
            drop(core);
            drop(former);
        }
    }

    /// Sets or removes the subscriber to the events of an id.
    pub(crate) fn subscribe(&self, id: cm::Id, subscriber: Option<Subscriber>) {
        if !self.is_inherited() {
            self.shared.lock().connections().subscribe(id, subscriber);
        }
    }

    /// Takes a service for us at one of the device's addresses, or at all.
    pub(crate) fn claim(&self, at: Option<IpAddr>, service: u64) -> Result<(), ServiceError> {
        match self.is_inherited() {
            true => Ok(()),
            false => self.shared.lock().claim(at, service),
        }
    }

    /// Gives it back.
    pub(crate) fn release(&self, at: Option<IpAddr>, service: u64) {
        if !self.is_inherited() {
            self.shared.lock().release(at, service);
        }
    }

    /// Keeps the device from touching memory meanwhile.
    pub(crate) fn exclusively<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.is_inherited() {
            // No device of this process touches it.
            return work();
        }
        let _core = self.shared.lock();
        work()
    }

    /// The oldest completion; when there is none, first looks at what has arrived. If nothing has, lets
    /// others run now and then.
    pub(crate) fn poll(&self, queue: Id<CompletionQueue>) -> Option<Completion> {
        let completion = self.poll_without_yield(queue);
        if completion.is_none() {
            self.shared.yielding.found_nothing();
        }
        completion
    }

    /// As [`poll`](Self::poll), for a thread that goes to sleep soon if there is nothing.
    pub(crate) fn poll_without_yield(&self, queue: Id<CompletionQueue>) -> Option<Completion> {
        if self.is_inherited() {
            return None;
        }
        let Some(mut core) = self.shared.try_lock() else {
            // Somebody else makes progress. To say "nothing" while there is something would break
            // the promise that who arms, polls and then sleeps misses nothing.
            let mut core = self.shared.lock();
            core.note_polled(queue);
            return core.device_mut().poll_completion(queue);
        };
        core.note_polled(queue);
        if let Some(completion) = core.device_mut().poll_completion(queue) {
            return Some(completion);
        }
        self.shared.progress_for(&mut core, queue)
    }

    /// Hands out the completions that are there, at most `limit`; how many. When there is none, first
    /// looks at what has arrived.
    pub(crate) fn poll_many(
        &self,
        queue: Id<CompletionQueue>,
        limit: usize,
        mut take: impl FnMut(Completion),
    ) -> usize {
        if self.is_inherited() || limit == 0 {
            return 0;
        }
        let mut core = self.shared.lock();
        core.note_polled(queue);
        let known = core.device_mut().poll_completion(queue);
        let first = known.or_else(|| self.shared.progress_for(&mut core, queue));
        let Some(first) = first else {
            drop(core);
            self.shared.yielding.found_nothing();
            return 0;
        };
        take(first);
        let more = std::iter::from_fn(|| core.device_mut().poll_completion(queue));
        1 + more.take(limit - 1).map(take).count()
    }

    /// The oldest completion, without making progress: the device's own thread does that for tasks.
    #[cfg(feature = "async")]
    pub(crate) fn take(&self, queue: Id<CompletionQueue>) -> Option<Completion> {
        self.call(|device| device.poll_completion(queue))
    }

    /// As [`take`](Self::take); if there is none, tasks are woken when one comes.
    #[cfg(feature = "async")]
    pub(crate) fn take_or_watch(&self, queue: Id<CompletionQueue>) -> Option<Completion> {
        self.call(|device| {
            let completion = device.poll_completion(queue);
            if completion.is_none() {
                device.watch_completions(queue);
            }
            completion
        })
    }

    /// Sleeps until what is awaited is there or the time has come, and serves the device meanwhile. A
    /// signal ends it, too; whether one did. It may end for nothing: the caller looks again.
    ///
    /// The sleeper itself waits on the sockets: a packet wakes it directly, without a detour over
    /// another thread.
    ///
    /// # Panics
    /// In a forked child, when nothing could ever end the sleep.
    pub(crate) fn sleep(&self, awaited: &Awaited<'_>, until: Option<Instant>) -> bool {
        self.try_sleep(awaited, until).unwrap_or_else(|_| {
            std::thread::sleep(CLOSED_PAUSE);
            false
        })
    }

    /// As [`sleep`](Self::sleep); an error if the program has closed descriptors of the device.
    pub(crate) fn try_sleep(
        &self,
        awaited: &Awaited<'_>,
        until: Option<Instant>,
    ) -> io::Result<bool> {
        if self.is_inherited() {
            let until = until.expect(
                "the device was opened before a fork and stays with the parent: open it again",
            );
            std::thread::sleep(until.saturating_duration_since(now()));
            return Ok(false);
        }
        self.shared.sleepers.fetch_add(1, Ordering::AcqRel);
        let interrupted = self.shared.sleep(awaited, until);
        self.shared.sleepers.fetch_sub(1, Ordering::AcqRel);
        self.shared.note_poll(now());
        if self.shared.thread_parked.load(Ordering::Acquire) {
            // The thread had left the sockets to us for good.
            self.shared.waker.wake();
        }
        interrupted
    }

    /// Which bell rings, and for whom, when a completion queue that was armed gets its completion.
    pub(crate) fn ring_for(&self, queue: Id<CompletionQueue>, bell: &Arc<Bell>, whom: u64) {
        if self.is_inherited() {
            return;
        }
        self.shared.lock().add_bell(queue, Arc::clone(bell), whom);
    }

    /// Which threads and tasks are woken when a completion queue gets a completion.
    pub(crate) fn wake_for(&self, queue: Id<CompletionQueue>, waiting: &Arc<WaitSet>) {
        if !self.is_inherited() {
            let waiting = Arc::clone(waiting);
            self.shared.lock().add_waiting(queue, waiting);
        }
    }

    /// Nothing is told any more about a completion queue.
    pub(crate) fn forget_bell(&self, queue: Id<CompletionQueue>) {
        if !self.is_inherited() {
            // What tasks left there is dropped without the lock: it is the executor's.
            let told = self.shared.lock().remove_bell(queue);
            drop(told);
        }
    }

    /// A program takes it that the descriptor of a channel is readable without a notification: packets
    /// wake it directly from now on.
    pub(crate) fn offer_packet_wakeups(&self, bell: &Arc<Bell>) {
        if !self.is_inherited() && !bell.accepts_anything() {
            let expected = AtReadable::Anything;
            self.shared.lock().offer_packet_wakeups(bell, expected);
        }
    }

    /// A program has taken a notification from a non-blocking channel, and may take it for an error if
    /// there is none at a readable descriptor. Packets wake it directly from now on, and those that bring
    /// no notification are an extra one.
    pub(crate) fn promise_packet_wakeups(
        &self,
        bell: &Arc<Bell>,
        is_nonblocking: impl Fn() -> bool,
    ) {
        if !self.is_inherited() && bell.may_promise() && is_nonblocking() {
            bell.note_promised(true);
            let expected = AtReadable::Notification;
            self.shared.lock().offer_packet_wakeups(bell, expected);
        }
    }

    /// A program does not take it any more.
    pub(crate) fn withdraw_packet_wakeups(&self, bell: &Arc<Bell>) {
        if !self.is_inherited() && bell.has_packets() {
            self.shared.lock().packet_wakeups.withdraw(bell);
        }
    }

    /// The oldest notification of a channel. If its descriptor is readable for packets, too, first looks
    /// at what has arrived.
    pub(crate) fn take_notification(&self, bell: &Arc<Bell>) -> Option<u64> {
        if let Some(oldest) = bell.answer() {
            return Some(oldest);
        }
        if self.is_inherited() || !bell.has_packets() {
            return None;
        }
        let now = now();
        let oldest = bell.answer_after(|| {
            let mut core = self.shared.lock();
            core.progress_outside(now, &Awaited::Notification(bell));
            self.shared.note_poll(now);
            self.shared.watch_over_unsent(&core, now);
        });
        if oldest.is_none() {
            self.shared.lock().packet_wakeups.note_look_in_vain(bell);
        }
        oldest
    }

    /// Receives what is sent to a group, for one more queue pair.
    pub(crate) fn join(&self, group: Gid) -> Result<(), SocketError> {
        let mut core = self.shared.lock();
        core.join(group)?;
        if core.doors_changed() {
            self.change_doors(&mut core);
        }
        Ok(())
    }

    /// Ends that, for one queue pair.
    pub(crate) fn leave(&self, group: Gid) {
        if !self.is_inherited() {
            let mut core = self.shared.lock();
            core.leave(group);
            if core.doors_changed() {
                self.change_doors(&mut core);
            }
        }
    }

    /// Who sleeps now sleeps on the old doors; the thread is told of the new ones.
    fn change_doors(&self, core: &mut Core) {
        core.renew_packet_wakeups();
        // Without new doors a group is still served at every progress for another reason.
        if let Ok(doors) = core.doors() {
            let mut current = self
                .shared
                .doors
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *current = Arc::new(doors);
            drop(current);
            self.shared.waker.wake();
        }
    }

    /// The next asynchronous event.
    pub(crate) fn poll_event(&self) -> Option<AsyncEvent> {
        if self.is_inherited() {
            return None;
        }
        let now = now();
        let mut core = self.shared.lock();
        core.progress(now);
        self.shared.watch_over_unsent(&core, now);
        let event = core.poll_event();
        if event.is_some() {
            core.event_bell().answer();
        }
        event
    }

    /// Takes back the events of an object that is gone.
    pub(crate) fn forget_events(&self, gone: impl Fn(&AsyncEvent) -> bool) {
        if !self.is_inherited() {
            self.shared.lock().forget_events(gone);
        }
    }

    /// The bell that rings for asynchronous events.
    pub(crate) fn event_bell(&self) -> Option<Arc<Bell>> {
        match self.is_inherited() {
            true => None,
            false => Some(self.shared.lock().event_bell()),
        }
    }

    /// The next asynchronous event; sleeps until there is one, or until the time has come.
    pub(crate) fn wait_event(&self, until: Option<Instant>) -> Option<AsyncEvent> {
        let bell = self.event_bell()?;
        loop {
            if let Some(event) = self.poll_event() {
                return Some(event);
            }
            if until.is_some_and(|at| at <= now()) {
                return None;
            }
            self.sleep(&Awaited::Notification(&bell), until);
        }
    }

    pub(crate) fn capture_path(&self) -> Option<PathBuf> {
        match self.is_inherited() {
            true => None,
            false => self.shared.lock().capture_path(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        if self.is_inherited() {
            return Counters::default();
        }
        *self.shared.lock().device_mut().counters()
    }

    /// Whether it is a copy that a fork made: the device stays with the parent.
    pub(crate) fn is_inherited(&self) -> bool {
        self.shared.is_inherited()
    }

    /// Tells what the C libraries found out themselves, if it is to be told.
    pub(crate) fn remark(&self, news: News) {
        if let Some(narrator) = &self.shared.narrator
            && !self.is_inherited()
        {
            narrator.tell(vec![news]);
        }
    }

    /// A number that nobody can guess.
    pub(crate) fn random(&self) -> u64 {
        getrandom::u64()
            .unwrap_or_else(|_| now().duration_since(self.shared.epoch).as_nanos() as u64)
    }
}

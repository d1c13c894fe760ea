//! A lane: one engine of an open device with its lock, its sockets and its thread, and the state that is read without
//! the lock.

pub(crate) mod calls;
pub(crate) mod state;
pub(crate) mod thread;

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use engine::{Completion, CompletionQueue, Device, Id, SharedObjects};
use net::interface::Monitor;
use net::poll::{Ready, Waker, closed_error, wait};
use net::port_sharing::ExitWatch;
use wire::Qpn;

use crate::check::DeviceCheck;
use crate::clock::now;
use crate::diagnostics::Reporter;
use crate::lane::state::LaneState;
use crate::lanes::Common;
use crate::service_reservations::Services;
use crate::simulation::DeviceHandle;
use crate::sockets::PollSources;
use crate::statistics::MAX_PUBLISH_DELAY;
use crate::turn::{LOOK, Looks, STANDBY, SocketWait, Turn, Yielding};
use crate::waiting::deferred_wakeups::Deferral;
use crate::waiting::notifier::Notifier;
use crate::waiting::wait_set::{Sleeper, WaitSet};

/// How often in a row a thread writes records of the check, if others record more meanwhile.
const MAX_PUBLICATIONS: usize = 8;

/// How many times slower a call is, at most, if the program is checked.
pub(crate) const CHECKED_SLOWDOWN: u32 = 10;

/// How long a thread looks for the rest of one message in all. The sender of a longer one needs acknowledgements to continue.
const MAX_MESSAGE_LOOK: Duration = Duration::from_nanos(4 * LOOK.as_nanos() as u64);

/// How long a thread pauses if it cannot wait because the program has closed the device's descriptors.
pub(crate) const CLOSED_PAUSE: Duration = Duration::from_millis(50);

/// How often the other threads check whether the program has closed the device's descriptors.
const LOST_SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How often a post that sends to its own device yields the CPU for the kernel to deliver the packets.
const OWN_DELIVERY_YIELDS: usize = 32;

/// Moves the group with this index to a lane of its own, later and in another thread.
pub(crate) type Relief = Box<dyn Fn(usize) + Send + Sync>;

/// The lock of a lane, and the state that is read without it.
pub(crate) struct Lane {
    /// The sockets to sleep on without the lock. Declared before the state, which owns them.
    pub(crate) poll_sources: Mutex<Arc<PollSources>>,
    /// The fork generation in which the device was opened.
    pub(crate) generation: u32,
    /// Reservations, which may wait for other processes.
    pub(crate) services: Mutex<Services>,
    pub(crate) state: Mutex<LaneState>,
    /// Reports problems to the user, if explanations are enabled.
    pub(crate) reporter: Option<Reporter>,
    /// The device of a forked child. The copy of the parent's lock may be held forever.
    pub(crate) in_child: OnceLock<Mutex<Device>>,
    /// Wakes the thread for an earlier deadline or to stop it.
    pub(crate) waker: Waker,
    /// Wakes the thread when interfaces have changed. Without it, changes are not noticed.
    pub(crate) monitor: Option<Monitor>,
    /// Wakes the thread when a process that shares an address has ended.
    pub(crate) exits: Option<Arc<ExitWatch>>,
    /// Who serves the sockets now.
    pub(crate) turn: Turn,
    /// What the lanes of the device share.
    pub(crate) common: Arc<Common>,
    /// The objects that the queue pairs of all lanes use.
    pub(crate) objects: Arc<SharedObjects>,
    /// Whether completions were taken, or receives posted, without the lock since the counters were published.
    pub(crate) changed_without_lock: Arc<AtomicBool>,
    pub(crate) yielding: Yielding,
    pub(crate) looks: Looks,
    pub(crate) stopping: AtomicBool,
    /// Moves a group of queues to another lane, which its thread asks for when it is too busy.
    pub(crate) relief: OnceLock<Relief>,
    /// The device in its world, if it is simulated: it has no thread then.
    pub(crate) simulated: Option<DeviceHandle>,
}

impl Lane {
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != net::fork::generation()
    }

    pub(crate) fn poll_sources(&self) -> Arc<PollSources> {
        let poll_sources = self
            .poll_sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&poll_sources)
    }

    pub(crate) fn services(&self) -> MutexGuard<'_, Services> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_in_child(&self) -> MutexGuard<'_, Device> {
        calls::assert_none_runs();
        let device = self
            .in_child
            .get_or_init(|| Mutex::new(Device::opened_before_fork()));
        device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        calls::assert_none_runs();
        // A panic in the engine is a bug. Other threads still continue with the state it left.
        self.locked(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        calls::assert_none_runs();
        match self.state.try_lock() {
            Ok(state) => Some(self.locked(state)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.locked(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn locked<'s>(&'s self, state: MutexGuard<'s, LaneState>) -> Locked<'s> {
        Locked {
            state: Some(state),
            lane: self,
            publishes: true,
            _deferral: Deferral::begin(),
        }
    }

    /// Writes the records of a check into their log, and sends the packets that waited for that. The caller does not hold
    /// the lock: the file may be slow.
    fn publish(&self, check: &DeviceCheck) {
        for _ in 0..MAX_PUBLICATIONS {
            check.publish();
            let mut state = self.lock();
            state.publishes = false;
            state.send_published(now());
            let next = state.next_deadline();
            let is_done = state.publication().is_none();
            drop(state);
            self.wake_thread_before(next);
            if is_done {
                return;
            }
        }
        // Other threads record more and more.
        self.waker.wake();
    }

    /// Makes progress for an application thread that polls.
    pub(crate) fn progress_for<'s>(
        &'s self,
        mut state: Locked<'s>,
        queue: &CompletionQueue,
    ) -> (Locked<'s>, Option<Completion>) {
        let begin = now();
        self.turn.note_poll(begin);
        let mut completion = state.progress_for(begin, queue);
        if completion.is_none() && state.waits_outside_next(queue) {
            (state, completion) = self.look_before_wait(state, queue, begin);
            completion = completion.or_else(|| state.poll_before_sleep(now(), queue));
        }
        if completion.is_some() {
            self.yielding.note_found();
        }
        self.schedule_unsent(&state, begin);
        (state, completion)
    }

    /// Looks for packets for a program that waits at a descriptor next, because a reply on the same machine often arrives before the
    /// program is asleep. The lock is free between the attempts.
    fn look_before_wait<'s>(
        &'s self,
        mut state: Locked<'s>,
        queue: &CompletionQueue,
        begin: Instant,
    ) -> (Locked<'s>, Option<Completion>) {
        if !state.may_look_before_wait() || !self.looks.outside.is_worthwhile() {
            return (state, None);
        }
        loop {
            drop(state);
            std::hint::spin_loop();
            state = self.lock();
            let now = now();
            let completion = state.poll_once_more(now, queue);
            if completion.is_some() || now >= begin + LOOK {
                self.looks.outside.note(completion.is_some());
                return (state, completion);
            }
        }
    }

    /// Sets a deadline for the lane's thread if responses wait for the application's next call or a
    /// disconnection waits for a poll. The thread may still sleep on the sockets, which are empty.
    pub(crate) fn schedule_unsent(&self, state: &LaneState, now: Instant) {
        if state.has_unsent() {
            self.wake_thread_before(Some(now + STANDBY));
        }
        self.wake_thread_before(state.next_release());
    }

    /// Receives packets that the device sent to itself. Usually the kernel has delivered them when the send
    /// returns. On a busy machine it takes longer; the lock is free meanwhile.
    pub(crate) fn deliver_to_self<'s>(&'s self, mut state: Locked<'s>, now: Instant) -> Locked<'s> {
        for _ in 0..OWN_DELIVERY_YIELDS {
            if state.deliver_to_self(now) {
                return state;
            }
            let before = state.arrivals();
            drop(state);
            std::thread::yield_now();
            state = self.lock();
            if state.arrivals() != before {
                break;
            }
        }
        state.deliver_to_self(now);
        state.stop_delivery_to_self();
        state
    }

    /// Moves a queue pair of this lane to the error state, because its connection has ended. Packets that arrived before
    /// are handled first.
    pub(crate) fn move_to_error(&self, number: Qpn) {
        let mut state = self.lock();
        if state.device_mut().queue_pair(number).is_none() {
            return;
        }
        let now = now();
        state.empty_sockets(now);
        // From every other state this is a legal transition.
        let _ = state.device_mut().move_to_error(number);
        state.transmit(now);
    }

    /// Handles all packets that have arrived.
    pub(crate) fn receive_all(&self) {
        let mut state = self.lock();
        let now = now();
        state.empty_sockets(now);
        state.transmit(now);
    }

    /// Sends deferred acknowledgements.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut state = self.lock();
        state.transmit(now());
        let next = state.next_deadline();
        drop(state);
        self.wake_thread_before(next);
    }

    /// Tells the connection manager that the first packet for a queue pair of another lane has arrived.
    pub(crate) fn note_established(&self, number: Qpn) {
        let mut state = self.lock();
        state.manager().notify_established(number);
        state.transmit(now());
    }

    /// Notes that a completion was taken, or a receive posted, without the lock. The lane's thread publishes that later.
    #[inline]
    pub(crate) fn note_change_without_lock(&self) {
        if !self.changed_without_lock.load(Ordering::Relaxed) {
            self.changed_without_lock.store(true, Ordering::Release);
            self.wake_thread_before(Some(now() + MAX_PUBLISH_DELAY));
        }
    }

    /// Lets the thread serve the sockets because a program starts to wait outside of the library.
    pub(crate) fn end_standby(&self, now: Instant) {
        if self.turn.note_armed(now) {
            self.waker.wake();
        }
    }

    /// Wakes the thread if it would sleep beyond `next`.
    pub(crate) fn wake_thread_before(&self, next: Option<Instant>) {
        let Some(next) = next else { return };
        if let Some(device) = &self.simulated {
            return device.serve_before(next);
        }
        if self.turn.oversleeps(next) {
            self.waker.wake();
        }
    }

    /// Notes that a thread sleeps on the sockets now. The caller has prepared the sleep.
    pub(crate) fn begin_socket_wait(&self, state: &mut LaneState) -> SocketWait<'_> {
        state.note_sleep_prepared();
        self.turn.begin_wait()
    }

    /// Sleeps as [`Driver::sleep`](crate::Driver::sleep) does. A thread that does not serve the sockets is woken when the
    /// awaited object is ready.
    pub(crate) fn sleep(
        &self,
        awaited: &Awaited<'_>,
        until: Option<Instant>,
        serves_sockets: bool,
    ) -> io::Result<bool> {
        awaited.note_sleep();
        while until.is_none_or(|at| now() < at) && !self.poll_shortcuts(awaited) {
            // Enter the wait set before the check, so that no wake-up is lost between them.
            let sleeper = awaited.waiting().enter();
            let asleep = now();
            let mut state = self.lock();
            if awaited.is_ready_or_watched(&mut state) {
                return Ok(false);
            }
            if state.has_lost_socket() {
                return Err(closed_error());
            }
            let next = if serves_sockets {
                state.before_sleep(asleep)
            } else {
                state.send_waiting(asleep);
                Some(asleep + LOST_SOCKET_CHECK_INTERVAL)
            };
            let wait = serves_sockets.then(|| self.begin_socket_wait(&mut state));
            drop(state);
            let due = earliest(until, next);
            let interrupted = self.wait_with(&sleeper, serves_sockets, asleep, due)?;
            drop(wait);
            let woken = sleeper.was_woken();
            // This thread is awake, so it needs no wake-up through the descriptor.
            drop(sleeper);
            let mut state = self.lock();
            state.receive_until(now());
            let (mut state, now) = self.receive_message(state, awaited);
            state.finish_until(now, awaited);
            self.schedule_unsent(&state, now);
            if interrupted || woken {
                return Ok(interrupted);
            }
        }
        Ok(false)
    }

    /// Receives the rest of a message whose first packets have just arrived, and returns the present time.
    ///
    /// The rest usually arrives within microseconds. To sleep until then and to acknowledge the first part takes
    /// longer. The lock is free between the attempts.
    pub(crate) fn receive_message<'s>(
        &'s self,
        mut state: Locked<'s>,
        awaited: &Awaited<'_>,
    ) -> (Locked<'s>, Instant) {
        let begin = now();
        let mut last_arrival = begin;
        let mut longest_pause = None;
        loop {
            let now = now();
            let is_complete = !state.is_in_message(awaited);
            let is_late = longest_pause.is_some_and(|pause| now > last_arrival + pause)
                || now > begin + MAX_MESSAGE_LOOK;
            if is_complete || is_late {
                if longest_pause == Some(LOOK) {
                    self.looks.message.note(is_complete);
                }
                state.end_message();
                return (state, now);
            }
            if state.receive_more(now) > 0 {
                last_arrival = now;
                continue;
            }
            longest_pause.get_or_insert_with(|| self.looks.message.time());
            drop(state);
            std::hint::spin_loop();
            state = self.lock();
        }
    }

    /// Looks at the shared-memory rings for a short time, because a reply through a ring often arrives before
    /// a thread is asleep. Returns whether the awaited object is ready.
    fn poll_shortcuts(&self, awaited: &Awaited<'_>) -> bool {
        let mut state = self.lock();
        if !state.has_shortcuts() {
            return awaited.is_ready(&mut state);
        }
        let look = self.looks.rings.time();
        let until = now() + look;
        while state.has_shortcuts() {
            let now = now();
            let is_ready = state.poll_shortcuts(now, awaited);
            if is_ready {
                self.schedule_unsent(&state, now);
            }
            if is_ready || now >= until {
                if !look.is_zero() {
                    self.looks.rings.note(is_ready);
                }
                return is_ready;
            }
            drop(state);
            std::hint::spin_loop();
            state = self.lock();
        }
        awaited.is_ready(&mut state)
    }

    /// Waits for packets, a wake-up or the deadline. Returns whether a signal interrupted it.
    fn wait_with(
        &self,
        sleeper: &Sleeper<'_>,
        serves_sockets: bool,
        now: Instant,
        due: Option<Instant>,
    ) -> io::Result<bool> {
        let next = earliest(due, sleeper.next_check(now));
        let timeout = next.map(|at| at.saturating_duration_since(now));
        let poll_sources = self.poll_sources();
        let mut interests: Vec<_> = sleeper.interest().into_iter().collect();
        if serves_sockets {
            poll_sources.add_to(&mut interests);
        }
        wait(&interests, timeout).map(Ready::was_interrupted)
    }
}

/// What a thread waits for.
pub enum Awaited<'a> {
    /// A notification.
    Notification(&'a Notifier),
    /// A completion in a queue.
    Completion(Id<CompletionQueue>, &'a WaitSet),
}

impl<'a> Awaited<'a> {
    fn waiting(&self) -> &'a WaitSet {
        match self {
            Self::Notification(notifier) => notifier.waiting(),
            Self::Completion(_, waiting) => waiting,
        }
    }

    fn note_sleep(&self) {
        if let Self::Notification(notifier) = self {
            notifier.note_sleep();
        }
    }

    pub(crate) fn is_ready(&self, state: &mut LaneState) -> bool {
        match self {
            Self::Notification(notifier) => notifier.has_notification(),
            Self::Completion(id, _) => {
                let queue = state.device_mut().completion_queue(*id);
                queue.is_some_and(|queue| !queue.is_empty())
            }
        }
    }

    /// As [`is_ready`](Self::is_ready). If it is not ready, the next completion wakes the wait set.
    fn is_ready_or_watched(&self, state: &mut LaneState) -> bool {
        let ready = self.is_ready(state);
        if let Self::Completion(id, _) = self
            && !ready
        {
            state.device_mut().watch_completions(*id);
        }
        ready
    }
}

/// The held lock. Problems are reported after it is released, because writing to stderr takes long.
pub(crate) struct Locked<'s> {
    state: Option<MutexGuard<'s, LaneState>>,
    lane: &'s Lane,
    /// Whether the release writes records of the check into their log.
    publishes: bool,
    /// Dropped after the lock: waiters are woken then.
    _deferral: Deferral,
}

impl<'s> Locked<'s> {
    /// The lane whose lock it is.
    pub(crate) fn lane(&self) -> &'s Lane {
        self.lane
    }
}

impl Deref for Locked<'_> {
    type Target = LaneState;

    fn deref(&self) -> &LaneState {
        self.state
            .as_ref()
            .expect("the lock is held until the drop")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut LaneState {
        self.state
            .as_mut()
            .expect("the lock is held until the drop")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        let findings = state.take_findings();
        let publication = state.publication().filter(|_| self.publishes);
        let reporter = self.lane.reporter.as_ref();
        let problems = match reporter {
            Some(_) if state.has_problems() => state.take_problems(),
            _ => Vec::new(),
        };
        let messages = state.take_lane_messages();
        let took_wakeup = self.lane.turn.has_waits() && state.took_wakeup();
        drop(state);
        if took_wakeup && self.lane.turn.note_wakeup_taken(now()) {
            self.lane.waker.wake();
        }
        if !messages.is_empty() {
            self.lane.common.deliver(messages);
        }
        if let Some(check) = publication {
            self.lane.publish(&check);
        }
        if let Some((check, findings)) = findings {
            check.report(findings);
        }
        if let Some(reporter) = reporter {
            reporter.report(problems);
        }
    }
}

pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

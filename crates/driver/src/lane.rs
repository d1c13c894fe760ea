//! A lane: one engine of an open device with its lock, its sockets and its thread, and the state that is read without
//! the lock.

mod awaited;
pub(crate) mod calls;
mod effects;
pub(crate) mod replies;
pub(crate) mod siblings;
pub(crate) mod state;
pub(crate) mod thread;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use engine::{Completion, CompletionQueue, Device, Now, SharedObjects};
use net::poll::{Interest, Ready, Waker, closed_error, wait};
use net::sharing::ExitWatch;
use net::socket::interface::Monitor;
use wire::Qpn;

use crate::check::{CheckedDevice, DeviceCheck};
use crate::clock::{earliest, now};
use crate::diagnostics::{Problem, Reporter};
use crate::fabric::{Alarm, PollSources, Services};
use crate::lane::effects::Effects;
use crate::lane::replies::Unanswered;
use crate::lane::siblings::Siblings;
use crate::lane::state::{Found, Intent, LaneState};
use crate::lanes::Common;
use crate::statistics::latest_publication;
use crate::times::{LOOK, REPORT_INTERVAL, STANDBY};
use crate::turn::{Look, Looks, SocketWait, Turn, Yielding};
use crate::waiting::deferred_wakeups;
use crate::waiting::wait_set::Sleeper;

pub use awaited::Awaited;
pub use watch::Watch;

/// How often in a row a thread writes records of the check, if others record more meanwhile.
const MAX_PUBLICATIONS: usize = 8;

/// How many times slower a call is, at most, if the program is checked.
pub(crate) const CHECKED_SLOWDOWN: u32 = 10;

/// How many times the time of one look a thread looks for the rest of one message in all. The sender of a longer one needs
/// acknowledgements to continue.
const MAX_MESSAGE_LOOKS: u32 = 4;

/// How often a post that sends to its own device yields the CPU for the kernel to deliver the packets.
const OWN_DELIVERY_YIELDS: usize = 32;

/// Moves groups of queues to lanes of their own, later and in other threads.
pub(crate) trait Relief: Send + Sync {
    /// Asks for a lane for the group with this index. Returns false if the group stays where it is.
    fn ask(&self, group: usize) -> bool;

    /// Moves the groups for which lanes were asked.
    fn move_asked(&self);
}

/// The lock of a lane, and the state that is read without it.
pub(crate) struct Lane {
    /// The sockets to sleep on without the lock. Declared before the state, which owns them.
    pub(crate) poll_sources: Mutex<Arc<PollSources>>,
    /// The fork generation in which the device was opened.
    pub(crate) generation: u32,
    /// Reservations, which may wait for other processes.
    pub(crate) services: Mutex<Box<dyn Services>>,
    pub(crate) state: Mutex<LaneState>,
    /// Reports problems to the user, if explanations are enabled.
    pub(crate) reporter: Option<Reporter>,
    /// The check of the program, if it is checked.
    pub(crate) check: Option<Arc<DeviceCheck>>,
    /// The device of a forked child. The copy of the parent's lock may be held forever.
    pub(crate) in_child: OnceLock<Mutex<Device>>,
    /// Wakes the thread for an earlier deadline or to stop it.
    pub(crate) waker: Arc<Waker>,
    /// Serves the lane while no thread of the program does.
    pub(crate) alarm: Arc<dyn Alarm>,
    /// Wakes the thread when interfaces have changed. Without it, changes are not noticed.
    pub(crate) monitor: Option<Monitor>,
    /// Wakes the thread when a process that shares an address has ended.
    pub(crate) exits: Option<Arc<ExitWatch>>,
    /// Who serves the sockets now.
    pub(crate) turn: Turn,
    /// What the lanes of the device share.
    pub(crate) common: Arc<Common>,
    /// The lanes of the device.
    pub(crate) siblings: Arc<Siblings>,
    /// The objects that the queue pairs of all lanes use.
    pub(crate) objects: Arc<SharedObjects>,
    /// Whether completions were taken, or receives posted, without the lock since the counters were published.
    pub(crate) changed_without_lock: Arc<AtomicBool>,
    pub(crate) unanswered: Unanswered,
    pub(crate) yielding: Yielding,
    pub(crate) looks: Looks,
    pub(crate) stopping: AtomicBool,
    /// Moves groups of queues to other lanes.
    pub(crate) relief: OnceLock<Box<dyn Relief>>,
    /// Whether a group should move.
    pub(crate) wants_relief: AtomicBool,
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

    pub(crate) fn services(&self) -> MutexGuard<'_, Box<dyn Services>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_in_child(&self) -> MutexGuard<'_, Device> {
        calls::assert_none_runs();
        let device = self
            .in_child
            .get_or_init(|| Mutex::new(Device::opened_before_fork()));
        device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one step with the lane's state, and carries out its effects when the lock is free.
    #[inline]
    pub(crate) fn step<R>(&self, work: impl FnOnce(&mut LaneState) -> R) -> R {
        self.step_locked(self.lock_for_step(), work)
    }

    /// As [`step`](Self::step), unless another thread has the lock.
    pub(crate) fn try_step<R>(&self, work: impl FnOnce(&mut LaneState) -> R) -> Option<R> {
        let state = self.try_lock_for_step()?;
        Some(self.step_locked(state, work))
    }

    /// Takes the lock for [`step_locked`](Self::step_locked).
    #[inline]
    pub(crate) fn lock_for_step(&self) -> MutexGuard<'_, LaneState> {
        calls::assert_none_runs();
        // A panic in the engine is a bug. Other threads still continue with the state it left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock_for_step`](Self::lock_for_step), unless another thread has the lock.
    pub(crate) fn try_lock_for_step(&self) -> Option<MutexGuard<'_, LaneState>> {
        calls::assert_none_runs();
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`step`](Self::step), for a caller that has taken the lock.
    #[inline]
    pub(crate) fn step_locked<R>(
        &self,
        state: MutexGuard<'_, LaneState>,
        work: impl FnOnce(&mut LaneState) -> R,
    ) -> R {
        self.step_with(state, Effects::of, work)
    }

    #[inline]
    fn step_with<R>(
        &self,
        mut state: MutexGuard<'_, LaneState>,
        effects: impl FnOnce(&Self, &mut LaneState) -> Effects,
        work: impl FnOnce(&mut LaneState) -> R,
    ) -> R {
        deferred_wakeups::deliver_after(|| {
            let result = work(&mut state);
            if state.has_effects(self.turn.has_waits()) {
                let effects = effects(self, &mut state);
                drop(state);
                effects.carry_out(self);
            }
            result
        })
    }

    /// Writes the records of a check into their log, and sends the packets that waited for that. The caller does not hold
    /// the lock: the file may be slow.
    fn publish(&self, check: &DeviceCheck) {
        for _ in 0..MAX_PUBLICATIONS {
            check.publish();
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let send = |state: &mut LaneState| {
                state.send_published(now());
                (state.next_deadline(), state.publication().is_none())
            };
            let (next, is_done) = self.step_with(state, Effects::without_publication, send);
            self.wake_thread_before(next);
            if is_done {
                return;
            }
        }
        // Other threads record more and more.
        self.waker.wake();
    }

    /// Reports problems to the user, and to the check of the program. The caller does not hold the lock.
    pub(crate) fn report(&self, reporter: &Reporter, problems: Vec<Problem>) {
        let explained = reporter.report(problems);
        if let Some(check) = &self.check {
            check.note_explained(explained);
        }
    }

    /// Makes progress for an application thread that polls.
    pub(crate) fn poll_for(&self, state: &mut LaneState, queue: &CompletionQueue) -> Polled {
        let begin = now();
        self.turn.note_poll(begin);
        let mut found = state.step(begin, Intent::Poll(queue)).found;
        if found == Found::Nothing && state.waits_outside_next(queue) {
            if self.unanswered.is_any() {
                // A look now would delay the replies. The last of them looks.
                state.note_emptied();
            } else if state.may_look_before_wait() && self.looks.outside.is_worthwhile() {
                return Polled::LookAgain(begin);
            }
            found = prepare_descriptor(state, queue);
        }
        Polled::Result(self.finish_poll(state, begin, found))
    }

    fn finish_poll(&self, state: &LaneState, begin: Instant, found: Found) -> Option<Completion> {
        let completion = found.completion();
        if completion.is_some() {
            self.yielding.note_found();
        }
        self.schedule_unsent(state, begin);
        completion
    }

    /// Looks for packets for a program that waits at a descriptor next, because a reply on the same machine often arrives before the
    /// program is asleep. The lock is free between the attempts.
    pub(crate) fn look_before_wait(
        &self,
        queue: &CompletionQueue,
        begin: Instant,
    ) -> Option<Completion> {
        loop {
            std::hint::spin_loop();
            let result = self.step(|state| {
                let now = now();
                let mut found = state.step(now, Intent::PollAgain(queue)).found;
                let is_found = found != Found::Nothing;
                if !is_found && now < begin + LOOK {
                    return None;
                }
                self.looks.outside.note(is_found);
                if is_found {
                    state.note_successful_look();
                } else {
                    found = prepare_descriptor(state, queue);
                }
                Some(self.finish_poll(state, begin, found))
            });
            if let Some(completion) = result {
                return completion;
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

    /// Carries out what a call of the engine has left to do.
    pub(crate) fn finish_call(&self, now: &Now, after: AfterCall) {
        let mut next = after.next;
        if after.has_sent_to_self {
            self.deliver_to_self(now.get());
            next = self.step(|state| state.next_deadline());
        }
        self.wake_thread_before(next);
    }

    /// Receives packets that the device sent to itself. Usually the kernel has delivered them when the send
    /// returns. On a busy machine it takes longer; the lock is free meanwhile.
    pub(crate) fn deliver_to_self(&self, now: Instant) {
        let mut arrivals = None;
        for _ in 0..OWN_DELIVERY_YIELDS {
            let is_over = self.step(|state| {
                let others_receive = arrivals.is_some_and(|before| before != state.arrivals());
                let is_over = others_receive || state.deliver_to_self(now);
                arrivals = Some(state.arrivals());
                is_over
            });
            if is_over {
                break;
            }
            std::thread::yield_now();
        }
        self.step(|state| {
            state.deliver_to_self(now);
            state.stop_delivery_to_self();
        });
    }

    /// Moves a queue pair of this lane to the error state, because its connection has ended. Packets that arrived before
    /// are handled first.
    pub(crate) fn move_to_error(self: &Arc<Self>, number: Qpn) {
        self.step_and_transmit(|state| {
            if state.device_mut().queue_pair(number).is_some() {
                state.empty_sockets(now());
                // From every other state this is a legal transition.
                let _ = state.device_mut().move_to_error(number);
            }
        });
    }

    /// Handles all packets that have arrived.
    pub(crate) fn receive_all(self: &Arc<Self>) {
        self.step_and_transmit(|state| state.empty_sockets(now()));
    }

    /// Sends deferred acknowledgements.
    pub(crate) fn flush(self: &Arc<Self>) {
        self.step_and_transmit(|_| ());
    }

    /// A step of a thread that has other things to do than this lane. The lane's own thread learns of deadlines that follow.
    fn step_and_transmit(self: &Arc<Self>, work: impl FnOnce(&mut LaneState)) {
        let next = self.step(|state| {
            work(state);
            state.transmit(now());
            state.next_deadline()
        });
        self.wake_thread_before(next);
    }

    /// Tells the connection manager that the first packet for a queue pair of another lane has arrived.
    pub(crate) fn note_established(self: &Arc<Self>, number: Qpn) {
        self.step_and_transmit(|state| _ = state.manager().notify_established(number));
    }

    /// Notes that a completion was taken, or a receive posted, without the lock. The lane's thread publishes that later.
    #[inline]
    pub(crate) fn note_change_without_lock(&self) {
        if !self.changed_without_lock.load(Ordering::Relaxed) {
            self.changed_without_lock.store(true, Ordering::Release);
            self.wake_thread_before(Some(latest_publication(now())));
        }
    }

    /// Lets the thread serve the sockets because a program starts to wait outside of the library.
    pub(crate) fn end_standby(&self, now: Instant) {
        if self.turn.note_armed(now) {
            self.waker.wake();
        }
    }

    /// Wakes the thread or the simulated world that serves the lane, if it would sleep beyond `next`.
    pub(crate) fn wake_thread_before(&self, next: Option<Instant>) {
        let Some(next) = next else { return };
        if self.turn.oversleeps(next) {
            self.alarm.wake_before(next);
        }
    }

    /// Notes that a thread sleeps on the sockets now. The caller has prepared the sleep.
    pub(crate) fn begin_socket_wait(&self, state: &mut LaneState) -> SocketWait<'_> {
        state.note_sleep_prepared();
        self.turn.begin_wait()
    }

    /// Sleeps as [`Driver::sleep`](crate::Driver::sleep) does, or until one of the `others` is ready. A thread that does not serve the
    /// sockets is woken when the awaited object is ready.
    pub(crate) fn sleep(
        &self,
        awaited: &Awaited<'_>,
        others: &[Interest<'_>],
        until: Option<Instant>,
        serves_sockets: bool,
    ) -> io::Result<bool> {
        awaited.note_sleep();
        while until.is_none_or(|at| now() < at) && !self.poll_shortcuts(awaited) {
            // Enter the wait set before the check, so that no wake-up is lost between them.
            let sleeper = awaited.begin_sleep();
            let asleep = now();
            let (due, wait) = match self
                .step(|state| self.prepare_sleep(state, awaited, asleep, serves_sockets))
            {
                Prepared::IsReady => return Ok(false),
                Prepared::LostSocket => return Err(closed_error()),
                Prepared::Sleep(next, wait) => (earliest(until, next), wait),
            };
            let (ready, own) = self.wait_with(&sleeper, others, serves_sockets, asleep, due)?;
            drop(wait);
            let interrupted = ready.was_interrupted();
            let woken = sleeper.was_woken() || ready.count() > ready.count_below(own);
            // This thread is awake, so it needs no wake-up through the descriptor.
            drop(sleeper);
            self.receive_for(awaited, Intent::Woken(awaited));
            if interrupted || woken {
                return Ok(interrupted);
            }
        }
        Ok(false)
    }

    fn prepare_sleep(
        &self,
        state: &mut LaneState,
        awaited: &Awaited<'_>,
        now: Instant,
        serves_sockets: bool,
    ) -> Prepared<'_> {
        if awaited.is_ready_or_watched(state) {
            return Prepared::IsReady;
        }
        if state.has_lost_socket() {
            return Prepared::LostSocket;
        }
        if !serves_sockets {
            state.send_waiting(now);
            // It checks again whether the program has closed the device's descriptors.
            return Prepared::Sleep(Some(now + 5 * REPORT_INTERVAL), None);
        }
        let next = state.before_sleep(now);
        Prepared::Sleep(next, Some(self.begin_socket_wait(state)))
    }

    /// Receives packets for a thread that was woken, and the rest of a message whose first packets have just arrived.
    ///
    /// The rest usually arrives within microseconds. To sleep until then and to acknowledge the first part takes
    /// longer. The lock is free between the attempts.
    pub(crate) fn receive_for<'a>(&self, awaited: &'a Awaited<'a>, mut intent: Intent<'a>) {
        let at_descriptor = matches!(intent, Intent::AtDescriptor(_));
        let mut look = None;
        while !self.step(|state| {
            let mut at = now();
            let look = look.get_or_insert_with(|| MessageLook::begin(at));
            let found = loop {
                if look.is_over(at) {
                    intent = Intent::EndOfLook(awaited);
                }
                let outcome = state.step(at, intent);
                if outcome.found != Found::Part {
                    break outcome.found;
                }
                intent = Intent::RestOfMessage(awaited);
                if outcome.arrived == 0 {
                    look.pause(&self.looks.message);
                    return false;
                }
                look.last_arrival = at;
                at = now();
            };
            if look.pause == Some(LOOK) {
                let is_whole = !matches!(intent, Intent::EndOfLook(_));
                self.looks.message.note(is_whole);
            }
            if at_descriptor && found == Found::Nothing {
                state.prepare_descriptor(at, Intent::BeforeDescriptor(awaited));
            }
            self.schedule_unsent(state, at);
            true
        }) {
            std::hint::spin_loop();
        }
    }

    /// Looks at the shared-memory rings for a short time, because a reply through a ring often arrives before
    /// a thread is asleep. Returns whether the awaited object is ready.
    fn poll_shortcuts(&self, awaited: &Awaited<'_>) -> bool {
        let mut look = None;
        loop {
            let result = self.step(|state| {
                if !state.has_shortcuts() {
                    return Some(awaited.is_ready(state));
                }
                let now = now();
                let (until, time) = *look.get_or_insert_with(|| {
                    let time = self.looks.rings.time();
                    (now + time, time)
                });
                let is_ready = state.step(now, Intent::BeforeSleep(awaited)).found == Found::Ready;
                if is_ready {
                    self.schedule_unsent(state, now);
                } else if now < until {
                    return None;
                }
                if !time.is_zero() {
                    self.looks.rings.note(is_ready);
                }
                Some(is_ready)
            });
            if let Some(is_ready) = result {
                return is_ready;
            }
            std::hint::spin_loop();
        }
    }

    /// Waits for packets, a wake-up, others or the deadline. Returns what is ready, and how many of the first descriptors are the
    /// device's.
    fn wait_with(
        &self,
        sleeper: &Sleeper<'_>,
        others: &[Interest<'_>],
        serves_sockets: bool,
        now: Instant,
        due: Option<Instant>,
    ) -> io::Result<(Ready, usize)> {
        let next = earliest(due, sleeper.next_check(now));
        let timeout = next.map(|at| at.saturating_duration_since(now));
        let poll_sources = self.poll_sources();
        let mut interests: Vec<_> = sleeper.interest().into_iter().collect();
        if serves_sockets {
            poll_sources.add_to(&mut interests);
        }
        let own = interests.len();
        interests.extend(others);
        Ok((wait(&interests, timeout)?, own))
    }
}

/// For a program that polls an empty queue and waits at a descriptor next.
pub(crate) fn prepare_descriptor(state: &mut LaneState, queue: &CompletionQueue) -> Found {
    if !state.has_shortcuts() {
        return Found::Nothing;
    }
    state.prepare_descriptor(now(), Intent::Poll(queue))
}

/// What a call of the engine leaves to do when the lock is free.
#[derive(Clone, Copy)]
pub(crate) struct AfterCall {
    /// When the lane's thread must be awake.
    pub(crate) next: Option<Instant>,
    /// Whether the call waits for packets to this device.
    pub(crate) has_sent_to_self: bool,
}

/// What a poll that made progress has found.
pub(crate) enum Polled {
    Result(Option<Completion>),
    /// Nothing at this time, and the program waits at a descriptor next: [`Lane::look_before_wait`].
    LookAgain(Instant),
}

/// What a thread does that wants to sleep.
enum Prepared<'s> {
    IsReady,
    LostSocket,
    /// Sleeps, at most until the time, perhaps on the sockets.
    Sleep(Option<Instant>, Option<SocketWait<'s>>),
}

/// How a thread that was woken by the first packets of a message looks for the others.
struct MessageLook {
    begin: Instant,
    last_arrival: Instant,
    /// How long to look for the next packet, once one was not there at once.
    pause: Option<Duration>,
}

impl MessageLook {
    fn begin(now: Instant) -> Self {
        Self {
            begin: now,
            last_arrival: now,
            pause: None,
        }
    }

    fn pause(&mut self, look: &Look) {
        self.pause.get_or_insert_with(|| look.time());
    }

    fn is_over(&self, now: Instant) -> bool {
        self.pause
            .is_some_and(|pause| now > self.last_arrival + pause)
            || now > self.begin + MAX_MESSAGE_LOOKS * LOOK
    }
}

impl CheckedDevice for Lane {
    /// The end of a step checks what has happened. A thread that still runs may hold the lock.
    fn try_check(&self) {
        self.try_step(|_| ());
    }
}

#[cfg(test)]
impl Lane {
    /// The state, to look at it or to change it without effects.
    pub(crate) fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

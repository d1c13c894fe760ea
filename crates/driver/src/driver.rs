//! One open device: what application threads call.

#[cfg(test)]
pub(crate) mod connected_end;
mod groups;
mod poll_and_sleep;
#[cfg(feature = "async")]
pub(crate) mod poll_for_tasks;
mod post_shared_receive;
#[cfg(feature = "async")]
mod task_descriptor;
#[cfg(feature = "async")]
mod task_timer;
mod wait_situations;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};
use std::time::Instant;

use cm::Manager;
use engine::{AsyncEvent, CompletionQueue, Counters, Device, Id, Notify, Now};
use net::poll::Waker;
use net::sharing::ServiceError;
use net::socket::SocketError;
use net::socket::interface::Monitor;
use net::watcher::Watcher;
use wire::{Gid, Qpn};

use crate::blocked_calls::{self, BlockedCall, Situation};
use crate::check::CheckedDevice;
use crate::clock::now;
use crate::cm_events::Subscriber;
use crate::devices::device;
use crate::diagnostics::{self, Misuse, Problem, Reported, Reporter};
use crate::fabric::{Alarm, Port, here};
use crate::lane::calls;
use crate::lane::replies::Unanswered;
use crate::lane::siblings::Siblings;
use crate::lane::state::{Intent, LaneState};
use crate::lane::thread::Thread;
use crate::lane::{Awaited, CHECKED_SLOWDOWN, Lane};
use crate::lanes::FirstLane;
use crate::options::{OpenError, OpenOptions};
use crate::turn::{Looks, Turn, Yielding};
use crate::waiting::notifier::Notifier;
use crate::waiting::packet_wakeups::AtReadable;
use crate::waiting::wait_set::WaitSet;

use groups::Groups;

pub use poll_and_sleep::PolledQueue;
#[cfg(feature = "async")]
pub use poll_for_tasks::{TaskPoll, TaskWakeups};
pub use post_shared_receive::PostedQueue;
#[cfg(feature = "async")]
pub use {task_descriptor::TaskDescriptor, task_timer::TaskTimer};

/// Whether this process has ever opened a device.
static OPENED: AtomicBool = AtomicBool::new(false);

/// A handle of an open device: that of the whole device, or of one of its completion queues and the queue pairs that use it.
/// The device closes when the last one is dropped.
pub struct Driver {
    opened: Arc<Opened>,
    /// Which group it belongs to. That of a completion queue is decided when its first queue pair is created.
    group: OnceLock<usize>,
    /// The notifier of the completion queue's channel, which may end before this.
    channel: OnceLock<Weak<Notifier>>,
}

/// What the handles of an open device share.
struct Opened {
    /// The first lane.
    lane: Arc<Lane>,
    device: net::socket::interface::Device,
    gids: Vec<Gid>,
    options: OpenOptions,
    /// Whether this device is registered with the watcher; `None` if peers get no exit notices.
    exit_announced: Option<Once>,
    /// The run of the simulated host that opened it, if it is simulated.
    run: Option<u64>,
    groups: Groups,
    /// `None` if something else serves the first lane.
    _thread: Option<Thread>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Driver").field(&self.device().name).finish()
    }
}

impl Driver {
    /// Opens a device by its name, by the name of its interface, or by one of its addresses.
    pub fn open(name: &str, options: &OpenOptions) -> Result<Arc<Self>, OpenError> {
        Self::open_device(device(name)?, options)
    }

    /// Opens a device.
    pub fn open_device(
        device: net::socket::interface::Device,
        options: &OpenOptions,
    ) -> Result<Arc<Self>, OpenError> {
        let options = &*here(|machine| machine.adapt(options));
        let options = &*with_explanations(options);
        let lane = Self::create_lane(&device, options, None, Arc::default())?;
        if let Some(check) = lane.step(|state| state.check().cloned()) {
            let device: Arc<dyn CheckedDevice> = Arc::clone(&lane) as _;
            check.set_device(Arc::downgrade(&device));
        }
        let thread = if lane.alarm.serves(Arc::downgrade(&lane) as _) {
            None
        } else {
            if options.explain || options.check.is_some() {
                blocked_calls::enable();
            }
            Some(Thread::start(Arc::clone(&lane)).map_err(OpenError::of_system)?)
        };
        OPENED.store(true, Ordering::Relaxed);
        Ok(Arc::new(Self::over(lane, device, options, thread)))
    }

    fn over(
        lane: Arc<Lane>,
        device: net::socket::interface::Device,
        options: &OpenOptions,
        thread: Option<Thread>,
    ) -> Self {
        lane.siblings.add(&lane);
        let groups = Groups::new(&lane, options);
        let opened = Arc::new_cyclic(|opened| {
            groups.relieve(&lane, opened);
            Opened {
                lane,
                gids: device.gids.iter().map(|entry| entry.gid).collect(),
                device,
                exit_announced: options.watcher.then(Once::new),
                run: here(|machine| machine.run()),
                options: options.clone(),
                groups,
                _thread: thread,
            }
        });
        Self {
            opened,
            group: OnceLock::from(0),
            channel: OnceLock::new(),
        }
    }

    /// A lane without a thread; `first` is the first one, if this is another.
    fn create_lane(
        device: &net::socket::interface::Device,
        options: &OpenOptions,
        first: Option<&FirstLane>,
        siblings: Arc<Siblings>,
    ) -> Result<Arc<Lane>, OpenError> {
        let part = first.map(|first| first.part);
        let sockets = Port::open(device, options.shortcut, part)?;
        let poll_sources = sockets.poll_sources().map_err(OpenError::of_system)?;
        let services = sockets.services();
        let watches_interfaces = first.is_none() && sockets.is_real();
        let waker = Arc::new(Waker::new().map_err(OpenError::of_system)?);
        let alarm = sockets.alarm();
        let exits = sockets.exits();
        let mut state = LaneState::new(device, sockets, options, first)?;
        let check = state.check().cloned();
        let common = Arc::clone(state.common());
        let lane = Arc::new(Lane {
            siblings,
            common: Arc::clone(&common),
            objects: Arc::clone(state.device_mut().objects()),
            changed_without_lock: state.changed_without_lock(),
            reporter: Reporter::new(
                device,
                Reported::new(options.explain),
                options.faults.as_deref(),
            ),
            check,
            services: Mutex::new(services),
            state: Mutex::new(state),
            poll_sources: Mutex::new(Arc::new(poll_sources)),
            generation: net::fork::generation(),
            in_child: OnceLock::new(),
            alarm: alarm.unwrap_or_else(|| Arc::clone(&waker) as Arc<dyn Alarm>),
            waker,
            exits,
            monitor: watches_interfaces.then(Monitor::new).and_then(Result::ok),
            turn: Turn::new(
                now(),
                options.check.as_ref().map_or(1, |_| CHECKED_SLOWDOWN),
            ),
            yielding: Yielding::default(),
            looks: Looks::default(),
            unanswered: Unanswered::default(),
            stopping: AtomicBool::new(false),
            relief: OnceLock::new(),
            wants_relief: AtomicBool::new(false),
        });
        Ok(lane)
    }

    /// Whether this process has ever opened a device.
    #[must_use]
    pub fn was_opened() -> bool {
        OPENED.load(Ordering::Relaxed)
    }

    /// The device's description at the time it was opened.
    #[must_use]
    pub fn device(&self) -> &net::socket::interface::Device {
        &self.opened.device
    }

    /// Whether the device belongs to what this thread runs on: this machine, or one run of a simulated host.
    pub(crate) fn is_here(&self) -> bool {
        self.opened.run == here(|machine| machine.run())
    }

    /// The virtual address for a region of `length` bytes at `address`: another one in a simulation, where it must be the
    /// same in every run.
    #[must_use]
    pub fn virtual_address(&self, address: u64, length: usize) -> u64 {
        here(|machine| machine.virtual_address(address, length))
    }

    /// Reports that the program has looked at its memory, perhaps for data of a peer.
    ///
    /// # Panics
    /// In a simulation, if the program does nothing else: the clock stands still meanwhile.
    pub fn note_memory_read(&self) {
        here(|machine| machine.note_idle_poll());
    }

    /// Reports what a task waits for: a simulation that hangs says so.
    #[cfg(feature = "async")]
    pub fn note_wait(&self, what: impl Fn() -> String) {
        here(|machine| machine.note_wait(&what));
    }

    /// The GID table; an all-zero entry is empty.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        &self.opened.gids
    }

    /// Calls the engine and transmits the resulting packets on this thread.
    ///
    /// # Panics
    /// If `work` uses a device otherwise than by its argument. The lock is held meanwhile, and is not given twice.
    pub fn call<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if self.is_inherited() {
            return self.call_in_child(work);
        }
        let now = Now::read_by(now);
        let (lane, result, after) = self.step(|lane, state| {
            state.begin_call();
            let result = calls::run(|| work(state.device_mut()));
            (lane, result, state.end_call(&now))
        });
        lane.finish_call(&now, after);
        result
    }

    /// As [`call`](Self::call), for work that only posts to send queues. Usually it is executed within the device, and nothing is left to
    /// do.
    #[inline]
    pub fn post<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if self.is_inherited() {
            return self.call_in_child(work);
        }
        let now = Now::read_by(now);
        // Returned by several functions, it would be copied by each.
        let mut result = None;
        let (lane, after) = self.step(|lane, state| {
            state.begin_call();
            // What is executed within the device is not transmitted, where this is decided otherwise.
            state.update_shortcut(&now);
            result = Some(calls::run(|| work(state.device_mut())));
            let is_done = now.known().is_none() && state.is_quiet();
            let waits = lane.note_post(state);
            (lane, (!is_done).then(|| (state.end_call(&now), waits)))
        });
        match after {
            Some((after, waits)) => {
                lane.finish_call(&now, after);
                if let Some(channel) = waits {
                    lane.look_after_replies(&channel);
                }
            }
            // No deadline has changed: only what depends on the time sets one.
            None => lane.note_change_without_lock(),
        }
        result.expect("the step has run")
    }

    #[cold]
    fn call_in_child<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        let mut device = self.opened.lane.lock_in_child();
        calls::run(|| work(&mut device))
    }

    /// Calls the engine to modify or destroy a queue pair. Deferred acknowledgements are sent first, because
    /// the queue pair may not send them any more.
    pub fn call_after_flush<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if !self.is_inherited() {
            self.step(|_, state| state.send_waiting(now()));
        }
        self.call(work)
    }

    /// Sends deferred responses and the packets that a fault holds back. For a process that exits without
    /// closing the device.
    pub fn flush_before_exit(&self) {
        if !self.is_inherited() {
            self.for_lanes(|lane| lane.step(|state| state.flush_before_exit(now())));
        }
    }

    /// Calls the engine with an operation that has nothing to send, such as posting a receive.
    ///
    /// Responses stay deferred, because a receive is usually followed by a reply.
    #[inline]
    pub fn call_without_transmit<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        if self.is_inherited() {
            return self.call_in_child(work);
        }
        let mut result = None;
        let lane = self.step(|lane, state| {
            result = Some(calls::run(|| work(state.device_mut())));
            if state.device_mut().has_events() {
                state.dispatch_events();
            }
            lane
        });
        // No other call may follow.
        lane.note_change_without_lock();
        result.expect("the step has run")
    }

    /// Starts to send exit notices to peers when this process dies. Called at the first use of the connection
    /// manager. If the watcher cannot be started, there are none.
    pub(crate) fn announce_exit(&self) {
        let Some(announced) = &self.opened.exit_announced else {
            return;
        };
        if self.is_inherited() {
            return;
        }
        announced.call_once(|| {
            // Without the lock, because starting a process takes long.
            if let Ok(watcher) = Watcher::of_process() {
                self.opened.lane.step(|state| state.announce_exit(&watcher));
            }
        });
    }

    /// Requests one notification for the next completion, or for one that is in the queue already and of which no notification tells. If the program awaits it outside of the library,
    /// the lane's thread serves the sockets at once, even after a poll.
    pub fn arm(&self, queue: Id<CompletionQueue>, notify: Notify) {
        if self.is_inherited() {
            return;
        }
        let (lane, outside) = self.step(|lane, state| {
            let outside = state.arm(queue, notify);
            state.dispatch_events();
            (lane, outside)
        });
        if outside {
            lane.end_standby(now());
        }
    }

    /// Calls the connection manager and transmits the resulting packets on this thread. Returns `None` in a
    /// forked child.
    pub fn call_manager<R>(&self, work: impl FnOnce(&mut Manager, Instant) -> R) -> Option<R> {
        if self.is_inherited() {
            return None;
        }
        let now = now();
        // A disconnection must not overtake acknowledgements that other lanes have deferred.
        for lane in self.opened.groups.own_lanes() {
            lane.step(|state| state.send_waiting(now));
        }
        let lane = &self.opened.lane;
        let (result, next) = lane.step(|state| {
            state.note_call();
            let result = calls::run(|| work(state.manager(), now));
            state.transmit(now);
            update_poll_sources(lane, state);
            (result, state.next_deadline())
        });
        lane.wake_thread_before(next);
        Some(result)
    }

    /// Sets or removes the subscriber to the events of an id.
    pub(crate) fn subscribe(&self, id: cm::Id, subscriber: Option<Subscriber>) {
        if !self.is_inherited() {
            (self.opened.lane).step(|state| state.cm_events().subscribe(id, subscriber));
        }
    }

    /// Reserves a service at one of the device's addresses, or at all.
    pub(crate) fn claim(&self, at: Option<IpAddr>, service: u64) -> Result<(), ServiceError> {
        if self.is_inherited() {
            Ok(())
        } else {
            self.opened.lane.services().claim(at, service)
        }
    }

    /// Releases a service.
    pub(crate) fn release(&self, at: Option<IpAddr>, service: u64) {
        if !self.is_inherited() {
            self.opened.lane.services().release(at, service);
        }
    }

    /// Runs `work` while the device does not access memory.
    ///
    /// # Panics
    /// If `work` uses a device.
    pub fn with_device_locked<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.is_inherited() {
            // No device of this process accesses it.
            return work();
        }
        let objects = &self.opened.lane.objects;
        objects.without_memory_access(|| calls::run(work))
    }

    /// Sets the notifier and the token for notifications of a completion queue.
    pub fn set_notifier(&self, queue: Id<CompletionQueue>, notifier: &Arc<Notifier>, token: u64) {
        if self.is_inherited() {
            return;
        }
        let _ = self.channel.set(Arc::downgrade(notifier));
        if let Some(group) = self.group.get() {
            self.enter_group(*group);
        }
        let notifier = Arc::clone(notifier);
        self.opened.lane.common.set_channel(queue, notifier, token);
    }

    /// Sets the wait set that completions of a queue wake.
    pub fn set_wait_set(&self, queue: Id<CompletionQueue>, waiting: &Arc<WaitSet>) {
        if !self.is_inherited() {
            self.opened
                .lane
                .common
                .set_wait_set(queue, Arc::clone(waiting));
        }
    }

    /// Removes the notifier and the wait set of a completion queue.
    pub fn remove_notifier(&self, queue: Id<CompletionQueue>) {
        if !self.is_inherited() {
            // Wakers of tasks are dropped without the lock: they run code of the executor.
            let (notifier, waiting) = self.step(|_, state| state.remove_notifier(queue));
            drop(waiting);
            if let Some(notifier) = notifier {
                // The channel may be served by another lane than the queue.
                self.opened.lane.siblings.for_each(|lane| {
                    lane.step(|state| state.packet_wakeups.end_promise(&notifier));
                });
            }
        }
    }

    /// Enables packet wake-ups for a program that accepts a readable descriptor without a notification.
    pub fn offer_packet_wakeups(&self, notifier: &Arc<Notifier>) {
        if !self.is_inherited() && notifier.may_accept_anything() {
            let expected = AtReadable::Anything;
            self.step_of(notifier, |state| {
                state.offer_packet_wakeups(notifier, expected);
            });
        }
    }

    /// Enables packet wake-ups for a program that has taken a notification from a non-blocking channel. It may
    /// treat a readable descriptor without a notification as an error, so packets that cause none count as an
    /// extra one.
    pub fn promise_packet_wakeups(
        &self,
        notifier: &Arc<Notifier>,
        is_nonblocking: impl Fn() -> bool,
    ) {
        if !self.is_inherited() && notifier.may_promise() && is_nonblocking() {
            notifier.note_promised(true);
            let expected = AtReadable::Notification;
            self.step_of(notifier, |state| {
                state.offer_packet_wakeups(notifier, expected);
            });
        }
    }

    /// Ends packet wake-ups of a program that does not accept them any more.
    pub fn withdraw_packet_wakeups(&self, notifier: &Arc<Notifier>) {
        if !self.is_inherited() && notifier.has_packets() {
            self.step_of(notifier, |state| state.packet_wakeups.withdraw(notifier));
        }
    }

    /// The oldest notification of a channel. If packets wake its program, receives packets first.
    pub fn take_notification(&self, notifier: &Arc<Notifier>) -> Option<u64> {
        // What it takes from now on may get replies.
        self.lane_of(notifier).unanswered.clear();
        if let Some(oldest) = notifier.take() {
            return Some(oldest);
        }
        if self.is_inherited() || !notifier.has_packets() {
            return None;
        }
        let lane = self.lane_of(notifier);
        let oldest = notifier.take_after(|| {
            let awaited = Awaited::Notification(notifier);
            lane.receive_for(&awaited, Intent::AtDescriptor(&awaited));
            lane.turn.note_poll(now());
        });
        if oldest.is_none() {
            self.step_of(notifier, |state| {
                state.packet_wakeups.note_empty_poll(notifier);
            });
        }
        oldest
    }

    /// Joins a multicast group, for one more queue pair.
    pub fn join(&self, group: Gid) -> Result<(), SocketError> {
        self.step(|lane, state| {
            state.port().join(group)?;
            update_poll_sources(lane, state);
            Ok(())
        })
    }

    /// Leaves a multicast group, for one queue pair.
    pub fn leave(&self, group: Gid) {
        if !self.is_inherited() {
            self.step(|lane, state| {
                state.port().leave(group);
                update_poll_sources(lane, state);
            });
        }
    }

    /// The next asynchronous event.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        if self.is_inherited() {
            return None;
        }
        let now = now();
        self.step(|lane, state| {
            state.serve(now);
            lane.schedule_unsent(state, now);
            state.poll_event()
        })
    }

    /// Removes the events of a destroyed object.
    pub fn forget_events(&self, gone: impl Fn(&AsyncEvent) -> bool) {
        if !self.is_inherited() {
            self.opened.lane.common.forget_events(gone);
        }
    }

    /// The notifier for asynchronous events.
    pub fn event_notifier(&self) -> Option<Arc<Notifier>> {
        if self.is_inherited() {
            None
        } else {
            Some(Arc::clone(self.opened.lane.common.event_notifier()))
        }
    }

    /// The next asynchronous event. Sleeps until there is one or the deadline passes.
    pub fn wait_event(&self, until: Option<Instant>) -> Option<AsyncEvent> {
        let notifier = self.event_notifier()?;
        let mut listed = None;
        loop {
            if let Some(event) = self.poll_event() {
                return Some(event);
            }
            if until.is_some_and(|at| at <= now()) {
                return None;
            }
            listed.get_or_insert_with(|| {
                BlockedCall::begin("Context::wait_event", || {
                    || Situation::without_problem("The device has no asynchronous event.")
                })
            });
            self.sleep(&Awaited::Notification(&notifier), until);
        }
    }

    /// Whether packets can pass through the port: an interface is up, and no injected fault keeps the port down. In a
    /// forked child, what was so when the device was opened.
    pub fn is_port_active(&self) -> bool {
        if self.is_inherited() {
            self.opened.device.state == net::socket::interface::LinkState::Active
        } else {
            self.step(|_, state| state.is_port_active())
        }
    }

    /// The capture file, if packets are captured and the capture has not ended early.
    pub fn capture_path(&self) -> Option<PathBuf> {
        if self.is_inherited() {
            None
        } else {
            self.step(|_, state| state.capture_path())
        }
    }

    /// The faults that no packet has had so far.
    pub fn unused_faults(&self) -> Vec<String> {
        if self.is_inherited() {
            Vec::new()
        } else {
            self.step(|_, state| state.unused_faults())
        }
    }

    /// The device's counters.
    pub fn counters(&self) -> Counters {
        if self.is_inherited() {
            return Counters::default();
        }
        let mut counters = Counters::default();
        self.for_lanes(|lane| counters += lane.step(|state| *state.device_mut().counters()));
        counters
    }

    /// Whether this is the copy in a forked child. The device stays with the parent.
    pub fn is_inherited(&self) -> bool {
        self.opened.lane.is_inherited()
    }

    /// Reports why a call fails, if explanations are enabled.
    pub fn report_misuse(&self, queue_pair: Option<Qpn>, misuse: Misuse) {
        if let Some(reporter) = &self.opened.lane.reporter
            && reporter.explains_everything()
            && !self.is_inherited()
        {
            let problem = Problem::Misuse(queue_pair, misuse);
            self.opened.lane.report(reporter, vec![problem]);
        }
    }

    /// An unpredictable number.
    pub fn random(&self) -> u64 {
        let mut number = [0; 8];
        match here(|machine| machine.fill_random(&mut number)) {
            Ok(()) => u64::from_le_bytes(number),
            Err(_) => self.opened.lane.turn.since_open(now()).as_nanos() as u64,
        }
    }
}

/// The check of a program also explains failures, unless the environment disables explanations. A simulated program has the
/// options that its world gives it.
fn with_explanations(options: &OpenOptions) -> Cow<'_, OpenOptions> {
    let is_simulated = here(|machine| machine.run()).is_some();
    if options.check.is_none() || options.explain || is_simulated || diagnostics::is_disabled() {
        return Cow::Borrowed(options);
    }
    Cow::Owned(OpenOptions {
        explain: true,
        ..options.clone()
    })
}

/// Replaces the poll sources if the set of sockets has changed, and wakes the lane's thread. Threads that sleep now use the old ones.
fn update_poll_sources(lane: &Lane, state: &mut LaneState) {
    if !state.port().poll_sources_changed() {
        return;
    }
    state.renew_packet_wakeups();
    // If this fails, a new group is only polled together with other sockets.
    if let Ok(poll_sources) = state.port().poll_sources() {
        *lane
            .poll_sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(poll_sources);
        lane.waker.wake();
    }
}

#[cfg(test)]
impl Driver {
    /// An open device that no thread serves.
    pub(crate) fn without_thread(address: &str) -> Arc<Self> {
        Self::without_thread_with(address, &OpenOptions::default())
    }

    /// The same with options.
    pub(crate) fn without_thread_with(address: &str, options: &OpenOptions) -> Arc<Self> {
        let device = device(address).expect("a loopback address");
        let lane = Self::create_lane(&device, options, None, Arc::default()).expect("it is free");
        Arc::new(Self::over(lane, device, options, None))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::driver::connected_end::End;
    use crate::turn::Duty;

    /// A message arrives that a program awaits outside of the library. `receive` receives it; the acknowledgement waits
    /// for the next call of the program, which may be late.
    fn wakes_the_thread(
        [left, right]: [&str; 2],
        prepare: impl Fn(&End, &Arc<Notifier>),
        receive: impl Fn(&End, &Arc<Notifier>),
    ) {
        let (here, there) = (End::open(left), End::without_thread(right));
        here.connect(&there);
        there.connect(&here);
        let channel = there.channel();
        prepare(&there, &channel);
        there.driver.arm(there.completions, Notify::Any);
        here.send_to(&there);
        there.takes_wake_up();
        while !there.driver.lane().lock().has_unsent() {
            assert!(!there.takes_wake_up(), "nothing has arrived yet");
            receive(&there, &channel);
        }
        assert!(there.takes_wake_up(), "it sends the acknowledgement");
    }

    #[test]
    fn a_poll_for_events_that_defers_an_acknowledgement_wakes_the_thread() {
        let receive = |end: &End, _: &Arc<Notifier>| assert_eq!(end.driver.poll_event(), None);
        wakes_the_thread(["127.58.94.1", "127.58.94.2"], |_, _| {}, receive);
    }

    #[test]
    fn a_poll_for_notifications_that_defers_an_acknowledgement_wakes_the_thread() {
        wakes_the_thread(
            ["127.58.94.6", "127.58.94.7"],
            |end, channel| end.driver.offer_packet_wakeups(channel),
            |end, channel| _ = end.driver.take_notification(channel),
        );
    }

    #[test]
    fn a_sleep_that_defers_an_acknowledgement_wakes_the_thread() {
        let receive = |end: &End, channel: &Arc<Notifier>| {
            let awaited = Awaited::Notification(channel);
            end.driver.sleep(&awaited, None);
        };
        wakes_the_thread(["127.58.94.8", "127.58.94.9"], |_, _| {}, receive);
    }

    /// Programs tell peers the addresses of their variables.
    #[test]
    fn a_region_of_a_real_device_has_its_own_address() {
        let driver = Driver::without_thread("127.58.94.15");
        assert_eq!(
            driver.virtual_address(0x7f01_2345_6000, 64),
            0x7f01_2345_6000
        );
    }

    #[test]
    fn a_call_within_a_call_panics_and_the_device_stays_usable() {
        let end = End::without_thread("127.58.94.13");
        let driver = &end.driver;
        let nested: [&dyn Fn(); 4] = [
            &|| driver.call(|_| driver.call(|_| ())),
            &|| driver.call_without_transmit(|_| driver.call_after_flush(|_| ())),
            &|| driver.call(|_| _ = driver.poll_event()),
            &|| driver.with_device_locked(|| driver.call(|_| ())),
        ];
        for nested in nested {
            let panicked = catch_unwind(AssertUnwindSafe(nested)).expect_err("a clear error");
            let message = panicked.downcast_ref::<&str>().expect("a sentence");
            assert!(message.contains("within a call"), "{message}");
            driver.call(|_| ());
        }
    }

    /// It sleeps on the sockets that there were before.
    #[test]
    fn the_thread_is_woken_when_the_sockets_change() {
        let end = End::without_thread("127.58.94.10");
        let group = Gid::from(IpAddr::from([239, 1, 2, 4]));
        end.takes_wake_up();
        end.driver.join(group).expect("a group");
        assert!(end.takes_wake_up());
        end.driver.join(group).expect("a group");
        end.driver.leave(group);
        assert!(!end.takes_wake_up(), "one queue pair is left");
        end.driver.leave(group);
        assert!(end.takes_wake_up());
    }

    #[cfg(feature = "async")]
    #[test]
    fn a_call_wakes_a_thread_that_would_sleep_beyond_the_next_deadline() {
        let end = End::without_thread("127.58.94.11");
        end.takes_wake_up();
        let deadline = now() + std::time::Duration::from_secs(3600);
        let waker = std::task::Waker::noop();
        let mut timer = TaskTimer::new(&end.driver);
        timer.wake_at(deadline, waker);
        assert!(end.takes_wake_up(), "a timer");
        end.driver.call(|_| ());
        assert!(end.takes_wake_up(), "a call of the engine");
        end.driver.call_manager(|_, _| ());
        assert!(end.takes_wake_up(), "a call of the connection manager");
        end.driver.lane().turn.plan_sleep(Some(now()));
        end.driver.call(|_| ());
        end.driver.call_manager(|_, _| ());
        assert!(!end.takes_wake_up(), "it wakes up earlier");
    }

    /// Otherwise nobody receives packets until the next timer.
    #[test]
    fn a_thread_that_ends_its_sleep_gives_the_sockets_back() {
        let end = End::without_thread("127.58.94.3");
        let notifier = Notifier::new().expect("a descriptor");
        notifier.notify(1);
        end.takes_wake_up();
        let awaited = Awaited::Notification(&notifier);
        assert!(!end.driver.sleep(&awaited, None));
        assert!(!end.takes_wake_up(), "the lane's thread has the sockets");
        let _ = end.driver.lane().turn.fall_asleep(Duty::Timers, now());
        assert!(!end.driver.sleep(&awaited, None));
        assert!(end.takes_wake_up());
    }

    #[test]
    fn a_thread_that_stands_by_is_woken_when_a_program_waits_at_a_descriptor() {
        let end = End::without_thread("127.58.94.4");
        let _channel = end.channel();
        end.takes_wake_up();
        end.driver.arm(end.completions, Notify::Any);
        assert!(!end.takes_wake_up(), "it watches the sockets");
        let duty = Duty::Standby(now());
        let _ = end.driver.lane().turn.fall_asleep(duty, now());
        end.driver.arm(end.completions, Notify::Any);
        assert!(end.takes_wake_up());
    }

    #[cfg(feature = "async")]
    #[test]
    fn a_cancelled_task_timer_is_removed() {
        let end = End::without_thread("127.58.94.5");
        let deadline = now() + std::time::Duration::from_secs(3600);
        let waker = std::task::Waker::noop();
        let mut timer = TaskTimer::new(&end.driver);
        timer.wake_at(deadline, waker);
        assert_eq!(
            end.driver.lane().lock().task_timers().next(),
            Some(deadline)
        );
        drop(timer);
        assert_eq!(end.driver.lane().lock().task_timers().next(), None);
    }
}

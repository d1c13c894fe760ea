//! The thread of a lane. It serves the timers, and the sockets while no application thread does.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use net::poll::{Interest, Ready, wait};
use net::socket::interface::Monitor;
use net::thread_sanitizer::Unobserved;

use crate::clock::{self, earliest, now};
use crate::fabric::Served;
use crate::lane::Lane;
use crate::lane::state::{Intent, LaneState};
use crate::times::{LONG, LOOK, RECHECK, STANDBY};
use crate::turn::{Duty, PollBackoff, SocketWait};

/// The thread. Dropping this stops it.
pub(crate) struct Thread {
    lane: Arc<Lane>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Returns when the thread runs. A thread needs memory to start, and the C library ends a process that has none
    /// for it; a program may limit its memory as soon as it has the device.
    pub(crate) fn start(lane: Arc<Lane>) -> io::Result<Self> {
        let theirs = Arc::clone(&lane);
        let running = Arc::new(Barrier::new(2));
        let reached = Arc::clone(&running);
        let handle = Builder::new().name("roci".to_owned()).spawn(move || {
            let _unobserved = Unobserved::begin();
            reached.wait();
            serve(&theirs);
        })?;
        running.wait();
        Ok(Self {
            lane,
            handle: Some(handle),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.lane.is_inherited() {
            // The thread exists only in the parent, so there is nothing to join.
            std::mem::forget(self.handle.take());
            return;
        }
        self.lane.stopping.store(true, Ordering::Release);
        self.lane.waker.wake();
        // A waker that this thread calls may drop the last handle of the device. The thread ends when the waker returns.
        let other = |handle: &JoinHandle<()>| handle.thread().id() != thread::current().id();
        if let Some(handle) = self.handle.take().filter(other) {
            let _ = handle.join();
        }
    }
}

fn serve(lane: &Lane) {
    net::signal::unblock_faults();
    let mut backoff = PollBackoff::default();
    let mut woken = Woken::default();
    let mut duty = Duty::Everything;
    let mut load = Load::default();
    while !lane.stopping.load(Ordering::Acquire) {
        let now = now();
        if load.is_too_high(now) {
            load.note_relief(ask_for_relief(lane));
        }
        if lane.wants_relief.swap(false, Ordering::AcqRel)
            && let Some(relief) = lane.relief.get()
        {
            relief.move_asked();
        }
        let next = lane.turn.duty(now, woken.by_packets, &mut backoff);
        let before = std::mem::replace(&mut duty, next);
        let mut progress = Progress::default();
        match duty {
            Duty::Standby(_) if matches!(before, Duty::Standby(_)) => backoff.lengthen(),
            Duty::Standby(_) => {}
            Duty::Everything | Duty::Timers => match try_progress(lane, duty, &mut backoff, now) {
                Some(made) => {
                    progress = made;
                    backoff.learn(woken.by_packets, progress.arrived);
                    if progress.arrived > 0 && !spin_on_rings(lane, &mut progress, now) {
                        continue;
                    }
                }
                None => duty = Duty::Standby(now + backoff.time()),
            },
        }
        if let Duty::Standby(until) = duty {
            // No wake-up is needed: the thread checks everything after this short time.
            lane.turn.plan_sleep(Some(now));
            progress.next = Some(until);
        }
        if progress.socket_lost {
            pause();
        }
        woken = load.measure_sleep(|| sleep(lane, duty, now, progress.next));
        drop(progress.wait);
        if woken.by_interfaces {
            check_interfaces(lane);
        }
        if woken.by_exits {
            let woken_at = clock::now();
            lane.step(|state| state.port().handle_exits(woken_at));
        }
    }
}

/// Asks to move a group of queues to another lane. Returns whether there is one.
fn ask_for_relief(lane: &Lane) -> bool {
    let Some(relief) = lane.relief.get() else {
        return false;
    };
    let busiest = lane.step(LaneState::busiest_groups);
    let is_found = busiest.into_iter().any(|group| relief.ask(group));
    lane.wants_relief.fetch_or(is_found, Ordering::AcqRel);
    is_found
}

/// How busy the thread is. Packets for queue pairs that no program thread serves keep it busy.
#[derive(Default)]
struct Load {
    /// The period that is measured, and how long the thread slept in it.
    begin: Option<Instant>,
    asleep: Duration,
    /// How many periods in a row were busy, and how many are too many.
    busy: u32,
    too_many: u32,
}

impl Load {
    /// Some hundred packets arrive in this time if the thread is busy.
    const PERIOD: Duration = LONG.saturating_mul(5);

    /// To open a lane takes about as long as these periods.
    const MIN_BUSY_PERIODS: u32 = 2;

    /// To look for a group takes some microseconds, more with thousands of queue pairs: then once in some seconds.
    const MAX_BUSY_PERIODS: u32 = 1024;

    /// Whether the thread has been awake for more than three quarters of several periods.
    fn is_too_high(&mut self, now: Instant) -> bool {
        let begin = *self.begin.get_or_insert(now);
        let period = now.saturating_duration_since(begin);
        if period < Self::PERIOD {
            return false;
        }
        let is_busy = self.asleep * 4 < period;
        self.busy = if is_busy { self.busy + 1 } else { 0 };
        (self.begin, self.asleep) = (Some(now), Duration::ZERO);
        self.busy >= self.too_many.max(Self::MIN_BUSY_PERIODS)
    }

    fn note_relief(&mut self, is_found: bool) {
        self.busy = 0;
        self.too_many = if is_found {
            Self::MIN_BUSY_PERIODS
        } else {
            (self.too_many * 2).clamp(Self::MIN_BUSY_PERIODS, Self::MAX_BUSY_PERIODS)
        };
    }

    fn measure_sleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        let begin = now();
        let result = sleep();
        self.asleep += now().saturating_duration_since(begin);
        result
    }
}

/// What ended the thread's sleep.
#[derive(Default)]
struct Woken {
    by_interfaces: bool,
    by_exits: bool,
    by_packets: bool,
}

/// Updates addresses and interfaces. Connections over a removed interface end.
fn check_interfaces(lane: &Lane) {
    if lane.monitor.as_ref().is_some_and(Monitor::has_changed)
        && let Ok(interfaces) = net::socket::interface::interfaces()
    {
        lane.step(|state| {
            state.update_interfaces(&interfaces);
            state.transmit(now());
        });
    }
}

/// The result of one round of the thread.
#[derive(Default)]
struct Progress<'s> {
    /// The next deadline.
    next: Option<Instant>,
    /// How many packets arrived.
    arrived: usize,
    socket_lost: bool,
    /// If the thread sleeps on the sockets next.
    wait: Option<SocketWait<'s>>,
}

/// As [`make_progress`], unless an application that polls holds the lock.
fn try_progress<'s>(
    lane: &'s Lane,
    duty: Duty,
    backoff: &mut PollBackoff,
    now: Instant,
) -> Option<Progress<'s>> {
    let work = |state: &mut LaneState| make_progress(lane, state, duty, now);
    let progress = if backoff.waits_for_lock(lane.turn.is_polled_continuously(now)) {
        Some(lane.step(work))
    } else {
        lane.try_step(work)
    };
    backoff.note_lock(progress.is_some());
    progress
}

/// Receives packets and runs timers, as far as the duty requires it.
fn make_progress<'s>(
    lane: &'s Lane,
    state: &mut LaneState,
    duty: Duty,
    now: Instant,
) -> Progress<'s> {
    let due = state.next_deadline().is_some_and(|at| at <= now);
    // A thread that does not sleep may have taken the wake-up of those that sleep on the sockets.
    let serves_sockets = duty == Duty::Everything || !state.may_sleep();
    let arrived = if serves_sockets || due || state.has_unsent() {
        state.serve(now)
    } else {
        0
    };
    let next = if serves_sockets {
        state.sleep_deadline(now)
    } else {
        state.next_deadline()
    };
    let wait = (duty == Duty::Everything).then(|| lane.begin_socket_wait(state));
    let unsent_until = state.has_unsent().then(|| now + STANDBY);
    let next = earliest(next, unsent_until);
    // Under the lock: a thread that adds an earlier deadline later sees this one, and wakes the thread.
    lane.turn.plan_sleep(next);
    Progress {
        next,
        arrived,
        socket_lost: state.has_lost_socket(),
        wait,
    }
}

impl Served for Lane {
    /// One round of the thread.
    #[cfg(feature = "sim")]
    fn serve(&self, now: Instant) -> Option<Instant> {
        self.step(|state| make_progress(self, state, Duty::Everything, now).next)
    }
}

/// Polls the rings for a short time after packets have arrived, because more of them often arrive before a thread
/// is asleep. Returns whether the thread may sleep: no more packets arrived, and the next one wakes it.
fn spin_on_rings<'s>(lane: &'s Lane, progress: &mut Progress<'s>, begin: Instant) -> bool {
    // The thread is awake, so it needs no wake-up for what it receives itself.
    let waits = progress.wait.take().is_some();
    let mut last_arrival = begin;
    loop {
        let looked = lane.try_step(|state| {
            let now = now();
            // A program that packets wake receives them itself.
            let left_to_program = state.leaves_packets();
            if left_to_program
                || !state.has_shortcuts()
                || now > last_arrival + LOOK
                || now > begin + LONG
            {
                let may_sleep = last_arrival == begin && state.may_sleep();
                if may_sleep && waits {
                    progress.wait = Some(lane.begin_socket_wait(state));
                }
                return Some(may_sleep);
            }
            if state.step(now, Intent::Look).arrived > 0 {
                last_arrival = now;
            }
            None
        });
        match looked {
            None => return false,
            Some(Some(may_sleep)) => return may_sleep,
            Some(None) => std::hint::spin_loop(),
        }
    }
}

fn sleep(lane: &Lane, duty: Duty, now: Instant, until: Option<Instant>) -> Woken {
    const WAKER: usize = 0;
    let poll_sources = lane.poll_sources();
    let mut interests = vec![Interest::readable(lane.waker.as_fd())];
    let monitor = lane.monitor.as_ref().map(AsFd::as_fd);
    interests.extend(monitor.map(Interest::readable));
    let monitor = WAKER + 1..interests.len();
    let exits = lane.exits.as_ref().map(|it| it.as_fd());
    interests.extend(exits.map(Interest::readable));
    let exits = monitor.end..interests.len();
    let first_source = interests.len();
    if duty == Duty::Everything {
        poll_sources.add_to(&mut interests);
    }
    let mut ready = Ready::default();
    if lane.turn.fall_asleep(duty, now) {
        let timeout = until.map(|at| at.saturating_duration_since(now));
        ready = wait(&interests, timeout).unwrap_or_else(|_| pause());
        // Clear before reading anything, so that no wake-up is lost. Only if it is set: it is a system call.
        if ready.contains(WAKER) {
            lane.waker.clear();
        }
    }
    lane.turn.wake_up();
    let is_ready = |mut range: Range<usize>| range.any(|at| ready.contains(at));
    Woken {
        by_interfaces: is_ready(monitor),
        by_exits: is_ready(exits),
        by_packets: is_ready(first_source..interests.len()),
    }
}

/// The program has closed the device's descriptors, so the thread can only wait for the end.
fn pause() -> Ready {
    thread::sleep(RECHECK);
    Ready::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::connected_end::End;
    use crate::options::OpenOptions;

    /// How many periods pass until a thread asks for relief that slept for a part of each.
    fn periods_until_relief(load: &mut Load, at: &mut Instant, asleep: Duration) -> Option<u32> {
        (0..=2 * Load::MAX_BUSY_PERIODS).find(|_| {
            load.asleep += asleep;
            *at += Load::PERIOD;
            load.is_too_high(*at)
        })
    }

    #[test]
    fn a_thread_that_hardly_sleeps_asks_for_relief_and_less_often_in_vain() {
        let (mut load, mut at) = (Load::default(), now());
        assert!(!load.is_too_high(at), "it begins");
        let half = Load::PERIOD / 2;
        assert_eq!(periods_until_relief(&mut load, &mut at, half), None);
        let mut periods = Vec::new();
        for is_found in [true, true, false, false, true, true] {
            let tenth = Load::PERIOD / 10;
            periods.extend(periods_until_relief(&mut load, &mut at, tenth));
            load.note_relief(is_found);
        }
        assert_eq!(periods, [1, 1, 1, 3, 7, 1], "counted from 0");
        (0..100).for_each(|_| load.note_relief(false));
        assert_eq!(load.too_many, Load::MAX_BUSY_PERIODS);
    }

    /// A thread that leaves the wake-up there would never sleep again.
    #[test]
    fn a_wake_up_is_taken() {
        let driver = crate::Driver::open("127.58.93.1", &OpenOptions::default());
        let driver = driver.expect("a loopback address");
        driver.lane().waker.wake();
        let is_raised = || {
            let waker = [Interest::readable(driver.lane().waker.as_fd())];
            !wait(&waker, Some(Duration::ZERO))
                .expect("a descriptor")
                .is_empty()
        };
        let timeout = now() + Duration::from_secs(20);
        while is_raised() {
            assert!(now() < timeout, "the thread has not taken it");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// It must know when to take the sockets back.
    #[test]
    fn the_thread_is_parked_while_an_application_sleeps_on_the_sockets() {
        let driver = crate::Driver::open("127.58.93.2", &OpenOptions::default());
        let driver = driver.expect("a loopback address");
        let timeout = now() + Duration::from_secs(20);
        let is_parked = || driver.lane().turn.is_parked();
        let wait_until = |parked: bool| {
            while is_parked() != parked {
                assert!(now() < timeout, "parked: {}", is_parked());
                driver.lane().waker.wake();
                thread::sleep(Duration::from_millis(1));
            }
        };
        wait_until(false);
        assert!(driver.lane().turn.enter_sleepers());
        wait_until(true);
        let _ = driver.lane().turn.leave_sleepers();
        wait_until(false);
    }

    #[test]
    fn the_thread_sleeps_only_briefly_while_an_acknowledgement_waits() {
        let (here, there) = (End::open("127.58.93.3"), End::without_thread("127.58.93.4"));
        here.connect(&there);
        there.connect(&here);
        let _channel = there.channel();
        there.driver.arm(there.completions, engine::Notify::Any);
        here.send_to(&there);
        let lane = there.driver.lane();
        let timeout = now() + Duration::from_secs(20);
        loop {
            let now = now();
            assert!(now < timeout, "the message does not arrive");
            let progress = lane.step(|state| make_progress(lane, state, Duty::Everything, now));
            if lane.lock().has_unsent() {
                let next = progress.next.expect("a deadline");
                assert!(next <= now + STANDBY);
                break;
            }
        }
    }

    /// An acknowledgement arrives through shared memory while a thread sleeps on the sockets. The
    /// program's poll receives it before that thread runs, and finds no completion.
    fn poll_before_the_sleeper_runs(there: &End) {
        let lane = there.driver.lane();
        let before = lane.lock().arrivals();
        let queue = there.driver.polled_queue(there.completions);
        let queue = queue.expect("it exists");
        there.write_nothing();
        let timeout = now() + Duration::from_secs(20);
        let mut has_polled = false;
        while lane.lock().arrivals() == before {
            assert!(now() < timeout, "no acknowledgement arrives");
            there.has_readable_socket(Duration::from_secs(20));
            if !has_polled {
                // The call has set a deadline. A later wake-up is that of a poll which took it before the packet.
                there.takes_wake_up();
            }
            has_polled = true;
            assert!(there.driver.poll_without_yield(&queue).is_none());
        }
    }

    /// Whether a thread that sleeps on the sockets learns of the next packet. The peer may still be on its way to wake it
    /// for a packet that is received.
    fn a_packet_wakes(there: &End) -> bool {
        there.driver.lane().lock().may_sleep() || there.has_readable_socket(Duration::from_secs(20))
    }

    /// The sleeper finds nothing to read and sleeps on. Its wake-up is used up.
    #[test]
    fn a_poll_that_takes_the_wake_up_of_the_thread_wakes_it() {
        let (_here, there) = End::pair_with_rings(["127.58.93.6", "127.58.93.7"]);
        let lane = there.driver.lane();
        there.empty_sockets();
        let progress = lane.step(|state| make_progress(lane, state, Duty::Everything, now()));
        assert!(lane.lock().may_sleep());
        poll_before_the_sleeper_runs(&there);
        // A busy machine may be so late that the thread wakes up by itself.
        let is_awake = progress.next.is_some_and(|next| next <= now());
        assert!(is_awake || there.takes_wake_up() || a_packet_wakes(&there));
        drop(progress);
        let _progress = lane.step(|state| make_progress(lane, state, Duty::Everything, now()));
        assert!(a_packet_wakes(&there));
    }

    #[test]
    fn a_poll_that_takes_the_wake_up_of_an_application_thread_wakes_the_lane_s_thread() {
        let (_here, there) = End::pair_with_rings(["127.58.93.8", "127.58.93.9"]);
        let lane = there.driver.lane();
        there.empty_sockets();
        assert!(lane.turn.enter_sleepers());
        let mut state = lane.lock();
        state.before_sleep(now());
        let wait = lane.begin_socket_wait(&mut state);
        drop(state);
        poll_before_the_sleeper_runs(&there);
        assert!(there.takes_wake_up() || a_packet_wakes(&there));
        lane.step(|state| drop(make_progress(lane, state, Duty::Timers, now())));
        assert!(a_packet_wakes(&there));
        drop(wait);
    }

    #[test]
    fn a_poll_takes_no_wake_up_if_nobody_sleeps_on_the_sockets() {
        let (_here, there) = End::pair_with_rings(["127.58.93.10", "127.58.93.11"]);
        there.empty_sockets();
        there.driver.lane().lock().sleep_deadline(now());
        poll_before_the_sleeper_runs(&there);
        assert!(!there.takes_wake_up());
    }

    /// The writer of a message that is already received may wake the thread late.
    #[test]
    fn a_thread_that_took_its_own_wake_up_prepares_its_sleep_again() {
        let (_here, there) = End::pair_with_rings(["127.58.93.12", "127.58.93.13"]);
        let lane = there.driver.lane();
        there.empty_sockets();
        let mut progress = lane.step(|state| make_progress(lane, state, Duty::Everything, now()));
        assert!(spin_on_rings(lane, &mut progress, now()));
        assert!(progress.wait.take().is_some());
        poll_before_the_sleeper_runs(&there);
        let may_sleep = lane.lock().may_sleep();
        let sleeps = spin_on_rings(lane, &mut progress, now());
        assert!(sleeps == may_sleep || may_sleep && a_packet_wakes(&there));
    }

    /// It may sleep for long.
    #[test]
    fn the_thread_of_a_device_that_closes_is_woken() {
        let end = End::without_thread("127.58.93.28");
        end.takes_wake_up();
        drop(Thread {
            lane: Arc::clone(end.driver.lane()),
            handle: None,
        });
        assert!(end.takes_wake_up());
    }
}

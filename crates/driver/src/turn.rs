//! Whose turn it is to serve a lane's sockets.
//!
//! Threads of the program do most of the work: they poll, or sleep on the sockets, so that a packet wakes them directly. The
//! lane's thread does what they leave. The turn is
//!
//! | of | while | the lane's thread |
//! |---|---|---|
//! | a poller | a thread of the program polled within the back-off ([`PollBackoff`]) | stands by: it sleeps for the back-off |
//! | sleepers | threads of the program sleep on the sockets | is parked: it sleeps until a timer is due |
//! | a descriptor | a program armed a queue and awaits its notification outside of the library | serves the sockets |
//! | the lane's thread | nobody else | serves the sockets |
//!
//! [`Turn`] has no I/O. It is told the time and what threads do, and answers whether the lane's thread must be woken. Where one
//! thread sleeps because of another, both first tell what they do, and then look what the other does, with a fence between the two. So
//! at least one of them sees the other (`model_checks`).
//!
//! Who finds nothing looks again for [`LOOK`](crate::times::LOOK) before a sleep ([`Look`]), and a poller gives up the CPU from time to time ([`Yielding`]).

mod backoff;
mod look;
#[cfg(all(test, loom))]
mod model_checks;
mod poll_yield;

use std::time::{Duration, Instant};

use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use crate::times::{LONG, LOOK, STANDBY};

pub(crate) use backoff::PollBackoff;
#[cfg(feature = "async")]
pub(crate) use look::AfterVainPoll;
pub(crate) use look::{Look, Looks};
pub(crate) use poll_yield::{Next, Yielding};

/// How many application threads sleep on the sockets of a lane at most. A packet wakes all of these. Strangers can make a
/// server start threads that wait: one for each request that they do not confirm.
pub(crate) const MAX_SOCKET_SLEEPERS: usize = 4;

/// Who serves the sockets and timers of a lane. Times are in nanoseconds since the lane was opened.
#[derive(Debug)]
pub(crate) struct Turn {
    epoch: Instant,
    /// How many times slower the calls of an application are than usual, because it is checked.
    slowdown: u32,
    /// When an application last polled.
    polled: AtomicU64,
    /// When a queue was last armed whose notification a program awaits outside of the library; 0 if none was.
    armed: AtomicU64,
    /// An [`Asleep`].
    thread: AtomicU8,
    /// Until when the lane's thread sleeps.
    thread_sleeps_until: AtomicU64,
    /// How many application threads sleep on the sockets.
    sleepers: AtomicUsize,
    /// How many threads, of the application and the lane's own, sleep on the sockets now.
    waits: AtomicUsize,
}

/// What the lane's thread must serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Sockets and timers: no application thread serves the sockets.
    Everything,
    /// Nothing until this time: an application polls and also runs the timers. The thread does not even
    /// take the lock.
    Standby(Instant),
    /// The timers: an application thread sleeps on the sockets, and wakes this thread when it stops.
    Timers,
}

/// Why the lane's thread sleeps without the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Asleep {
    /// It does not: it is awake, or sleeps on the sockets.
    No,
    StandsBy,
    Parked,
}

impl Turn {
    pub(crate) fn new(epoch: Instant, slowdown: u32) -> Self {
        Self {
            epoch,
            slowdown,
            polled: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            thread: AtomicU8::new(Asleep::No as u8),
            thread_sleeps_until: AtomicU64::new(u64::MAX),
            sleepers: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
        }
    }

    pub(crate) fn since_open(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.epoch)
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        self.since_open(at).as_nanos() as u64
    }

    /// An application polls.
    pub(crate) fn note_poll(&self, now: Instant) {
        self.polled.store(self.nanoseconds(now), Ordering::Release);
    }

    /// If an application polled within `recently`, the time at which that period ends. It is longer for a program that is
    /// checked: it takes longer between two polls, and a thread that receives meanwhile only competes for the lock.
    fn polled_within(&self, recently: Duration, now: Instant) -> Option<Instant> {
        let polled = Duration::from_nanos(self.polled.load(Ordering::Acquire));
        let until = self.epoch + polled + recently * self.slowdown;
        (now < until).then_some(until)
    }

    pub(crate) fn is_polled(&self, now: Instant) -> bool {
        self.polled_within(STANDBY, now).is_some()
    }

    /// Whether an application polls and will poll again, because it does not wait outside of the library.
    pub(crate) fn is_polled_continuously(&self, now: Instant) -> bool {
        self.is_polled(now) && !self.is_awaited_outside(now)
    }

    /// A program has armed a queue, and awaits the notification outside of the library. Returns whether the lane's thread must be
    /// woken, because it stands by.
    #[must_use]
    pub(crate) fn note_armed(&self, now: Instant) -> bool {
        // 0 stands for never.
        let armed = self.nanoseconds(now).max(1);
        self.armed.store(armed, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.thread_is(Asleep::StandsBy)
    }

    /// Whether a program armed a queue so recently that it probably waits outside of the library. A poll
    /// after that does not mean that it polls again.
    fn is_awaited_outside(&self, now: Instant) -> bool {
        let armed = self.armed.load(Ordering::Relaxed);
        armed != 0 && now < self.epoch + Duration::from_nanos(armed) + LONG
    }

    /// Counts an application thread among those that sleep on the sockets. Returns false if there are enough of them.
    pub(crate) fn enter_sleepers(&self) -> bool {
        let one_more = |sleepers| (sleepers < MAX_SOCKET_SLEEPERS).then_some(sleepers + 1);
        self.sleepers
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .is_ok()
    }

    /// The reverse of [`enter_sleepers`](Self::enter_sleepers). Returns whether the lane's thread must be woken, because it has
    /// left the sockets to this one.
    #[must_use]
    pub(crate) fn leave_sleepers(&self) -> bool {
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.thread_is(Asleep::Parked)
    }

    /// Counts a thread among those that sleep on the sockets now. The caller has prepared the sleep, and still has the
    /// lane's lock.
    pub(crate) fn begin_wait(&self) -> SocketWait<'_> {
        self.waits.fetch_add(1, Ordering::AcqRel);
        SocketWait(&self.waits)
    }

    /// Whether a thread sleeps on the sockets now.
    pub(crate) fn has_waits(&self) -> bool {
        self.waits.load(Ordering::Acquire) > 0
    }

    /// A thread that is awake has taken the wake-up of those that sleep on the sockets. Returns whether the lane's thread must be
    /// woken, which prepares the sleep of all threads again.
    #[must_use]
    pub(crate) fn note_wakeup_taken(&self, now: Instant) -> bool {
        let planned = self.thread_sleeps_until.swap(0, Ordering::AcqRel);
        // One that stands by does this within a short time anyway.
        self.nanoseconds(now) < planned
    }

    /// Whether the lane's thread must be woken, because it would sleep beyond `next`.
    #[must_use]
    pub(crate) fn oversleeps(&self, next: Instant) -> bool {
        self.nanoseconds(next) < self.thread_sleeps_until.load(Ordering::Acquire)
    }

    /// What the lane's thread must serve now.
    pub(crate) fn duty(
        &self,
        now: Instant,
        woken_by_packets: bool,
        backoff: &mut PollBackoff,
    ) -> Duty {
        let outside = self.is_awaited_outside(now);
        if !outside && let Some(until) = self.polled_within(backoff.time(), now) {
            return Duty::Standby(until);
        }
        if woken_by_packets && !outside && self.is_polled(now) && backoff.should_probe() {
            return Duty::Standby(now + LOOK);
        }
        match self.sleepers.load(Ordering::Acquire) {
            0 => Duty::Everything,
            _ => Duty::Timers,
        }
    }

    /// The lane's thread sleeps until this time next. Under the lane's lock, or for a short time.
    pub(crate) fn plan_sleep(&self, until: Option<Instant>) {
        let planned = until.map_or(u64::MAX, |at| self.nanoseconds(at));
        self.thread_sleeps_until.store(planned, Ordering::Release);
    }

    /// The lane's thread goes to sleep. Returns false if it must not, because the program has just left the sockets to it.
    #[must_use]
    pub(crate) fn fall_asleep(&self, duty: Duty, now: Instant) -> bool {
        let asleep = match duty {
            Duty::Everything => return true,
            Duty::Standby(_) => Asleep::StandsBy,
            Duty::Timers => Asleep::Parked,
        };
        self.thread.store(asleep as u8, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        match asleep {
            Asleep::Parked => self.sleepers.load(Ordering::Acquire) > 0,
            Asleep::StandsBy | Asleep::No => !self.is_awaited_outside(now),
        }
    }

    /// The lane's thread is awake.
    pub(crate) fn wake_up(&self) {
        self.thread.store(Asleep::No as u8, Ordering::Relaxed);
    }

    fn thread_is(&self, asleep: Asleep) -> bool {
        self.thread.load(Ordering::Relaxed) == asleep as u8
    }
}

/// A thread sleeps on the sockets while this exists.
#[derive(Debug)]
pub(crate) struct SocketWait<'s>(&'s AtomicUsize);

impl Drop for SocketWait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
impl Turn {
    pub(crate) fn sleepers(&self) -> usize {
        self.sleepers.load(Ordering::SeqCst)
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.thread_is(Asleep::Parked)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn a_program_that_armed_a_queue_awaits_it_outside_for_a_millisecond() {
        let armed = now();
        let turn = Turn::new(armed, 1);
        assert!(!turn.is_awaited_outside(armed));
        assert!(!turn.note_armed(armed), "the thread does not stand by");
        assert!(turn.is_awaited_outside(armed + Duration::from_micros(999)));
        assert!(!turn.is_awaited_outside(armed + Duration::from_micros(1001)));
    }

    #[test]
    fn only_a_program_that_polls_continuously_gets_the_lock_first() {
        let start = now() + LONG;
        let turn = Turn::new(start - LONG, 1);
        assert!(!turn.is_polled_continuously(start), "it does not poll");
        turn.note_poll(start);
        assert!(turn.is_polled_continuously(start));
        let _ = turn.note_armed(start);
        assert!(!turn.is_polled_continuously(start), "it waits outside");
    }

    /// The calls of a checked program are slower, and it is still the one that receives its packets.
    #[test]
    fn the_thread_leaves_the_sockets_longer_to_a_program_that_is_slower() {
        let start = now();
        let is_polled = |slowdown| {
            let turn = Turn::new(start, slowdown);
            turn.note_poll(start);
            turn.is_polled(start + 2 * STANDBY)
        };
        assert!(!is_polled(1));
        assert!(is_polled(10));
    }

    #[test]
    fn the_thread_serves_what_the_program_leaves() {
        let start = now();
        let turn = Turn::new(start, 1);
        let duty = |at| turn.duty(at, false, &mut PollBackoff::default());
        assert_eq!(duty(start), Duty::Standby(start + STANDBY), "as it begins");
        let later = start + STANDBY;
        assert_eq!(duty(later), Duty::Everything);
        assert!(turn.enter_sleepers());
        assert_eq!(duty(later), Duty::Timers);
        turn.note_poll(later);
        assert_eq!(duty(later), Duty::Standby(later + STANDBY));
        let _ = turn.note_armed(later);
        assert_eq!(duty(later), Duty::Timers, "the poller awaits it outside");
        let _ = turn.leave_sleepers();
        assert_eq!(duty(later), Duty::Everything);
    }

    #[test]
    fn no_more_threads_sleep_on_the_sockets_than_the_limit() {
        let turn = Turn::new(now(), 1);
        assert!((0..MAX_SOCKET_SLEEPERS).all(|_| turn.enter_sleepers()));
        assert!(!turn.enter_sleepers());
        let _ = turn.leave_sleepers();
        assert!(turn.enter_sleepers());
    }

    #[test]
    fn a_parked_thread_is_woken_when_a_sleeper_leaves_and_one_that_stands_by_when_a_queue_is_armed()
    {
        let start = now();
        let turn = Turn::new(start, 1);
        for (duty, parked, stands_by) in [
            (Duty::Everything, false, false),
            (Duty::Timers, true, false),
            (Duty::Standby(start), false, true),
        ] {
            assert!(turn.enter_sleepers());
            assert!(turn.fall_asleep(duty, start + 2 * LONG));
            assert_eq!(turn.leave_sleepers(), parked, "{duty:?}");
            assert_eq!(turn.note_armed(start), stands_by, "{duty:?}");
            turn.wake_up();
            assert!(!turn.note_armed(start), "{duty:?}");
        }
    }

    #[test]
    fn an_earlier_deadline_and_a_taken_wake_up_wake_the_thread_once() {
        let start = now();
        let turn = Turn::new(start, 1);
        turn.plan_sleep(Some(start + LONG));
        assert!(turn.oversleeps(start + STANDBY));
        assert!(!turn.oversleeps(start + LONG));
        assert!(turn.note_wakeup_taken(start));
        assert!(!turn.note_wakeup_taken(start), "it is on its way");
        assert!(!turn.oversleeps(start + STANDBY), "it is on its way");
    }
}

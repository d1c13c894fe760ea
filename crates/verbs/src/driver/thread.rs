//! The device's own thread: there for when nobody polls.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use net::interface::Monitor;
use net::poll::{Interest, Ready, wait};

use super::shared::{CLOSED_PAUSE, Locked, POLLED_RECENTLY, Shared, earliest};
use crate::clock::now;

/// Runs until it is dropped.
pub(super) struct Thread {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let theirs = Arc::clone(&shared);
        let handle = Builder::new()
            .name("roci".to_owned())
            .spawn(move || serve(&theirs))?;
        Ok(Self {
            shared,
            handle: Some(handle),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            // The thread is the parent's: there is nobody here to wait for.
            std::mem::forget(self.handle.take());
            return;
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.waker.wake();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

fn serve(shared: &Shared) {
    net::signal::unblock_faults();
    let mut deference = Deference::default();
    let mut woken = Woken::default();
    let mut duty = Duty::Everything;
    while !shared.stopping.load(Ordering::Acquire) {
        let now = now();
        let before = std::mem::replace(&mut duty, Duty::at(shared, now, &woken, &mut deference));
        let mut turn = Turn::default();
        match duty {
            Duty::Standby(_) if matches!(before, Duty::Standby(_)) => deference.was_right(),
            Duty::Standby(_) => {}
            Duty::Everything | Duty::Timers => match deference.lock(shared, now) {
                Some(core) => {
                    turn = make_progress(shared, core, duty, now);
                    deference.learn(woken.by_packets, turn.arrived);
                }
                None => duty = Duty::Standby(now + deference.time),
            },
        }
        if let Duty::Standby(until) = duty {
            // Nobody needs to ring: whatever comes, it is soon enough then.
            shared.plan_thread(Some(now));
            turn.next = Some(until);
        }
        woken = sleep(shared, duty, now, turn.next);
        if woken.by_interfaces {
            look_at_interfaces(shared);
        }
    }
}

/// How long the sockets are left to somebody who polled.
///
/// Who polls all the time is only disturbed by a second one. But there are programs that poll once and
/// then look at memory, where data appears only if somebody takes it from the sockets.
struct Deference {
    time: Duration,
    /// How often packets were taken since they were left to others for the last time.
    taken: u32,
    /// How often in a row others had the lock.
    outrun: u32,
}

impl Default for Deference {
    fn default() -> Self {
        Self {
            time: Self::LONGEST,
            taken: 0,
            outrun: 0,
        }
    }
}

impl Deference {
    const LONGEST: Duration = POLLED_RECENTLY;
    const SHORTEST: Duration = Duration::from_micros(10);

    /// After so many takings it is tried whether somebody else would come for the packets.
    const TRY_AFTER: u32 = 64;

    /// So often in a row the lock is left to others.
    const STEP_BACK: u32 = 8;

    /// The lock, unless somebody who polls has it.
    fn lock<'s>(&mut self, shared: &'s Shared, now: Instant) -> Option<Locked<'s>> {
        let others = somebody_polls(shared, now) && !shared.awaits_outside(now);
        let core = match self.queues_up(others) {
            true => Some(shared.lock()),
            false => shared.try_lock(),
        };
        match core {
            Some(_) => self.outrun = 0,
            None => {
                self.outrun += 1;
                self.was_right();
            }
        }
        core
    }

    /// Whether to wait for the lock. It would cost who polls a system call each time he lets it go, and
    /// what there is to do he mostly does himself. Who does not poll has it for a moment, and will not
    /// come back for the packets that he has just caused.
    fn queues_up(&self, somebody_polls: bool) -> bool {
        !somebody_polls || self.outrun >= Self::STEP_BACK
    }

    /// Whether packets that have just come are left alone for once, to see whether anybody takes them.
    /// Who is quick takes all packets from a slower one, and would never learn that he is there.
    fn tries(&mut self) -> bool {
        self.taken += 1;
        let tries = self.taken >= Self::TRY_AFTER;
        if tries {
            self.taken = 0;
            self.time = self.time.max(Self::SHORTEST);
        }
        tries
    }

    /// Packets that are still there have waited for somebody who did not come; those that are gone
    /// woke us for nothing.
    fn learn(&mut self, woken: bool, arrived: usize) {
        match (woken, arrived) {
            (_, 1..) => self.was_wrong(),
            (true, 0) => self.was_right(),
            (false, 0) => {}
        }
    }

    fn was_right(&mut self) {
        self.time = (self.time * 2).clamp(Self::SHORTEST, Self::LONGEST);
    }

    fn was_wrong(&mut self) {
        self.time = match self.time / 2 {
            half if half < Self::SHORTEST => Duration::ZERO,
            half => half,
        };
    }
}

fn somebody_polls(shared: &Shared, now: Instant) -> bool {
    shared.polled_within(Deference::LONGEST, now).is_some()
}

/// What ended a sleep.
#[derive(Default)]
struct Woken {
    by_interfaces: bool,
    by_packets: bool,
}

/// An address that moved or an interface that is gone matters to whoever is connected over it.
fn look_at_interfaces(shared: &Shared) {
    if shared.monitor.as_ref().is_some_and(Monitor::has_changed)
        && let Ok(interfaces) = net::interface::interfaces()
    {
        let mut core = shared.lock();
        core.update_interfaces(&interfaces);
        core.transmit(now());
    }
}

/// What came of the thread's turn.
#[derive(Default)]
struct Turn {
    /// Until when there is nothing to do.
    next: Option<Instant>,
    /// How many packets there were.
    arrived: usize,
}

/// Does what is due.
fn make_progress(shared: &Shared, mut core: Locked<'_>, duty: Duty, now: Instant) -> Turn {
    let due = core.next_deadline().is_some_and(|at| at <= now);
    let arrived = match duty == Duty::Everything || due || core.has_unsent() {
        true => core.progress(now),
        false => 0,
    };
    let next = match duty {
        Duty::Everything => core.sleep_at_doors_until(now),
        Duty::Timers | Duty::Standby(_) => core.next_deadline(),
    };
    let unsent_until = core.has_unsent().then(|| now + POLLED_RECENTLY);
    let next = earliest(next, unsent_until);
    // Under the lock: who brings an earlier deadline afterwards sees what is planned, and rings.
    shared.plan_thread(next);
    Turn { next, arrived }
}

/// What is left to do for the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Nobody else looks at the sockets.
    Everything,
    /// Somebody polls, and serves the timers too. Look again then whether that has ended; until
    /// then not even the lock is touched.
    Standby(Instant),
    /// Somebody sleeps on the sockets, and will ring when that ends: only the timers are left.
    Timers,
}

impl Duty {
    fn at(shared: &Shared, now: Instant, woken: &Woken, deference: &mut Deference) -> Self {
        let outside = shared.awaits_outside(now);
        if !outside && let Some(until) = shared.polled_within(deference.time, now) {
            return Duty::Standby(until);
        }
        if woken.by_packets && !outside && somebody_polls(shared, now) && deference.tries() {
            return Duty::Standby(now + Deference::SHORTEST);
        }
        match shared.sleepers.load(Ordering::Acquire) {
            0 => Duty::Everything,
            _ => Duty::Timers,
        }
    }
}

fn sleep(shared: &Shared, duty: Duty, now: Instant, until: Option<Instant>) -> Woken {
    const RING: usize = 0;
    const MONITOR: usize = 1;
    let doors = shared.doors();
    let mut interests = vec![Interest::readable(shared.waker.as_fd())];
    let monitor = shared.monitor.as_ref().map(AsFd::as_fd);
    interests.extend(monitor.map(Interest::readable));
    let first_door = interests.len();
    if duty == Duty::Everything {
        doors.add_to(&mut interests);
    }
    shared
        .thread_parked
        .store(duty == Duty::Timers, Ordering::Release);
    let stands_by = matches!(duty, Duty::Standby(_));
    shared.thread_stands_by.store(stands_by, Ordering::Release);
    let left_alone = match duty {
        Duty::Everything => false,
        Duty::Standby(_) => shared.awaits_outside(now),
        Duty::Timers => shared.sleepers.load(Ordering::Acquire) == 0,
    };
    let mut ready = Ready::default();
    if !left_alone {
        let timeout = until.map(|at| at.saturating_duration_since(now));
        ready = wait(&interests, timeout).unwrap_or_else(|_| pause());
        // Before anything is read, so that no ring is lost; and only then, for it is a system call.
        if ready.contains(RING) {
            shared.waker.clear();
        }
    }
    shared.thread_parked.store(false, Ordering::Release);
    shared.thread_stands_by.store(false, Ordering::Release);
    Woken {
        by_interfaces: monitor.is_some() && ready.contains(MONITOR),
        by_packets: (first_door..interests.len()).any(|door| ready.contains(door)),
    }
}

/// The program has closed descriptors of the device: there is nothing to wait for but its end.
fn pause() -> Ready {
    std::thread::sleep(CLOSED_PAUSE);
    Ready::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_left_to_who_polls_and_taken_from_who_does_not() {
        let mut deference = Deference::default();
        for _ in 0..8 {
            deference.learn(true, 1);
        }
        assert_eq!(deference.time, Duration::ZERO, "packets had to wait");
        deference.learn(false, 0);
        assert_eq!(deference.time, Duration::ZERO, "a timer says nothing");
        for _ in 0..8 {
            deference.learn(true, 0);
        }
        assert_eq!(
            deference.time,
            Deference::LONGEST,
            "somebody else was first"
        );
    }

    #[test]
    fn the_lock_is_left_to_who_polls_but_not_for_ever() {
        let mut deference = Deference::default();
        assert!(deference.queues_up(false), "nobody else will come");
        assert!(!deference.queues_up(true));
        deference.outrun = Deference::STEP_BACK;
        assert!(deference.queues_up(true));
    }

    #[test]
    fn now_and_then_packets_are_left_to_see_whether_somebody_comes() {
        let mut deference = Deference::default();
        for _ in 0..8 {
            deference.was_wrong();
        }
        assert_eq!(deference.time, Duration::ZERO);
        let tries = (0..2 * Deference::TRY_AFTER).filter(|_| deference.tries());
        assert_eq!(tries.count(), 2);
        assert_eq!(deference.time, Deference::SHORTEST, "so long they are left");
    }
}

//! The device's own thread: there for when nobody polls.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use net::interface::Monitor;
use net::poll::{Interest, Ready, wait};

use super::shared::Shared;
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
    while !shared.stopping.load(Ordering::Acquire) {
        let now = now();
        let duty = Duty::at(shared, now);
        let until = match duty {
            Duty::Standby(until) => {
                // Nobody needs to ring: whatever comes, it is soon enough then.
                shared.plan_thread(Some(now));
                Some(until)
            }
            Duty::Everything | Duty::Timers => make_progress(shared, duty, now),
        };
        if sleep(shared, duty, now, until) {
            look_at_interfaces(shared);
        }
    }
}

/// An address that moved or an interface that is gone matters to whoever is connected over it.
fn look_at_interfaces(shared: &Shared) {
    if shared.monitor.as_ref().is_some_and(Monitor::has_changed)
        && let Ok(interfaces) = net::interface::interfaces()
    {
        let mut core = shared.lock();
        core.management().look_at(&interfaces);
        core.transmit(now());
    }
}

/// Does what is due; until when there is nothing to do.
fn make_progress(shared: &Shared, duty: Duty, now: Instant) -> Option<Instant> {
    let mut core = shared.lock();
    let due = core.next_deadline().is_some_and(|at| at <= now);
    if duty == Duty::Everything || due || core.has_unsent() {
        core.progress(now);
    }
    let next = core.next_deadline();
    // Under the lock: who brings an earlier deadline afterwards sees what is planned, and rings.
    shared.plan_thread(next);
    next
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
    fn at(shared: &Shared, now: Instant) -> Self {
        if let Some(until) = shared.polled_recently(now) {
            return Duty::Standby(until);
        }
        match shared.sleepers.load(Ordering::Acquire) {
            0 => Duty::Everything,
            _ => Duty::Timers,
        }
    }
}

/// Whether something is to be known about interfaces.
fn sleep(shared: &Shared, duty: Duty, now: Instant, until: Option<Instant>) -> bool {
    const RING: usize = 0;
    const MONITOR: usize = 1;
    let doors = shared.doors();
    let mut interests = vec![Interest::readable(shared.waker.as_fd())];
    let monitor = shared.monitor.as_ref().map(AsFd::as_fd);
    interests.extend(monitor.map(Interest::readable));
    if duty == Duty::Everything {
        doors.add_to(&mut interests);
    }
    shared
        .thread_parked
        .store(duty == Duty::Timers, Ordering::Release);
    let left_alone = duty == Duty::Timers && shared.sleepers.load(Ordering::Acquire) == 0;
    let mut ready = Ready::default();
    if !left_alone {
        let timeout = until.map(|at| at.saturating_duration_since(now));
        ready = wait(&interests, timeout).unwrap_or_default();
        // Before anything is read, so that no ring is lost; and only then, for it is a system call.
        if ready.contains(RING) {
            shared.waker.clear();
        }
    }
    shared.thread_parked.store(false, Ordering::Release);
    monitor.is_some() && ready.contains(MONITOR)
}

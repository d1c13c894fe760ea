//! The device's own thread: there for when nobody polls.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use net::interface::Monitor;
use net::poll::{Interest, Ready, wait};

use super::{POLLED_RECENTLY, Shared};
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
        // From here on every earlier deadline rings: the bell is cleared before anything is read.
        shared
            .thread_sleeps_until
            .store(u64::MAX, Ordering::Release);
        shared.waker.clear();
        let now = now();
        let duty = Duty::at(shared, now);
        let next = {
            let mut core = shared.lock();
            let due = core.next_deadline().is_some_and(|at| at <= now);
            if duty == Duty::Everything || due || core.has_unsent() {
                core.progress(now);
            }
            core.next_deadline()
        };
        if sleep(shared, duty, now, next) {
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

/// What is left to do for the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Nobody else looks at the sockets.
    Everything,
    /// Somebody polls: look again soon whether that has ended.
    Standby,
    /// Somebody sleeps on the sockets, and will ring when that ends: only the timers are left.
    Timers,
}

impl Duty {
    fn at(shared: &Shared, now: Instant) -> Self {
        if shared.was_polled_recently(now) {
            return Duty::Standby;
        }
        match shared.sleepers.load(Ordering::Acquire) {
            0 => Duty::Everything,
            _ => Duty::Timers,
        }
    }
}

/// Whether something is to be known about interfaces.
fn sleep(shared: &Shared, duty: Duty, now: Instant, next: Option<Instant>) -> bool {
    const MONITOR: usize = 1;
    let doors = shared.doors();
    let mut interests = vec![Interest::readable(shared.waker.as_fd())];
    let monitor = shared.monitor.as_ref().map(AsFd::as_fd);
    interests.extend(monitor.map(Interest::readable));
    let until = match duty {
        Duty::Everything => {
            doors.add_to(&mut interests);
            next
        }
        Duty::Standby => Some(now + POLLED_RECENTLY),
        Duty::Timers => next,
    };
    shared
        .thread_parked
        .store(duty == Duty::Timers, Ordering::Release);
    let left_alone = duty == Duty::Timers && shared.sleepers.load(Ordering::Acquire) == 0;
    let mut ready = Ready::default();
    if !left_alone {
        let planned = until.map_or(u64::MAX, |at| shared.nanoseconds(at));
        shared.thread_sleeps_until.store(planned, Ordering::Release);
        let timeout = until.map(|at| at.saturating_duration_since(now));
        ready = wait(&interests, timeout).unwrap_or_default();
    }
    shared.thread_parked.store(false, Ordering::Release);
    monitor.is_some() && ready.contains(MONITOR)
}

//! A thread that waits for any of several completion queues.

use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use engine::CompletionQueue;
use net::poll::{Interest, Ready, wait};

use super::Lane;
use crate::clock::{earliest, now};
use crate::waiting::wait_set::{Sleeper, WaitSet, Wakeup};

/// A thread that waits for completions of several queues, until this is dropped.
///
/// The thread enters the wait set of each queue, then checks what it waits for, and sleeps
/// ([`Driver::sleep_watching`](crate::Driver::sleep_watching)) if there is nothing. What changes after the check wakes it. While it is
/// awake, a wake-up is no system call.
pub struct Watch {
    wakeup: Arc<Wakeup>,
    sets: Vec<Arc<WaitSet>>,
    queues: Vec<Watched>,
}

/// A queue, and the lane that serves it.
struct Watched {
    queue: Arc<CompletionQueue>,
    lane: Arc<Lane>,
}

impl Watch {
    /// A thread that waits for nothing yet.
    #[expect(clippy::new_without_default, reason = "it takes a descriptor")]
    pub fn new() -> Self {
        let wakeup = Wakeup::obtain();
        wakeup.begin();
        Self {
            wakeup,
            sets: Vec::new(),
            queues: Vec::new(),
        }
    }

    /// Enters a wait set. Wake-ups count from now on.
    pub fn enter(&mut self, set: &Arc<WaitSet>) {
        set.add_thread(&self.wakeup);
        self.sets.push(Arc::clone(set));
    }

    pub(crate) fn add_queue(&mut self, queue: &Arc<CompletionQueue>, lane: &Arc<Lane>) {
        self.queues.push(Watched {
            queue: Arc::clone(queue),
            lane: Arc::clone(lane),
        });
    }

    /// Whether one of the sets was woken, or one of the queues has a completion.
    pub fn is_ready(&self) -> bool {
        self.wakeup.was_woken() || self.queues.iter().any(|it| !it.queue.is_empty())
    }

    /// Sleeps until a set is woken, one of the program's own descriptors is ready, the time comes or a signal arrives. Returns whether one
    /// did. No device is served meanwhile.
    pub fn sleep(&self, others: &[Interest<'_>], until: Option<Instant>) -> io::Result<bool> {
        let sleeper = self.begin_sleep();
        if self.is_ready() {
            return Ok(false);
        }
        let now = now();
        let until = earliest(until, sleeper.next_check(now));
        let timeout = until.map(|at| at.saturating_duration_since(now));
        let mut interests: Vec<_> = sleeper.interest().into_iter().collect();
        interests.extend(others);
        wait(&interests, timeout).map(Ready::was_interrupted)
    }

    pub(crate) fn begin_sleep(&self) -> Sleeper<'_> {
        Sleeper::of(&self.wakeup)
    }

    /// The other lanes whose queues it waits for.
    pub(crate) fn lanes_beside(&self, own: &Arc<Lane>) -> impl Iterator<Item = &Arc<Lane>> {
        let lanes = self.queues.iter().map(|it| &it.lane);
        lanes.filter(|lane| !Arc::ptr_eq(lane, own))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.wakeup).finish()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for set in &self.sets {
            set.remove_thread(&self.wakeup);
        }
        self.wakeup.end();
    }
}

//! Waking those who wait for completions or events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use net::poll::{Interest, Waker};

/// Rings when something happened: a list of who rang, tasks to wake, and a descriptor that becomes
/// readable, so that it can be waited for together with others.
///
/// The descriptor costs system calls, so it is only touched when somebody waits for it: a sleeper
/// between [`sleep`](Self::sleep) and the drop of what that gives, or whoever was handed it.
#[derive(Debug)]
pub struct Bell {
    waker: OnceLock<Waker>,
    rang: Mutex<Rang>,
}

#[derive(Debug, Default)]
struct Rang {
    whom: VecDeque<u64>,
    tasks: Vec<task::Waker>,
    /// How many wait for the descriptor.
    sleepers: usize,
    /// Whether the descriptor was given away, to be waited for at any time.
    exposed: bool,
    /// Whether the descriptor is readable.
    signaled: bool,
}

/// As long as it lives, a ring makes the descriptor readable.
pub struct Sleeper<'b>(&'b Bell);

impl Bell {
    /// A bell that nobody has rung.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waker: OnceLock::from(Waker::new()?),
            rang: Mutex::default(),
        })
    }

    /// A bell that gets its descriptor when somebody sleeps, for where there may be thousands.
    pub(crate) fn without_descriptor() -> Self {
        Self {
            waker: OnceLock::new(),
            rang: Mutex::default(),
        }
    }

    /// Rings for `whom`.
    pub fn ring(&self, whom: u64) {
        let mut rang = self.lock();
        rang.whom.push_back(whom);
        if rang.exposed || rang.sleepers > 0 {
            self.signal(&mut rang);
        }
        for task in rang.tasks.drain(..) {
            task.wake();
        }
    }

    /// Wakes a task at the next ring.
    #[cfg(feature = "async")]
    pub(crate) fn wake_at_next(&self, task: &task::Waker) {
        let mut rang = self.lock();
        if !rang.tasks.iter().any(|known| known.will_wake(task)) {
            rang.tasks.push(task.clone());
        }
    }

    /// Whether somebody rang whom nobody has answered.
    pub(super) fn has_rung(&self) -> bool {
        !self.lock().whom.is_empty()
    }

    /// Begins to wait for the descriptor; nothing if somebody rang already.
    pub fn sleep(&self) -> Option<Sleeper<'_>> {
        let mut rang = self.lock();
        if !rang.whom.is_empty() {
            return None;
        }
        if self.waker.get().is_none()
            && let Ok(waker) = Waker::new()
        {
            // Only under the lock: nobody else sets it.
            let _ = self.waker.set(waker);
        }
        rang.sleepers += 1;
        Some(Sleeper(self))
    }

    /// The descriptor, for somebody who waits for it at any time.
    ///
    /// # Panics
    /// If it was made without one.
    pub fn expose(&self) -> BorrowedFd<'_> {
        let mut rang = self.lock();
        rang.exposed = true;
        if !rang.whom.is_empty() {
            self.signal(&mut rang);
        }
        let waker = self.waker.get();
        waker.expect("a bell made with a descriptor").as_fd()
    }

    /// The oldest ring that nobody has answered.
    pub fn answer(&self) -> Option<u64> {
        let mut rang = self.lock();
        let oldest = rang.whom.pop_front();
        self.fall_silent(&mut rang);
        oldest
    }

    /// Takes back what was rung for `whom`, who is gone.
    pub fn forget(&self, whom: u64) {
        let mut rang = self.lock();
        rang.whom.retain(|other| *other != whom);
        self.fall_silent(&mut rang);
    }

    /// When every ring is answered the descriptor is no longer readable.
    fn fall_silent(&self, rang: &mut Rang) {
        if rang.whom.is_empty()
            && std::mem::take(&mut rang.signaled)
            && let Some(waker) = self.waker.get()
        {
            waker.clear();
        }
    }

    fn signal(&self, rang: &mut Rang) {
        if !std::mem::replace(&mut rang.signaled, true)
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rang> {
        self.rang.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sleeper<'_> {
    /// What comes true when somebody rings; nothing if the process has no descriptor left.
    pub(crate) fn interest(&self) -> Option<Interest<'_>> {
        let waker = self.0.waker.get();
        waker.map(|waker| Interest::readable(waker.as_fd()))
    }

    /// When to look again by itself, because nothing would come true.
    pub(crate) fn look_again(&self, now: Instant) -> Option<Instant> {
        const PAUSE: Duration = Duration::from_millis(5);
        self.0.waker.get().is_none().then(|| now + PAUSE)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.lock().sleepers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use net::poll::wait;

    use super::*;

    fn readable(descriptor: BorrowedFd<'_>) -> bool {
        let ready = wait(&[Interest::readable(descriptor)], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    fn woken(sleeper: &Sleeper<'_>) -> bool {
        let interest = sleeper.interest().expect("a descriptor");
        let ready = wait(&[interest], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    #[test]
    fn who_sleeps_is_woken_and_who_comes_late_does_not_sleep() {
        let bell = Bell::new().expect("a descriptor");
        let sleeper = bell.sleep().expect("nobody rang");
        assert!(!woken(&sleeper));
        bell.ring(7);
        assert!(woken(&sleeper));
        drop(sleeper);
        assert!(bell.sleep().is_none());
        assert_eq!(bell.answer(), Some(7));
        assert!(!woken(&bell.sleep().expect("answered")));
    }

    #[test]
    fn nobody_hears_of_who_is_gone() {
        let bell = Bell::new().expect("a descriptor");
        bell.expose();
        bell.ring(1);
        bell.ring(2);
        bell.forget(1);
        assert!(readable(bell.expose()));
        bell.forget(2);
        assert!(!readable(bell.expose()));
        assert_eq!(bell.answer(), None);
    }

    #[test]
    fn a_descriptor_that_was_given_away_tells_every_ring() {
        let bell = Bell::new().expect("a descriptor");
        bell.ring(1);
        assert!(readable(bell.expose()));
        bell.ring(2);
        assert_eq!(bell.answer(), Some(1));
        assert!(readable(bell.expose()));
        assert_eq!(bell.answer(), Some(2));
        assert!(!readable(bell.expose()));
        bell.ring(3);
        assert!(readable(bell.expose()));
    }
}

//! Requests that come before anybody listens.
//!
//! Two programs that have agreed to talk often race: one connects while the other begins to listen. To
//! ask takes a kernel long enough for the listener to win; here it takes microseconds. So a request
//! that nobody listens for waits a little before it is refused: long enough for a listener on a busy
//! machine, and far shorter than the four seconds after which who asked would ask again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::management::Stray;

/// How often a request looks whether somebody listens, and how long in between.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(2);

/// More than these are refused at once.
const MOST: usize = 64;

/// Requests that wait, the next to look first.
#[derive(Default)]
pub(super) struct Doorstep {
    waiting: VecDeque<Waiting>,
}

pub(super) struct Waiting {
    pub(super) stray: Stray,
    at: Instant,
    attempts_left: u32,
}

impl Doorstep {
    /// Lets a request wait; gives it back if there are too many.
    pub(super) fn admit(&mut self, now: Instant, stray: Stray) -> Result<(), Stray> {
        if self.waiting.len() >= MOST {
            return Err(stray);
        }
        let attempts_left = ATTEMPTS;
        self.put(now, stray, attempts_left);
        Ok(())
    }

    /// Lets a request look again later; gives it back if it has waited long enough.
    pub(super) fn again(&mut self, now: Instant, waiting: Waiting) -> Result<(), Stray> {
        match waiting.attempts_left.checked_sub(1) {
            Some(left) => {
                self.put(now, waiting.stray, left);
                Ok(())
            }
            None => Err(waiting.stray),
        }
    }

    /// A request that is to look now.
    pub(super) fn due(&mut self, now: Instant) -> Option<Waiting> {
        match self.next_look() {
            Some(at) if at <= now => self.waiting.pop_front(),
            _ => None,
        }
    }

    /// When the next one looks.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.waiting.front().map(|it| it.at)
    }

    fn put(&mut self, now: Instant, stray: Stray, attempts_left: u32) {
        // All wait equally long, so that the last to come is the last to look.
        self.waiting.push_back(Waiting {
            stray,
            at: now + PAUSE,
            attempts_left,
        });
    }
}

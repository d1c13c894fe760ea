//! Waking those who wait for completions or events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use net::poll::Waker;

/// Rings when something happened: a descriptor that becomes readable, so that it can be waited for
/// together with others, and a list of who rang.
#[derive(Debug)]
pub(crate) struct Bell {
    waker: Waker,
    rang: Mutex<VecDeque<u64>>,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new()?,
            rang: Mutex::new(VecDeque::new()),
        })
    }

    /// Rings for `whom`.
    pub(crate) fn ring(&self, whom: u64) {
        let mut rang = self.rang.lock().unwrap_or_else(PoisonError::into_inner);
        rang.push_back(whom);
        self.waker.wake();
    }

    /// The oldest ring that nobody has answered. The descriptor is readable as long as there is one.
    pub(crate) fn answer(&self) -> Option<u64> {
        let mut rang = self.rang.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = rang.pop_front();
        if rang.is_empty() {
            self.waker.clear();
        }
        oldest
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

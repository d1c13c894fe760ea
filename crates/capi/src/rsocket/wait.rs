//! The wait of a thread for several sockets and ordinary descriptors.
//!
//! The thread sleeps on the sockets of a device itself, as one that waits for a completion does, so that a packet wakes it directly.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::{Driver, WaitSet, Watch};
use net::poll::Interest;

use super::connection::Connection;
use crate::errno::Errno;

/// How long to sleep at most if there are sockets: a change that wakes nobody is noticed then.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What a thread waits for. Whoever changes it afterwards wakes the thread.
pub(super) struct Wait {
    watch: Watch,
    /// The device whose packets the thread receives meanwhile: that of the first connection.
    driver: Option<Arc<Driver>>,
    descriptors: Vec<Interest<'static>>,
    has_sockets: bool,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self {
            watch: Watch::new(),
            driver: None,
            descriptors: Vec::new(),
            has_sockets: false,
        }
    }

    pub(super) fn enter(&mut self, set: &Arc<WaitSet>) {
        self.watch.enter(set);
    }

    pub(super) fn add_connection(&mut self, connection: &mut Connection) {
        connection.watch(&mut self.watch);
        if self.driver.is_none() && !connection.driver.is_inherited() {
            self.driver = Some(Arc::clone(&connection.driver));
        }
    }

    /// Adds the descriptor of a socket.
    pub(super) fn add_socket(&mut self, descriptor: RawFd) {
        self.add_descriptor(descriptor, libc::POLLIN);
        self.has_sockets = true;
    }

    /// Negative numbers are left out, as by `poll`.
    pub(super) fn add_descriptor(&mut self, fd: RawFd, events: i16) {
        if fd >= 0 {
            self.descriptors.push(Interest::of(fd, events));
        }
    }

    /// Sleeps until something has changed, a descriptor is ready, a signal arrives, which is EINTR, or the time ends.
    pub(super) fn sleep(&self, left: Option<Duration>) -> Result<(), Errno> {
        let longest = match (left, self.has_sockets) {
            (left, false) => left,
            (None, true) => Some(RECHECK_INTERVAL),
            (Some(left), true) => Some(left.min(RECHECK_INTERVAL)),
        };
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        let interrupted = match (&self.driver, until) {
            (Some(driver), Some(until)) => {
                driver.sleep_watching(&self.watch, &self.descriptors, until)?
            }
            _ => self.watch.sleep(&self.descriptors, until)?,
        };
        if interrupted {
            Err(Errno(libc::EINTR))
        } else {
            Ok(())
        }
    }
}

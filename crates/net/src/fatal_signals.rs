//! SIGINT, SIGQUIT and SIGTERM, before they end the process: a thread of the library can report something first.
//!
//! A program that handles or ignores such a signal is left alone. A program that does neither ends as before, by the same
//! signal; meanwhile its thread that got the signal does nothing else.

use std::time::Duration;

use crate::sys::{fatal_signals as sys, signal};

/// Work for the reporting thread, up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u32);

/// What the reporting thread has seen so far. Work that comes later ends its next [`wait`].
#[must_use]
pub fn seen() -> Seen {
    Seen(sys::work())
}

/// Waits for work that was not seen, for at most this long.
pub fn wait(seen: Seen, timeout: Option<Duration>) {
    sys::wait_for_work(seen.0, timeout);
}

/// Tells the reporting thread that there is work.
pub fn wake() {
    sys::add_work();
}

/// Makes this thread the reporting thread: it gets no signals.
pub fn begin_reporting() {
    signal::block_all();
}

/// From now on, signals that would end this process wait for [`reported`], and [`wake`] the reporting thread.
pub fn intercept() {
    sys::intercept();
}

/// Reverts [`intercept`].
pub fn release() {
    sys::release();
}

/// The name of a signal that is about to end this process.
#[must_use]
pub fn received() -> Option<&'static str> {
    match sys::received()? {
        libc::SIGINT => Some("SIGINT"),
        libc::SIGQUIT => Some("SIGQUIT"),
        libc::SIGTERM => Some("SIGTERM"),
        _ => None,
    }
}

/// Lets the signal end the process.
pub fn reported() {
    sys::let_end();
}

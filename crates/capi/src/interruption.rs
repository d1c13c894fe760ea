//! Signals and thread cancellation in blocking calls.
//!
//! A thread may be cancelled while it waits. The C library then unwinds its stack, which must not happen in
//! Rust code. So cancellation is disabled inside every call, and a blocking call leaves the Rust code at
//! intervals to allow it.

use std::ffi::c_int;
use std::time::Duration;

/// How long a blocking call sleeps before it checks for cancellation. A cancelled thread continues for at
/// most this long.
pub(crate) const CANCELLATION_CHECK_INTERVAL: Duration = Duration::from_millis(250);

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, former: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// While it exists, this thread is not cancelled.
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut former = 0;
        // SAFETY: writes the former state to a live variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut former) };
        Self(former)
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a state that `begin` got; null means that nothing is written.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// Ends the thread here if it was cancelled. The stack must not hold anything that needs dropping, up to the
/// program's own frame.
#[inline]
pub(crate) fn cancellation_point() {
    // SAFETY: takes nothing. If it unwinds, it does so through this function, `wait` and an entry point,
    // which by the promise above have nothing to drop.
    unsafe { pthread_testcancel() };
}

/// Whether a signal that arrived ends a call with EINTR: the program has a handler without SA_RESTART. The
/// kernel does not say which signal it was, so any handler counts.
pub(crate) fn signals_end_calls() -> bool {
    /// Faults of the thread itself, which do not occur while it sleeps.
    const FAULTS: [c_int; 5] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
    ];
    let mut signals = (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal));
    signals.any(|signal| {
        handler_of(signal).is_some_and(|action| {
            let handles = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            handles && action.sa_flags & libc::SA_RESTART == 0
        })
    })
}

fn handler_of(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: numbers and an optional function pointer, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only queries, and writes to the live structure.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    (known == 0).then_some(action)
}

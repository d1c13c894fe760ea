//! Signals and cancellation, as calls that wait have to take them.
//!
//! A thread may be cancelled while it waits. The C library then unwinds its stack, which Rust code must
//! not meet: so cancellation is held back inside of every call, and calls that wait come out of it now
//! and then to let it happen.

use std::ffi::c_int;
use std::time::Duration;

/// How long a cancelled thread may go on waiting.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, former: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// As long as it lives, this thread is not cancelled.
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
        // SAFETY: a state that it gave us; nothing is to be written.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// Ends the thread here if it was cancelled. Nothing that has to be dropped may be on the stack up to
/// the program's own frame.
#[inline]
pub(crate) fn cancellation_point() {
    // SAFETY: takes nothing. If it unwinds, then through this function, `wait` and an entry point, which
    // by the promise above have nothing to drop.
    unsafe { pthread_testcancel() };
}

/// Whether a signal that came ends a call with EINTR: some handler of the program's wants that. Which
/// signal it was, nobody tells.
pub(crate) fn signals_end_calls() -> bool {
    /// About the thread itself, and never while it sleeps.
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
    // SAFETY: numbers, a pointer-sized number and an optional function pointer: zero is a value of all.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only, and writes to the live structure.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    (known == 0).then_some(action)
}

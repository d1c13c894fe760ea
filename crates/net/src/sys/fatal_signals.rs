//! The handler of signals that would end the process.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use super::{fork, futex};
use crate::times::GIVE_UP_AFTER;

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Changes when the reporting thread has something to do.
static WORK: AtomicU32 = AtomicU32::new(0);

/// The fork generation whose thread reports. The child of a fork has the handler, but no such thread.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The signal that waits; 0 if there is none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// 1 when the report is written.
static REPORTED: AtomicU32 = AtomicU32::new(0);

/// The work of the reporting thread up to now, as a number.
pub(crate) fn work() -> u32 {
    WORK.load(Ordering::Acquire)
}

/// Waits for later work, for at most this long.
pub(crate) fn wait_for_work(seen: u32, timeout: Option<Duration>) {
    futex::wait(&WORK, seen, timeout);
}

/// Wakes the reporting thread.
pub(crate) fn add_work() {
    WORK.fetch_add(1, Ordering::Release);
    futex::wake(&WORK);
}

/// Replaces the default action of the signals.
pub(crate) fn intercept() {
    GENERATION.store(fork::forks(), Ordering::Release);
    for signal in SIGNALS {
        replace(signal, libc::SIG_DFL, handle as *const () as usize);
    }
}

/// Restores the default action, unless the program has replaced the handler.
pub(crate) fn release() {
    for signal in SIGNALS {
        replace(signal, handle as *const () as usize, libc::SIG_DFL);
    }
}

/// The signal that waits for the report.
pub(crate) fn received() -> Option<libc::c_int> {
    Some(RECEIVED.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// Ends the wait of the signal.
pub(crate) fn let_end() {
    REPORTED.store(1, Ordering::Release);
    futex::wake(&REPORTED);
}

/// Sets the action of a signal, if it is `before`.
fn replace(signal: libc::c_int, before: usize, action: usize) {
    // SAFETY: numbers and an empty set, for which zero is valid.
    let mut current: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: only queries, and writes to the live structure.
    let known = unsafe { libc::sigaction(signal, ptr::null(), &raw mut current) } == 0;
    if !known || current.sa_sigaction != before {
        return;
    }
    // SAFETY: as above.
    let mut wanted: libc::sigaction = unsafe { mem::zeroed() };
    wanted.sa_sigaction = action;
    // The default action interrupts no call that goes on, so this must not, either.
    wanted.sa_flags = libc::SA_RESTART;
    // SAFETY: reads the live structure. The action is the default one, or the handler below, which calls only functions
    // that are safe in a handler: system calls, and accesses to atomics.
    unsafe { libc::sigaction(signal, &raw const wanted, ptr::null_mut()) };
}

extern "C" fn handle(signal: libc::c_int) {
    if GENERATION.load(Ordering::Acquire) == fork::forks() {
        RECEIVED.store(signal, Ordering::Release);
        add_work();
        // The thread that got the signal may hold a lock that the report needs.
        futex::wait(&REPORTED, 0, Some(GIVE_UP_AFTER));
    }
    replace(signal, handle as *const () as usize, libc::SIG_DFL);
    // SAFETY: takes no pointers. The signal is blocked until this handler returns, and then ends the process.
    unsafe { libc::raise(signal) };
}

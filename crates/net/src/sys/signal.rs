//! The signal mask of a thread, and signals to this process.

use std::mem::MaybeUninit;
use std::ptr;

/// Unblocks these signals for this thread.
pub(crate) fn unblock(signals: &[i32]) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills in the live set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: adds to the set that was filled in.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: reads that set; nothing is to be written.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) };
}

/// Sends a signal to this process.
pub(crate) fn send_to_self(signal: i32) {
    let process = std::process::id() as libc::pid_t;
    // SAFETY: takes no pointers. The signal stops or ends this process, which needs no memory of it.
    unsafe { libc::kill(process, signal) };
}

/// Whether this thread blocks the signal.
#[cfg(test)]
pub(crate) fn is_blocked(signal: i32) -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: changes nothing, and fills in the live set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr()) };
    // SAFETY: reads the set that was filled in.
    unsafe { libc::sigismember(set.as_ptr(), signal) == 1 }
}

/// Makes this thread block all signals.
#[cfg(test)]
pub(crate) fn block_all() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills in the live set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: reads that set; nothing is to be written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) };
}

//! The signal mask of a thread.

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

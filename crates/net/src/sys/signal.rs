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

/// The signals that a thread blocks, as the kernel counts them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask(u64);

impl Mask {
    pub(crate) const ALL: Self = Self(u64::MAX);

    fn of(signal: i32) -> Self {
        Self(1 << (signal - 1))
    }
}

/// Blocks a signal for this thread, and returns the previous mask.
pub(crate) fn block(signal: i32) -> Mask {
    change_mask(libc::SIG_BLOCK, Mask::of(signal))
}

/// Sets which signals this thread blocks, and returns the previous mask.
pub(crate) fn restore(mask: Mask) -> Mask {
    change_mask(libc::SIG_SETMASK, mask)
}

/// It does not use the C library, which keeps some signals for itself.
fn change_mask(how: libc::c_int, mask: Mask) -> Mask {
    let mut before = 0_u64;
    // SAFETY: the kernel reads and writes the live masks, of which it knows the size.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const mask.0,
            &raw mut before,
            size_of_val(&before),
        )
    };
    Mask(before)
}

/// Whether a signal that this thread blocks waits for it.
pub(crate) fn pending(signal: i32) -> bool {
    let mut pending = 0_u64;
    // SAFETY: the kernel writes the live mask, of which it knows the size.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigpending,
            &raw mut pending,
            size_of_val(&pending),
        )
    };
    pending & Mask::of(signal).0 != 0
}

/// Discards a signal that is pending and blocked. It does not use the C library, where it would be a point at which a
/// thread can be cancelled.
pub(crate) fn take_pending(signal: i32) {
    let mask = Mask::of(signal).0;
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let nothing = ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: the kernel reads the live mask, of which it knows the size, and the live time. No information is wanted.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const mask,
            nothing,
            &raw const at_once,
            size_of_val(&mask),
        )
    };
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
pub(crate) fn block_all() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills in the live set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: reads that set; nothing is to be written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) };
}

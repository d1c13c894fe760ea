//! Waiting for a number in memory to change. It needs no descriptor and no lock, so a signal handler may use it.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits while the number is `value`, for at most this long. It may return early.
pub(crate) fn wait(number: &AtomicU32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the live number, and the live time if there is one.
    unsafe { libc::syscall(libc::SYS_futex, number.as_ptr(), operation, value, timeout) };
}

/// Wakes all that wait for the number to change.
pub(crate) fn wake(number: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel takes the address of the live number as a name.
    unsafe { libc::syscall(libc::SYS_futex, number.as_ptr(), operation, i32::MAX) };
}

//! Calls at the end of the process.

/// Calls `hook` when the process ends. If the system has no memory for it, it is not called.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: the function is in this library, which stays loaded or calls its functions when it is unloaded.
    unsafe { libc::atexit(hook) };
}

/// Writes the buffered output of the C library, and ends the process.
pub(crate) fn flush_and_exit(status: i32) -> ! {
    // SAFETY: null stands for all open streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: it takes any number and does not return.
    unsafe { libc::_exit(status) }
}

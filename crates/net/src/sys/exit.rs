//! Calls at the end of the process.

/// The C library calls it after all functions that were registered with `atexit`.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = run_hooks;

extern "C" fn run_hooks() {
    crate::exit_hooks::run();
}

/// Writes the buffered output of the C library, and ends the process.
pub(crate) fn flush_and_exit(status: i32) -> ! {
    // SAFETY: null stands for all open streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: it takes any number and does not return.
    unsafe { libc::_exit(status) }
}

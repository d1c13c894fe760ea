//! Calls at the end of the process.

use std::sync::OnceLock;

static HOOK: OnceLock<fn()> = OnceLock::new();

/// The C library calls it after all functions that were registered with `atexit`.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = run_hook;

extern "C" fn run_hook() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}

/// Calls the first hook that is given when the process ends.
pub(crate) fn at_exit(hook: fn()) {
    HOOK.get_or_init(|| hook);
}

/// Writes the buffered output of the C library, and ends the process.
pub(crate) fn flush_and_exit(status: i32) -> ! {
    // SAFETY: null stands for all open streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: it takes any number and does not return.
    unsafe { libc::_exit(status) }
}

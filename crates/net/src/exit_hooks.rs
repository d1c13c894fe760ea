//! Functions that run when the process ends.

use std::sync::{Mutex, PoisonError};

use crate::sys::exit;

static HOOKS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Calls `hook` when the process ends by `exit` or by a return from `main`.
pub fn at_exit(hook: fn()) {
    let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    if hooks.is_empty() {
        exit::at_exit(run_hooks);
    }
    hooks.push(hook);
}

extern "C" fn run_hooks() {
    let hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for hook in hooks {
        // Nothing may unwind into the C library.
        let _ = std::panic::catch_unwind(hook);
    }
}

/// Ends the process with this status, in a hook of [`at_exit`]. Output of the C library that is still buffered is
/// written first; other hooks that would follow are not called.
pub fn exit_now(status: i32) -> ! {
    exit::flush_and_exit(status)
}

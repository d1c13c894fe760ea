//! Functions that run when the process ends, after those that the program has registered with `atexit`: a program may use
//! its devices there. No thread-local variable that a call may reach has a destructor, because those of the main thread run before.

use std::mem;
use std::sync::{Mutex, PoisonError};

use crate::sys::exit;
use crate::thread_sanitizer::{self, Unobserved};

type Hook = (Stage, fn());

static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

/// What a hook does. Hooks run in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Closes connections.
    Connections,
    /// Sends packets that wait.
    Packets,
    /// Completes captures, and names their files.
    Captures,
    /// Reports what the check has found. It may end the process with a status of its own.
    Check,
}

/// Calls `hook` when the process ends by `exit` or by a return from `main`.
pub fn at_exit(stage: Stage, hook: fn()) {
    let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    hooks.push((stage, hook));
    exit::at_exit(run);
}

fn run() {
    let _unobserved = Unobserved::begin();
    let mut hooks = mem::take(&mut *HOOKS.lock().unwrap_or_else(PoisonError::into_inner));
    hooks.sort_by_key(|(stage, _)| *stage);
    for (_, hook) in hooks {
        // Nothing may unwind into the C library.
        let _ = std::panic::catch_unwind(hook);
    }
}

/// Ends the process with this status, in the last hook of [`at_exit`]. Output of the C library that is still buffered is
/// written first.
pub fn exit_now(status: i32) -> ! {
    // ThreadSanitizer demands that the last thread is looked at when it ends.
    thread_sanitizer::end_unobserved();
    exit::flush_and_exit(status)
}

//! Calls of the engine do not nest: a lane's lock is held while one runs.

use std::cell::Cell;

thread_local! {
    /// Whether this thread runs the work of a call.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// This thread runs the work of a call.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        RUNS.set(false);
    }
}

/// Runs the work of a call. The caller holds a lane's lock.
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    RUNS.set(true);
    let _running = Running;
    work()
}

/// Checks that this thread may wait for a lane's lock.
///
/// # Panics
/// Within the work of a call: it would wait for itself.
#[track_caller]
pub(crate) fn assert_none_runs() {
    assert!(
        !RUNS.get(),
        "a device was used within a call of a driver, whose lock this thread holds: it would wait forever. \
         Return from the call first"
    );
}

//! The signals of the library's own threads, and those that injected faults send.

use crate::sys::signal;

/// Unblocks SIGSEGV and SIGBUS for this thread.
///
/// A thread inherits the signal mask of the program, which may block everything. A fault whose
/// signal is blocked ends the process without calling the handler that could have handled it.
pub fn unblock_faults() {
    signal::unblock(&[libc::SIGSEGV, libc::SIGBUS]);
}

/// Stops this process, until it gets SIGCONT.
pub fn stop_process() {
    signal::send_to_self(libc::SIGSTOP);
}

/// Ends this process at once. No handler runs.
pub fn kill_process() {
    signal::send_to_self(libc::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_unblocked_and_nothing_else() {
        std::thread::spawn(|| {
            signal::block_all();
            unblock_faults();
            assert!(!signal::is_blocked(libc::SIGSEGV));
            assert!(!signal::is_blocked(libc::SIGBUS));
            assert!(signal::is_blocked(libc::SIGINT));
        })
        .join()
        .expect("the thread ends");
    }
}

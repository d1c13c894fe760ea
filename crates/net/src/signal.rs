//! Signals of threads of our own.

use crate::sys::signal;

/// Lets this thread take SIGSEGV and SIGBUS.
///
/// A thread inherits what the program blocks, which may be everything. A fault at a blocked signal
/// ends the process without a call of the handler that could have answered it.
pub fn unblock_faults() {
    signal::unblock(&[libc::SIGSEGV, libc::SIGBUS]);
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

//! Writes of a process that may not make files large (`ulimit -f`, RLIMIT_FSIZE).

use super::signal::{block, pending, restore, take_pending};

/// Calls `write`, which fails with EFBIG if it would make a file larger than the process may. The kernel then also sends
/// SIGXFSZ to this thread, which ends a program; that signal is discarded.
pub(crate) fn without_signal<T>(write: impl FnOnce() -> T) -> T {
    if super::process::file_size_limit() == libc::RLIM_INFINITY {
        return write();
    }
    let before = block(libc::SIGXFSZ);
    // One that the program has blocked and not handled yet stays for it. The kernel keeps one of a kind.
    let was_pending = pending(libc::SIGXFSZ);
    let result = write();
    if !was_pending && pending(libc::SIGXFSZ) {
        take_pending(libc::SIGXFSZ);
    }
    restore(before);
    result
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sys::process::{end, fork, limit_file_size};
    use crate::sys::shared_memory::SharedMemory;
    use crate::sys::signal::{is_blocked, send_to_self};

    /// The results of `write` in a process that may write files of 1000 bytes.
    fn in_limited_process<const N: usize>(write: impl FnOnce() -> [u8; N]) -> [u8; N] {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = fork(|| {
            limit_file_size(1000);
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&write());
        });
        drop(theirs);
        let mut result = [0; N];
        let read = ours.read_exact(&mut result);
        end(child);
        read.expect("no signal has ended the process");
        result
    }

    fn is_too_large(result: io::Result<()>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG))
    }

    #[test]
    fn a_write_beyond_the_limit_fails_without_a_signal() {
        let path = std::env::temp_dir().join(format!("roci-too-large-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let results = in_limited_process(|| {
            let fits = without_signal(|| file.write_all(&[1; 1000])).is_ok();
            let fails = without_signal(|| file.write_all(&[1]));
            let length = without_signal(|| file.set_len(1001));
            let blocked = is_blocked(libc::SIGXFSZ) || pending(libc::SIGXFSZ);
            [fits, is_too_large(fails), is_too_large(length), blocked].map(u8::from)
        });
        std::fs::remove_file(path).unwrap();
        assert_eq!(results, [1, 1, 1, 0]);
    }

    #[test]
    fn a_signal_of_the_program_stays_pending() {
        let results = in_limited_process(|| {
            block(libc::SIGXFSZ);
            send_to_self(libc::SIGXFSZ);
            without_signal(|| ());
            [pending(libc::SIGXFSZ), is_blocked(libc::SIGXFSZ)].map(u8::from)
        });
        assert_eq!(results, [1, 1]);
    }

    #[test]
    fn shared_memory_beyond_the_limit_is_an_error() {
        let results = in_limited_process(|| {
            let created = SharedMemory::create(8192).map(drop);
            [u8::from(is_too_large(created))]
        });
        assert_eq!(results, [1]);
    }
}

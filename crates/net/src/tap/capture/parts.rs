//! The files of one capture: one for each process, and two for a ring.

use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Instant;

use super::file_per_process::with_reader;
use super::{Capture, CaptureError, Limits, file_per_process};
use crate::exit_hooks::{Stage, at_exit};
use crate::fork;

/// The captures of this process.
#[derive(Debug)]
struct Own {
    /// By the names they were asked for.
    captures: Vec<(PathBuf, Weak<Capture>)>,
    /// The pipes that have no reader, and since when this process wants one.
    without_reader: Vec<(PathBuf, Instant)>,
}

static OWN: Mutex<Own> = Mutex::new(Own {
    captures: Vec::new(),
    without_reader: Vec::new(),
});

/// A file has everything that was flushed, but a pipe has only what its reader has made room for.
static END_AT_EXIT: Once = Once::new();

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`Capture::shared`].
pub(super) fn shared(name: &Path, limits: Limits) -> Result<Arc<Capture>, CaptureError> {
    with_reader(|| own().find_or_open(name, limits))
}

impl Own {
    /// The capture of a name, and since when its reader is wanted.
    fn find_or_open(
        &mut self,
        name: &Path,
        limits: Limits,
    ) -> (Result<Arc<Capture>, CaptureError>, Instant) {
        let found = self.try_find_or_open(name, limits);
        let wanted = self.without_reader.iter().position(|(it, _)| it == name);
        if !matches!(found, Err(CaptureError::NoReader(_))) {
            wanted.map(|at| self.without_reader.swap_remove(at));
            return (found, Instant::now());
        }
        let at = wanted.unwrap_or_else(|| {
            self.without_reader.push((name.to_owned(), Instant::now()));
            self.without_reader.len() - 1
        });
        (found, self.without_reader[at].1)
    }

    fn try_find_or_open(
        &mut self,
        name: &Path,
        limits: Limits,
    ) -> Result<Arc<Capture>, CaptureError> {
        self.captures.retain(|(_, it)| it.strong_count() > 0);
        let found = self.captures.iter().filter(|(asked, _)| asked == name);
        // A forked child leaves the capture to its parent.
        let is_ours = |capture: &Arc<Capture>| capture.generation == fork::generation();
        let mut found = found.filter_map(|(_, capture)| capture.upgrade());
        if let Some(capture) = found.find(is_ours) {
            return Ok(capture);
        }
        let capture = Arc::new(Capture::open(name, limits)?);
        if capture.is_pipe() {
            END_AT_EXIT.call_once(|| at_exit(Stage::Captures, end_own));
        }
        let known = (name.to_owned(), Arc::downgrade(&capture));
        self.captures.push(known);
        Ok(capture)
    }
}

/// Ends the captures of this process, and returns the files that the processes of this `roci run` have written, if
/// none of them is writing any more. The name is the one that the user gave.
///
/// The captures are ended first: of two processes that end at the same time, at least one finds no other.
pub fn parts_of_ended_run(name: &Path) -> Vec<PathBuf> {
    end_own();
    let parts = parts(name);
    let is_being_written = |part: &PathBuf| {
        let locked = File::open(part).map(|file| file.try_lock());
        matches!(locked, Ok(Err(TryLockError::WouldBlock)))
    };
    if parts.iter().any(is_being_written) {
        return Vec::new();
    }
    parts
}

/// Ends the captures of this process.
fn end_own() {
    let own = own();
    let captures: Vec<_> = (own.captures.iter())
        .filter_map(|(_, it)| it.upgrade())
        .collect();
    drop(own);
    captures.iter().for_each(|capture| capture.end());
}

/// All files of this run whose names can come from this one.
fn parts(name: &Path) -> Vec<PathBuf> {
    let directory = directory_of(name);
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().as_bytes().to_vec();
    let stem = text(name.file_stem());
    // What follows stands for the process.
    let end = stem.windows(2).position(|pair| pair == b"%p");
    let start = &stem[..end.unwrap_or(stem.len())];
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut parts: Vec<_> = entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(start))
        .map(|entry| entry.path())
        .filter(|path| text(path.extension()) == text(name.extension()))
        .filter(|path| file_per_process::was_written_by_run(path))
        .collect();
    parts.sort();
    parts
}

fn directory_of(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};
    use crate::tap::capture::file_per_process::READER_TIMEOUT;

    /// A program may open several devices, with several threads.
    #[test]
    fn a_process_waits_once_for_the_reader_of_a_pipe() {
        let pipe = std::env::temp_dir().join(format!("roci-unread-{}", std::process::id()));
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let limits = Limits::default();
        let begin = Instant::now();
        let error = shared(&pipe, limits).unwrap_err().to_string();
        assert!(error.contains("no process reads the pipe"), "{error}");
        assert!(begin.elapsed() >= READER_TIMEOUT);
        let open_again = || {
            // The standard library panics if it can't sleep.
            forbid(Forbidden {
                call: libc::SYS_clock_nanosleep,
                argument: 0,
                value: libc::CLOCK_MONOTONIC,
                errno: libc::EPERM,
            });
            shared(&pipe, limits).unwrap_err();
        };
        thread::scope(|scope| scope.spawn(open_again).join().unwrap());
        // It is opened for writing, too, because opening an end alone waits for the other one.
        let reader = File::options().read(true).write(true).open(&pipe).unwrap();
        let capture = shared(&pipe, limits).unwrap();
        let own = own();
        assert!(own.without_reader.iter().all(|(it, _)| *it != pipe));
        drop(own);
        drop((capture, reader));
        fs::remove_file(pipe).unwrap();
    }

    #[test]
    fn a_name_without_a_directory_is_in_the_current_one() {
        assert_eq!(directory_of(Path::new("capture.pcapng")), Path::new("."));
        assert_eq!(directory_of(Path::new("/tmp/a")), Path::new("/tmp"));
        assert_eq!(directory_of(Path::new("here/a")), Path::new("here"));
    }
}

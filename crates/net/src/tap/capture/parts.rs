//! The files of one capture: one for each process, and two for a ring.

use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use super::{Capture, CaptureError, Limits, file_per_process};
use crate::exit_hooks::{Stage, at_exit};
use crate::fork;

/// The captures of this process, by the names they were asked for.
static OWN: Mutex<Vec<(PathBuf, Weak<Capture>)>> = Mutex::new(Vec::new());

/// A file has everything that was flushed, but a pipe has only what its reader has made room for.
static END_AT_EXIT: Once = Once::new();

fn own() -> MutexGuard<'static, Vec<(PathBuf, Weak<Capture>)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`Capture::shared`].
pub(super) fn shared(name: &Path, limits: Limits) -> Result<Arc<Capture>, CaptureError> {
    let mut own = own();
    own.retain(|(_, capture)| capture.strong_count() > 0);
    let found = own.iter().filter(|(asked, _)| asked == name);
    // A forked child leaves the capture to its parent.
    let is_ours = |capture: &Arc<Capture>| capture.generation == fork::generation();
    let mut found = found.filter_map(|(_, capture)| capture.upgrade());
    if let Some(capture) = found.find(is_ours) {
        return Ok(capture);
    }
    let capture = Arc::new(Capture::create_limited(name, limits)?);
    if capture.is_pipe() {
        END_AT_EXIT.call_once(|| at_exit(Stage::Captures, end_own));
    }
    own.push((name.to_owned(), Arc::downgrade(&capture)));
    Ok(capture)
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
    let captures: Vec<_> = own().iter().filter_map(|(_, it)| it.upgrade()).collect();
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
    use super::*;

    #[test]
    fn a_name_without_a_directory_is_in_the_current_one() {
        assert_eq!(directory_of(Path::new("capture.pcapng")), Path::new("."));
        assert_eq!(directory_of(Path::new("/tmp/a")), Path::new("/tmp"));
        assert_eq!(directory_of(Path::new("here/a")), Path::new("here"));
    }
}

//! Gives each process its own capture file, even if many use the same name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::CaptureError;
use crate::sys;
use crate::times::{GIVE_UP_AFTER, TICK};

/// The maximum number of captures that one process can have under one name.
pub(super) const ATTEMPTS: u32 = 100;

/// How long a process waits for the reader of a pipe, which is often started at the same time.
pub(super) const READER_TIMEOUT: Duration = GIVE_UP_AFTER.saturating_mul(10);

/// How many bytes of a file are searched for the mark of a run.
const LONGEST_HEADER: usize = 1024;

/// The first bytes of a pcapng file, in either byte order.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Opens the first candidate file that no process is writing to, and empties it unless this run has
/// written it.
///
/// A lock shows whether a process is writing. The kernel releases it when its owner ends in any
/// way, so there is nothing to clean up.
///
/// Never waits for the reader of a pipe; see [`with_reader`].
pub(super) fn open(name: &Path) -> Result<(PathBuf, File), CaptureError> {
    let process = std::process::id();
    let name = expanded(name, process);
    let mut attempt = 0;
    loop {
        let path = candidate(&name, process, attempt);
        let file = open_alone(&path, attempt);
        if file.as_ref().is_err_and(|it| is_without_reader(it, &path)) {
            return Err(CaptureError::NoReader(path));
        }
        match file.map_err(|error| CaptureError::Create {
            path: path.clone(),
            error,
        })? {
            Some(file) => return Ok((path, file)),
            None => attempt += 1,
        }
    }
}

/// Opens the file; `None` if another process is writing to it.
fn open_alone(path: &Path, attempt: u32) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    // The file is emptied only under the lock, because it may be the capture of another process.
    let options = options.write(true).create(true).truncate(false);
    let mut file = open_for_reader(options, path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => return Ok(None),
        // The file system has no locks: a name with the process id is unique enough.
        Err(TryLockError::Error(_)) if attempt == 0 => return Ok(None),
        Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
    }
    // A pipe to a waiting Wireshark cannot and need not be emptied.
    let found = file.metadata()?;
    if found.is_file() {
        if was_written_here(&found, path) || was_written_by_run(path) {
            file.seek(SeekFrom::End(0))?;
        } else {
            file.set_len(0)?;
        }
    }
    Ok(Some(file))
}

/// Repeats an attempt to open a capture while its file is a pipe without a reader, until the time is up. The attempt tells when the
/// wait has begun.
pub(super) fn with_reader<T>(
    mut attempt: impl FnMut() -> (Result<T, CaptureError>, Instant),
) -> Result<T, CaptureError> {
    loop {
        match attempt() {
            (Err(CaptureError::NoReader(_)), begun) if begun.elapsed() < READER_TIMEOUT => {
                sleep(2 * TICK);
            }
            (opened, _) => return opened,
        }
    }
}

/// Opens a file. A pipe without a reader is an error.
fn open_for_reader(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    sys::process::make_blocking(file.as_fd())?;
    Ok(file)
}

fn is_without_reader(error: &io::Error, path: &Path) -> bool {
    let is_pipe = || fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    error.raw_os_error() == Some(libc::ENXIO) && is_pipe()
}

/// Whether this process has written the file before: a device that is opened again appends to it. A
/// file system reuses the inode number of a removed file, so the file must also begin like a
/// capture.
fn was_written_here(found: &Metadata, path: &Path) -> bool {
    static WRITTEN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_known = !written.insert((found.dev(), found.ino()));
    is_known && beginning_of(path).starts_with(&SECTION_HEADER)
}

/// Whether a process of the same `roci run` has begun the file.
pub(super) fn was_written_by_run(path: &Path) -> bool {
    let Some(mark) = run_mark() else {
        return false;
    };
    let beginning = beginning_of(path);
    let mut parts = beginning.windows(mark.len());
    parts.any(|part| part == mark.as_bytes())
}

/// The first bytes of a file; empty if it cannot be read.
fn beginning_of(path: &Path) -> Vec<u8> {
    let mut beginning = vec![0; LONGEST_HEADER];
    let read = File::open(path).and_then(|file| file.read_at(&mut beginning, 0));
    beginning.truncate(read.unwrap_or(0));
    beginning
}

/// The mark in a capture that names its run.
pub(super) fn run_mark() -> Option<String> {
    let run = std::env::var("ROCI_RUN").ok()?;
    Some(format!("roci run {run};")).filter(|_| !run.is_empty())
}

fn expanded(name: &Path, process: u32) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = name.as_os_str().as_bytes();
    while let Some(position) = rest.windows(2).position(|pair| pair == b"%p") {
        bytes.extend_from_slice(&rest[..position]);
        bytes.extend_from_slice(process.to_string().as_bytes());
        rest = &rest[position + 2..];
    }
    bytes.extend_from_slice(rest);
    OsString::from_vec(bytes).into()
}

/// `trace.pcapng`, `trace-4711.pcapng`, `trace-4711-2.pcapng` and so on.
fn candidate(name: &Path, process: u32, attempt: u32) -> PathBuf {
    match attempt {
        0 => name.to_owned(),
        1 => with_suffix(name, &process.to_string()),
        more => with_suffix(name, &format!("{process}-{more}")),
    }
}

/// `trace-SUFFIX.pcapng`.
pub(super) fn with_suffix(name: &Path, suffix: &str) -> PathBuf {
    let mut file_name = name.file_stem().unwrap_or_default().to_owned();
    file_name.push("-");
    file_name.push(suffix);
    if let Some(extension) = name.extension() {
        file_name.push(".");
        file_name.push(extension);
    }
    name.with_file_name(file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_replaces_its_placeholder() {
        let name = |text: &str| expanded(Path::new(text), 42).display().to_string();
        assert_eq!(name("a-%p.pcapng"), "a-42.pcapng");
        assert_eq!(name("%p/%p"), "42/42");
        assert_eq!(name("100%.pcapng"), "100%.pcapng");
    }

    #[test]
    fn other_names_keep_the_extension() {
        let name = |attempt| candidate(Path::new("/tmp/a.b.pcapng"), 42, attempt);
        assert_eq!(name(0), Path::new("/tmp/a.b.pcapng"));
        assert_eq!(name(1), Path::new("/tmp/a.b-42.pcapng"));
        assert_eq!(name(2), Path::new("/tmp/a.b-42-2.pcapng"));
        assert_eq!(candidate(Path::new("trace"), 42, 1), Path::new("trace-42"));
    }
}

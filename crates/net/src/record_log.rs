//! A log of records that the processes of a user on this machine share.
//!
//! It is a file in the directory of the user, which only the user can enter. Each process appends records of one size;
//! all read them in the same order. The system appends each write as a whole, so the log needs no lock, and a process that
//! dies leaves whole records. The last process removes the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::fork;
use crate::port_sharing::{DirectoryError, RuntimeDirectory};
use crate::sys::{file_hole, file_size};

/// How many bytes are kept. Older ones become zeros.
const KEPT: u64 = 64 << 20;

/// How often older bytes are given back.
const DISCARD_STEP: u64 = 16 << 20;

/// If older bytes cannot be given back, the log ends at this size.
const MAX_BYTES: u64 = 1 << 30;

/// How often a file that another process removes meanwhile is opened again.
const MAX_ATTEMPTS: usize = 16;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;

/// The log, as one process sees it.
#[derive(Debug)]
pub struct RecordLog {
    file: File,
    path: PathBuf,
    record: usize,
    /// How far it was read.
    read: u64,
    /// Up to where older bytes were given back.
    discarded: u64,
    buffer: Vec<u8>,
    /// The fork generation of the process that opened it.
    generation: u32,
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LogError(String);

impl RecordLog {
    /// Opens the log of this name, and creates it if it does not exist. Records before this moment are not read.
    pub fn open(name: &str, record: usize) -> Result<Self, LogError> {
        let directory = RuntimeDirectory::of_user();
        let directory = directory.map_err(|error: DirectoryError| LogError(error.to_string()))?;
        Self::open_at(&directory.path().join(name), record)
            .map_err(|error| LogError(error.to_string()))
    }

    fn open_at(path: &Path, record: usize) -> io::Result<Self> {
        for _ in 0..MAX_ATTEMPTS {
            let file = (OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600))
            .open(path)?;
            // The process that removes the file holds the other lock meanwhile.
            file.lock_shared()?;
            let opened = file.metadata()?;
            let present = fs::symlink_metadata(path);
            if present.is_ok_and(|it| (it.dev(), it.ino()) == (opened.dev(), opened.ino())) {
                return Ok(Self {
                    file,
                    path: path.to_owned(),
                    record,
                    read: opened.len(),
                    discarded: 0,
                    buffer: vec![0; READ_BYTES - READ_BYTES % record],
                    generation: fork::generation(),
                });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Appends records, which must be whole.
    pub fn append(&mut self, records: &[u8]) -> io::Result<()> {
        assert!(
            records.len().is_multiple_of(self.record),
            "records are whole"
        );
        if records.is_empty() {
            return Ok(());
        }
        let written = file_size::without_signal(|| (&self.file).write(records))?;
        if written != records.len() {
            // Records after a part of one cannot be read.
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Passes the records that were appended since the last call to `take`, in whole records.
    pub fn read_new(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            let length = self.file.read_at(&mut self.buffer, self.read)?;
            let whole = length - length % self.record;
            self.read += whole as u64;
            take(&self.buffer[..whole]);
            if length < self.buffer.len() {
                // The end, when it was read.
                return self.discard();
            }
        }
    }

    /// Gives old records back to the system.
    fn discard(&mut self) -> io::Result<()> {
        let old = self.read.saturating_sub(KEPT);
        if old < self.discarded.saturating_add(DISCARD_STEP) {
            return Ok(());
        }
        self.discarded = old;
        match file_hole::discard_start(&self.file, old) {
            Err(error) if self.read > MAX_BYTES => Err(error),
            // The file system has no holes.
            _ => Ok(()),
        }
    }
}

impl Drop for RecordLog {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // A forked child shares the lock with its parent, which still needs it.
            return;
        }
        let is_last = self.file.unlock().is_ok() && self.file.try_lock().is_ok();
        if is_last {
            // Another process opens it again if it is missing.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("roci-log-{name}-{}", std::process::id()))
    }

    fn new_records(log: &mut RecordLog) -> Vec<u8> {
        let mut all = Vec::new();
        log.read_new(|records| all.extend_from_slice(records))
            .expect("a file");
        all
    }

    #[test]
    fn all_readers_see_the_records_after_they_have_opened_the_log_in_one_order() {
        let path = path("order");
        let mut first = RecordLog::open_at(&path, 2).expect("a file");
        first.append(b"aabb").expect("room");
        let mut second = RecordLog::open_at(&path, 2).expect("a file");
        second.append(b"cc").expect("room");
        first.append(b"dd").expect("room");
        assert_eq!(new_records(&mut first), b"aabbccdd");
        assert_eq!(new_records(&mut second), b"ccdd");
        assert_eq!(new_records(&mut second), b"");
    }

    #[test]
    fn the_last_process_removes_the_log() {
        let path = path("last");
        let first = RecordLog::open_at(&path, 2).expect("a file");
        let second = RecordLog::open_at(&path, 2).expect("a file");
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn old_records_are_given_back() {
        let path = path("old");
        let mut log = RecordLog::open_at(&path, 4096).expect("a file");
        let records = vec![1; 1 << 20];
        for _ in 0..(KEPT + 2 * DISCARD_STEP) >> 20 {
            log.append(&records).expect("room");
        }
        let mut length = 0;
        log.read_new(|records| length += records.len() as u64)
            .expect("a file");
        assert_eq!(length, KEPT + 2 * DISCARD_STEP);
        let kept = log.file.metadata().expect("a file").blocks() * 512;
        assert!(kept <= KEPT + (1 << 20), "{kept} bytes");
    }
}

//! A log of records that the processes of a user on this machine share.
//!
//! It is a file in the directory of the user, which only the user can enter. Each process appends records of one size;
//! all read them in the same order. The system appends each write as a whole, so the log needs no lock, and a process that
//! dies leaves whole records. Nobody waits for another process, which may be stopped. So the file stays; the last process
//! gives its memory back.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fork;
use crate::private_file;
use crate::sharing::{DirectoryError, RuntimeDirectory};
use crate::sys::{file_hole, file_size};

/// How many bytes are kept. Older ones become zeros.
const KEPT: u64 = 64 << 20;

/// How often older bytes are given back.
const DISCARD_STEP: u64 = 16 << 20;

/// If older bytes cannot be given back, the log ends at this size.
const MAX_BYTES: u64 = 1 << 30;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;

/// The log, as one process sees it.
#[derive(Debug)]
pub struct RecordLog {
    file: File,
    record: usize,
    /// How far it was read.
    read: u64,
    /// Up to where older bytes were given back.
    discarded: u64,
    buffer: Vec<u8>,
    /// Whether other processes know that the records are needed.
    is_used: bool,
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
        let mut options = private_file::options();
        let file = options.read(true).append(true).create(true).open(path)?;
        let read = file.metadata()?.len();
        let mut log = Self {
            file,
            record,
            read,
            discarded: 0,
            buffer: vec![0; READ_BYTES - READ_BYTES % record],
            is_used: false,
            generation: fork::generation(),
        };
        log.mark_used();
        Ok(log)
    }

    /// Tells other processes that the records are still needed. Fails for a moment while another process gives records back,
    /// and as long as that one is stopped.
    fn mark_used(&mut self) {
        self.is_used = self.is_used || self.file.try_lock_shared().is_ok();
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
        self.mark_used();
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
        // What is appended from now on belongs to processes that open it meanwhile.
        let end = self.file.metadata().map_or(0, |it| it.len());
        let is_last = self.file.unlock().is_ok() && self.file.try_lock().is_ok();
        if is_last && end > 0 && file_hole::discard_start(&self.file, end).is_err() {
            // The file system has no holes. A process that opens it at this moment reads nothing.
            let _ = self.file.set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

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
        fs::remove_file(&path).expect("it is ours");
    }

    fn memory(path: &Path) -> u64 {
        fs::metadata(path).expect("a file").blocks() * 512
    }

    #[test]
    fn the_last_process_gives_the_memory_back() {
        let path = path("last");
        let mut first = RecordLog::open_at(&path, 2).expect("a file");
        let second = RecordLog::open_at(&path, 2).expect("a file");
        first.append(&[1; 1 << 20]).expect("room");
        drop(first);
        assert!(memory(&path) >= 1 << 20);
        drop(second);
        assert!(memory(&path) < 1 << 16);
        fs::remove_file(&path).expect("it is ours");
    }

    /// A process that is stopped between the two steps of its end holds the lock, perhaps for ever.
    #[test]
    fn opening_does_not_wait_for_a_process_that_gives_records_back() {
        let path = path("stopped");
        let stopped = File::create(&path).expect("a file");
        stopped.lock().expect("nobody has it");
        let mut first = RecordLog::open_at(&path, 2).expect("a file");
        let mut second = RecordLog::open_at(&path, 2).expect("a file");
        first.append(b"aa").expect("room");
        assert_eq!(new_records(&mut second), b"aa");
        drop(stopped);
        first.append(b"bb").expect("room");
        drop(second);
        assert_eq!(new_records(&mut first), b"aabb", "it is not the last one");
        fs::remove_file(&path).expect("it is ours");
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
        fs::remove_file(&path).expect("it is ours");
    }
}

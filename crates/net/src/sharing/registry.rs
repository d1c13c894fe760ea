//! The registry files of an address.
//!
//! There are two per address: the table, which is always replaced as a whole, so that it can be
//! read without a lock; and an empty file that is locked by a process that changes the table. No
//! process waits for anything while it holds the lock, so the lock is free within microseconds, and
//! the kernel releases it when its holder dies.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use super::cached_registry::Cache;
use super::number_block::NumberBlock;
use super::registry_table::{Seen, Table};
use crate::private_file;
use crate::sys::file_size;
use crate::times::{GIVE_UP_AFTER, LOCK_RETRY_INTERVAL};

/// How long a caller that needs the lock tries while the table does not change. When many processes join at once, a caller may
/// have to wait longer than that.
const LOCK_TIMEOUT: Duration = GIVE_UP_AFTER.saturating_mul(2);

/// How long such a caller tries in total.
const TOTAL_LOCK_TIMEOUT: Duration = GIVE_UP_AFTER.saturating_mul(60);

/// How many bytes of a table are read: several times those of the largest. Anything longer was not written by a member.
const LONGEST_TABLE: u64 = 8 << 20;

/// Why the registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Another process holds the lock and does not release it.
    #[error(
        "the registry {0} stays locked: a process of yours that changes it has been stopped, as a \
         debugger does; let it go on or end it"
    )]
    Locked(PathBuf),
    /// Another version of this library wrote the registry.
    #[error(
        "the registry {0} is of another version: end the processes that still use that version, \
         and remove the file"
    )]
    OtherVersion(PathBuf),
    /// Any other error.
    #[error("the registry {path} can't be used: {source}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Identifies a version of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

impl Stamp {
    fn of(found: &fs::Metadata) -> Self {
        Self {
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            length: found.len(),
        }
    }
}

/// The registry of one address.
#[derive(Debug)]
pub(super) struct Registry {
    path: PathBuf,
    boot: &'static str,
    pub(super) cache: Arc<Cache>,
}

impl Registry {
    pub(super) fn new(directory: &Path, address: IpAddr) -> Self {
        Self::named(directory, &name(address))
    }

    /// The registry with this name, of any namespaces.
    pub(super) fn named(directory: &Path, name: &str) -> Self {
        let path = directory.join(name);
        Self {
            boot: boot(),
            cache: Cache::shared(&path),
            path,
        }
    }

    /// The registry of another address, in the same directory.
    pub(super) fn of_neighbour(&self, address: IpAddr) -> Self {
        let path = self.path.with_file_name(name(address));
        Self {
            boot: self.boot,
            cache: Cache::shared(&path),
            path,
        }
    }

    /// The same registry for another process.
    #[cfg(test)]
    pub(super) fn with_own_cache(&self) -> Self {
        Self {
            path: self.path.clone(),
            boot: self.boot,
            cache: Cache::new(&self.path),
        }
    }

    /// Where the Unix socket of a member is.
    pub(super) fn mailbox(&self, block: NumberBlock) -> PathBuf {
        self.beside(&block.to_string())
    }

    /// Reads the table; see [`current`](Self::current).
    pub(super) fn read(&self) -> Result<Table, RegistryError> {
        self.cache.note_read();
        let mut bytes = Vec::new();
        let read = private_file::options()
            .read(true)
            .open(&self.path)
            .and_then(|file| file.take(LONGEST_TABLE).read_to_end(&mut bytes));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(self.unusable(source)),
        }
        Table::parse(&String::from_utf8_lossy(&bytes), self.boot)
            .ok_or_else(|| RegistryError::OtherVersion(self.path.clone()))
    }

    /// The latest round of probes; `None` if there is no table.
    pub(super) fn round(&self) -> Result<Option<u64>, RegistryError> {
        let beginning = self.read_part(|_| Ok(0))?;
        Ok(Table::parse_round(&beginning, self.boot))
    }

    /// Reads at most [`Seen::LONGEST`] bytes of the file, from an offset on.
    fn read_part(
        &self,
        from: impl FnOnce(&File) -> io::Result<u64>,
    ) -> Result<String, RegistryError> {
        let mut buffer = [0; Seen::LONGEST];
        let read = private_file::options()
            .read(true)
            .open(&self.path)
            .and_then(|file| {
                let from = from(&file)?;
                file.read_at(&mut buffer, from)
            });
        match read {
            Ok(length) => Ok(String::from_utf8_lossy(&buffer[..length]).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(self.unusable(source)),
        }
    }

    /// Whether the table was changed less than `age` ago.
    pub(super) fn is_younger_than(&self, age: Duration) -> bool {
        let changed = fs::metadata(&self.path).and_then(|found| found.modified());
        changed.is_ok_and(|at| SystemTime::now() < at + age)
    }

    /// The stamp of the current table. Another table has another stamp.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let found = fs::metadata(&self.path).ok()?;
        Some(Stamp::of(&found))
    }

    /// Locks the table for a change. This may take seconds: never call it under the lock of a lane.
    pub(super) fn lock(self: &Arc<Self>) -> Result<Locked, RegistryError> {
        let begin = Instant::now();
        loop {
            let before = self.stamp();
            match self.lock_within(LOCK_TIMEOUT) {
                Err(RegistryError::Locked(_))
                    if self.stamp() != before && begin.elapsed() < TOTAL_LOCK_TIMEOUT => {}
                locked => return locked,
            }
        }
    }

    /// Locks the table for a change, unless it is locked. Never waits.
    pub(super) fn lock_if_free(self: &Arc<Self>) -> Result<Locked, RegistryError> {
        self.lock_within(Duration::ZERO)
    }

    fn lock_within(self: &Arc<Self>, timeout: Duration) -> Result<Locked, RegistryError> {
        let mut file = self.open_lock()?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) if self.is_current(&file) => {
                    let registry = Arc::clone(self);
                    return Ok(Locked { registry, file });
                }
                // The file was removed meanwhile: another process may lock a new one.
                Ok(()) => file = self.open_lock()?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(self.unusable(source)),
            }
            if begin.elapsed() >= timeout {
                return Err(self.locked());
            }
            sleep(LOCK_RETRY_INTERVAL);
        }
    }

    /// Each lock has its own file description, so that two members in one process exclude each
    /// other.
    fn open_lock(&self) -> Result<File, RegistryError> {
        let mut options = private_file::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(self.beside("lock"));
        file.map_err(|source| self.unusable(source))
    }

    /// Whether this is still the file that is locked.
    fn is_current(&self, lock: &File) -> bool {
        let number = |found: io::Result<fs::Metadata>| found.map(|it| (it.dev(), it.ino())).ok();
        let ours = number(lock.metadata());
        ours.is_some() && ours == number(fs::metadata(self.beside("lock")))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }

    pub(super) fn locked(&self) -> RegistryError {
        RegistryError::Locked(self.path.clone())
    }

    fn unusable(&self, source: io::Error) -> RegistryError {
        RegistryError::Unusable {
            path: self.path.clone(),
            source,
        }
    }
}

/// The right to change the table.
#[derive(Debug)]
pub(super) struct Locked {
    registry: Arc<Registry>,
    file: File,
}

impl Locked {
    /// Reads the table that is changed. What is known may be older, if the file system has coarse times.
    pub(super) fn read(&self) -> Result<Table, RegistryError> {
        self.registry.read()
    }

    /// Removes members whose processes have ended from a table, and their files. Returns their blocks.
    pub(super) fn remove_dead_members(&self, table: &mut Table) -> HashSet<NumberBlock> {
        let dead = table.remove_dead_members();
        for block in &dead {
            let _ = fs::remove_file(self.registry.mailbox(*block));
        }
        dead
    }

    /// Whether others would wait for this lock.
    #[cfg(test)]
    pub(super) fn is_current(&self) -> bool {
        self.registry.is_current(&self.file)
    }

    /// Removes the table and the lock file.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(&self.registry.path);
        let _ = fs::remove_file(self.registry.beside("lock"));
    }

    /// Replaces the table.
    pub(super) fn write(&self, table: &Table) -> Result<(), RegistryError> {
        let registry = &self.registry;
        // Otherwise other members would read the new table before it is noted.
        let _change = registry.cache.begin_change();
        let stamp = self.try_write(&table.print(registry.boot));
        let stamp = stamp.map_err(|error| registry.unusable(error))?;
        if let Some(stamp) = stamp {
            registry.cache.note_written(stamp, table);
        }
        Ok(())
    }

    /// Returns the stamp of the new table.
    fn try_write(&self, text: &str) -> io::Result<Option<Stamp>> {
        let path = &self.registry.path;
        let before = fs::metadata(path).and_then(|found| found.modified());
        let mut stamp = None;
        private_file::replace(path, |file| {
            file.write_all(text.as_bytes())?;
            // Each table gets its own modification time, so that the time tells whether the table is
            // new.
            let now = SystemTime::now();
            let later = before.map_or(now, |before| now.max(before + Duration::from_nanos(1)));
            file.set_modified(later)?;
            stamp = file.metadata().ok().map(|found| Stamp::of(&found));
            Ok(())
        })?;
        Ok(stamp)
    }

    /// The last line, if it records a member's index.
    pub(super) fn last_seen(&self) -> Result<Option<Seen>, RegistryError> {
        let tail = self.registry.read_part(|file| {
            let length = file.metadata()?.len();
            Ok(length.saturating_sub(Seen::LONGEST as u64))
        })?;
        Ok(tail.lines().last().and_then(Seen::parse))
    }

    /// Appends a member's index, without writing the whole table again.
    pub(super) fn append(&self, seen: &Seen) -> Result<(), RegistryError> {
        let registry = &self.registry;
        let file = private_file::options().append(true).open(&registry.path);
        let line = seen.print();
        file.and_then(|mut file| file_size::without_signal(|| file.write_all(line.as_bytes())))
            .map_err(|error| registry.unusable(error))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough: a child that was forked meanwhile has the file open, too.
        let _ = self.file.unlock();
    }
}

/// Which boot of the system this is; empty if it does not say. It is asked once: a process that can't open more files must not
/// take the table for that of another boot.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return boot;
    }
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => BOOT.get_or_init(|| boot.trim().to_owned()),
        Err(_) => "",
    }
}

/// The end of the names of registries whose processes are visible from here.
pub(super) fn visible_ending() -> String {
    format!(".{:x}", namespace("pid"))
}

/// Sockets share a port within one network namespace, and a process id is valid within one process
/// namespace, so each pair of namespaces has its own registry.
fn name(address: IpAddr) -> String {
    format!("{address}@{:x}.{:x}", namespace("net"), namespace("pid"))
}

/// The inode of a namespace of this process.
pub(super) fn namespace(kind: &str) -> u64 {
    fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |found| found.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::sharing::RuntimeDirectory;
    use crate::sharing::process_identity::Identity;
    use crate::sharing::registry_table::Entry;
    use crate::sys::process::{end, fork};
    use crate::times::TICK;

    fn scratch(name: &str) -> RuntimeDirectory {
        let name = format!("roci-registry-{name}-{}", std::process::id());
        RuntimeDirectory::at(std::env::temp_dir().join(name)).unwrap()
    }

    #[test]
    fn a_link_beside_the_registry_is_not_written_to() {
        let directory = scratch("link");
        let registry = Registry::new(directory.path(), "127.58.8.9".parse().unwrap());
        let registry = Arc::new(registry);
        let target = directory.path().join("target");
        fs::write(&target, "untouched").unwrap();
        symlink(&target, registry.beside("new")).unwrap();
        let locked = registry.lock().unwrap();
        locked.write(&locked.read().unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        assert!(registry.path.is_file());
        fs::remove_dir_all(directory.path()).unwrap();
    }

    /// An `open` that waits for the other end of a pipe would never return.
    #[test]
    fn pipes_in_place_of_the_registry_and_its_neighbours_are_not_waited_for() {
        let directory = scratch("pipes");
        let registry = Registry::new(directory.path(), "127.58.8.10".parse().unwrap());
        let registry = Arc::new(registry);
        let pipes = [
            registry.path.clone(),
            registry.beside("new"),
            registry.beside("lock"),
        ];
        let made = Command::new("mkfifo").args(&pipes).status();
        assert!(made.unwrap().success());
        let table = Table {
            round: 7,
            ..Table::EMPTY
        };
        assert_eq!(registry.read().unwrap(), Table::EMPTY);
        let locked = registry.lock().unwrap();
        locked.write(&table).unwrap();
        assert_eq!(locked.read().unwrap(), table);
        assert!(registry.path.is_file());
        fs::remove_dir_all(directory.path()).unwrap();
    }

    /// How long a number of attempts takes depends on how busy the machine is.
    #[test]
    fn the_wait_for_a_lock_is_limited_by_time() {
        let directory = scratch("timeout");
        let registry = Arc::new(Registry::new(directory.path(), [127, 0, 0, 1].into()));
        let locked = registry.lock().unwrap();
        let begin = Instant::now();
        let refused = registry.lock_within(20 * TICK).unwrap_err();
        assert!(matches!(refused, RegistryError::Locked(_)), "{refused}");
        assert!(begin.elapsed() >= 20 * TICK);
        drop(locked);
        registry.lock().unwrap();
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_lock_is_released_even_if_a_forked_child_has_the_file() {
        let directory = scratch("forked");
        let registry = Arc::new(Registry::new(directory.path(), [127, 0, 0, 1].into()));
        let locked = registry.lock().unwrap();
        let child = fork(|| {});
        registry.lock_if_free().unwrap_err();
        drop(locked);
        registry.lock_if_free().unwrap();
        end(child);
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_file_that_another_program_has_written_is_an_empty_table() {
        let directory = scratch("foreign");
        let registry = Arc::new(Registry::new(directory.path(), [127, 0, 0, 1].into()));
        for foreign in [&b"[settings]\n"[..], &[0xff, 0xfe, 0], &[0x7f; 300]] {
            fs::write(&registry.path, foreign).unwrap();
            assert_eq!(registry.read().unwrap(), Table::EMPTY);
            assert_eq!(registry.round().unwrap(), None);
        }
        // A terabyte, which is not on the disk.
        let huge = File::options().write(true).open(&registry.path).unwrap();
        huge.set_len(1 << 40).unwrap();
        assert_eq!(registry.read().unwrap(), Table::EMPTY);
        let table = Table {
            round: 7,
            ..Table::EMPTY
        };
        registry.lock().unwrap().write(&table).unwrap();
        assert_eq!(registry.read().unwrap(), table);
        fs::write(&registry.path, "roci-registry-1 any").unwrap();
        let error = registry.read().unwrap_err();
        assert!(matches!(error, RegistryError::OtherVersion(_)), "{error}");
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_table_is_read_up_to_its_maximum_length() {
        let directory = scratch("long");
        let registry = Arc::new(Registry::new(directory.path(), [127, 0, 0, 1].into()));
        let table = Table {
            round: 7,
            ..Table::EMPTY
        };
        let text = table.print(registry.boot);
        let longest = LONGEST_TABLE as usize;
        for (end, round) in [(longest - 7, 8), (longest - 6, 7)] {
            let lines = "\n".repeat(end - text.len());
            fs::write(&registry.path, format!("{text}{lines}round 8\n")).unwrap();
            assert_eq!(registry.read().unwrap().round, round, "{end}");
        }
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn the_mailbox_of_a_dead_member_is_removed() {
        let directory = scratch("dead");
        let registry = Arc::new(Registry::new(directory.path(), [127, 0, 0, 1].into()));
        let blocks = [0x1000, 0x2000].map(|first| NumberBlock::new(first, 12).unwrap());
        let mailboxes = blocks.map(|block| registry.mailbox(block));
        let living = Identity::current();
        let start = living.start + 1;
        let mut table = Table::EMPTY;
        for (block, process) in blocks
            .into_iter()
            .zip([living, Identity { start, ..living }])
        {
            File::create(registry.mailbox(block)).unwrap();
            table.add(Entry {
                block,
                process,
                socket_index: None,
                round: 0,
                withdrawn: false,
            });
        }
        let locked = registry.lock().unwrap();
        assert_eq!(locked.remove_dead_members(&mut table).len(), 1);
        assert_eq!(mailboxes.map(|path| path.exists()), [true, false]);
        assert!(
            locked.remove_dead_members(&mut table).is_empty(),
            "no other member has died"
        );
        drop(locked);
        fs::remove_dir_all(directory.path()).unwrap();
    }
}

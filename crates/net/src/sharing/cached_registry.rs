//! What a process knows about a registry: the table as it was read or written last.
//!
//! All members of the process share it. A member looks up the owner of each packet to a number that is not its own, and looks
//! for changes periodically. Both cost one query of the file's metadata. The table is read again only if another process has
//! changed it, and once for all members: a process with many members would otherwise read the whole table for each of them
//! after each change. Whoever changes the table reads it anew.
//!
//! A look at it may be under the lock of a lane, so it waits for no other thread that reads or writes the table: a periodic look
//! comes again soon, as if another process changed the table, and a lookup reads it, too. A forked child begins with nothing,
//! because another thread of its parent may have held a lock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::process_identity::Identity;
use super::process_order::ProcessOrder;
use super::registry::{Registry, RegistryError, Stamp};
use super::registry_table::Table;
use crate::fork;
use crate::times::SCHEDULED;

/// How long the result of a check whether a process runs is reused.
const LIVENESS_CACHE_LIFETIME: Duration = SCHEDULED;

/// The maximum number of processes whose state is cached. There are fewer members.
const MAX_PROCESSES: usize = 4096;

/// What a process knows about registries, by their paths.
#[derive(Debug)]
struct Known {
    caches: Mutex<BTreeMap<PathBuf, Weak<Cache>>>,
    /// What its forked child knows.
    of_child: OnceLock<Box<Known>>,
}

impl Known {
    const fn nothing() -> Self {
        Self {
            caches: Mutex::new(BTreeMap::new()),
            of_child: OnceLock::new(),
        }
    }

    /// What this process knows.
    fn here() -> MutexGuard<'static, BTreeMap<PathBuf, Weak<Cache>>> {
        static FIRST: Known = Known::nothing();
        let mut known = &FIRST;
        for _ in 0..fork::generation() {
            known = known.of_child.get_or_init(|| Box::new(Self::nothing()));
        }
        // No change of it can fail halfway.
        known.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table, and what follows from it.
#[derive(Debug)]
pub(super) struct KnownTable {
    table: Table,
    pub(super) order: ProcessOrder,
}

impl KnownTable {
    pub(super) fn new(table: Table) -> Arc<Self> {
        let order = ProcessOrder::of(&table);
        Arc::new(Self { table, order })
    }
}

impl Deref for KnownTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

/// The version of a table, and its content.
type Version = Option<(Stamp, Arc<KnownTable>)>;

/// What this process knows about one registry.
#[derive(Debug)]
pub(super) struct Cache {
    path: PathBuf,
    latest: Mutex<Version>,
    /// Held by a thread that reads or writes the table. Nobody waits for it.
    busy: Mutex<()>,
    living: Mutex<HashMap<Identity, (Instant, bool)>>,
    /// How many times the table was read.
    reads: AtomicU64,
}

impl Cache {
    pub(super) fn new(path: &Path) -> Arc<Self> {
        Arc::new(Self {
            path: path.to_owned(),
            latest: Mutex::default(),
            busy: Mutex::default(),
            living: Mutex::default(),
            reads: AtomicU64::new(0),
        })
    }

    /// The one that all members of this process share.
    pub(super) fn shared(path: &Path) -> Arc<Self> {
        let mut known = Known::here();
        if let Some(cache) = known.get(path).and_then(Weak::upgrade) {
            return cache;
        }
        let cache = Self::new(path);
        known.insert(path.to_owned(), Arc::downgrade(&cache));
        cache
    }

    pub(super) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// The other threads of this process leave the table alone until this is dropped. `None` if one of them reads it now.
    pub(super) fn begin_change(&self) -> Option<MutexGuard<'_, ()>> {
        free(&self.busy)
    }

    /// Notes the table that this process has written, so that none of its members reads it.
    pub(super) fn note_written(&self, stamp: Stamp, table: &Table) {
        *self.latest() = Some((stamp, KnownTable::new(table.clone())));
    }

    /// Held for a moment only. No change of it can fail halfway.
    fn latest(&self) -> MutexGuard<'_, Version> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of this version, if it is known.
    fn known(&self, stamp: Option<Stamp>) -> Option<Arc<KnownTable>> {
        match &*self.latest() {
            Some((known, table)) if stamp == Some(*known) => Some(Arc::clone(table)),
            _ => None,
        }
    }

    /// How many times the table was read.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let mut known = Known::here();
        // Another one may have been made since.
        if (known.get(&self.path)).is_some_and(|it| it.strong_count() == 0) {
            known.remove(&self.path);
        }
    }
}

/// The content of a lock that nobody holds. No change of it can fail halfway.
fn free<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(content) => Some(content),
        Err(TryLockError::Poisoned(content)) => Some(content.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Registry {
    /// The current table.
    pub(super) fn current(&self) -> Result<Arc<KnownTable>, RegistryError> {
        match self.current_if_free() {
            Err(RegistryError::Locked(_)) => self.read().map(KnownTable::new),
            current => current,
        }
    }

    /// The current table, for those that can look again later: locked if it is new, and another thread of this process reads or
    /// writes it now.
    pub(super) fn current_if_free(&self) -> Result<Arc<KnownTable>, RegistryError> {
        if let Some(table) = self.cache.known(self.stamp()) {
            return Ok(table);
        }
        let Some(_busy) = free(&self.cache.busy) else {
            return Err(self.locked());
        };
        // Read before the table: if the table changes in between, the next call reads it again.
        let stamp = self.stamp();
        if let Some(table) = self.cache.known(stamp) {
            return Ok(table);
        }
        let table = KnownTable::new(self.read()?);
        *self.cache.latest() = stamp.map(|stamp| (stamp, Arc::clone(&table)));
        Ok(table)
    }

    /// Whether a process runs, or ran at the last check within `LIVENESS_CACHE_LIFETIME`.
    pub(super) fn is_alive(&self, process: Identity, now: Instant) -> bool {
        let Some(mut living) = free(&self.cache.living) else {
            return process.is_alive();
        };
        match living.get(&process) {
            Some((at, alive)) if now.saturating_duration_since(*at) < LIVENESS_CACHE_LIFETIME => {
                *alive
            }
            _ => {
                if living.len() >= MAX_PROCESSES {
                    living.clear();
                }
                let alive = process.is_alive();
                living.insert(process, (now, alive));
                alive
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;
    use crate::sharing::{Member, RuntimeDirectory};
    use crate::socket::Inbox;
    use crate::sys::process;
    use crate::times::LIVENESS_CHECK_INTERVAL;

    fn scratch(name: &str) -> (PathBuf, Arc<Registry>) {
        let name = format!("roci-cached-table-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let directory = RuntimeDirectory::at(&path).unwrap();
        let registry = Registry::new(directory.path(), [127, 0, 0, 1].into());
        (path, Arc::new(registry))
    }

    /// Another process, which does not share what this one knows.
    fn elsewhere(registry: &Registry) -> Arc<Registry> {
        Arc::new(registry.with_own_cache())
    }

    #[test]
    fn the_table_is_read_again_only_when_another_process_has_changed_it() {
        let (path, registry) = scratch("changed");
        let other = elsewhere(&registry);
        let mut table = Table::EMPTY;
        for round in 1..200 {
            // Two changes between two lookups: the file may have its old inode number again.
            for change in [round + 1000, round] {
                table.round = change;
                other.lock().unwrap().write(&table).unwrap();
            }
            for _ in 0..3 {
                assert_eq!(registry.current().unwrap().round, round);
            }
        }
        assert_eq!(registry.cache.reads(), 199);
        assert_eq!(other.current().unwrap().round, 199);
        assert_eq!(other.cache.reads(), 0, "it has written the table itself");
        fs::remove_dir_all(path).unwrap();
        assert_eq!(**registry.current().unwrap(), Table::EMPTY);
    }

    #[test]
    fn members_of_one_process_read_the_table_once_for_all() {
        let (path, registry) = scratch("members");
        let directory = RuntimeDirectory::at(&path).unwrap();
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = [127, 192 | high & 63, low, 30].into();
        let join = || Member::join_in(&directory, address).unwrap();
        let mut members: Vec<_> = (0..16).map(|_| join()).collect();
        let begin = Instant::now();
        let maintain = |members: &mut [Member], intervals: u32| {
            let now = begin + intervals * LIVENESS_CHECK_INTERVAL;
            members.iter_mut().for_each(|it| _ = it.maintain(now));
        };
        let mut inbox = Inbox::new(1);
        for member in &mut members {
            // Its probe.
            member.receive(begin, &mut inbox, |_| {}).unwrap();
        }
        let before = members[0].registry_reads();
        assert_eq!(before, 16, "one for each change");
        maintain(&mut members, 2);
        assert_eq!(members[0].registry_reads(), before);
        let other = elsewhere(&registry.of_neighbour(address));
        let locked = other.lock().unwrap();
        locked.write(&locked.read().unwrap()).unwrap();
        drop(locked);
        maintain(&mut members, 4);
        assert_eq!(members[0].registry_reads() - before, 1);
        drop(members);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_change_is_seen_while_another_thread_is_busy_with_the_table() {
        let (path, registry) = scratch("held");
        let busy = registry.cache.begin_change();
        let table = Table {
            round: 7,
            ..Table::EMPTY
        };
        let other = elsewhere(&registry);
        other.lock().unwrap().write(&table).unwrap();
        let refused = registry.current_if_free().unwrap_err();
        assert!(matches!(refused, RegistryError::Locked(_)), "{refused}");
        assert_eq!(registry.current().unwrap().round, 7);
        drop(busy);
        assert_eq!(registry.current_if_free().unwrap().round, 7);
        let _busy = registry.cache.begin_change();
        assert_eq!(registry.current_if_free().unwrap().round, 7, "it is known");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_is_known_about_a_registry_ends_with_its_last_member() {
        let (path, registry) = scratch("last");
        let name = registry.cache.path.clone();
        let is_known = || Known::here().contains_key(&name);
        let again = Cache::shared(&name);
        assert!(Arc::ptr_eq(&again, &registry.cache));
        drop(registry);
        assert!(is_known());
        drop(again);
        assert!(!is_known());
        fs::remove_dir_all(path).unwrap();
    }

    /// Another thread of the parent may have been at it.
    #[test]
    fn a_forked_child_begins_with_nothing() {
        let (path, registry) = scratch("forked");
        let name = registry.cache.path.clone();
        let known = Known::here();
        let table = registry.cache.latest.lock().unwrap();
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = process::fork(|| {
            let apart = !Arc::ptr_eq(&Cache::shared(&name), &registry.cache);
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&[u8::from(apart)]);
        });
        drop((known, table, theirs));
        let mut said = [0];
        ours.read_exact(&mut said).unwrap();
        process::end(child);
        assert_eq!(said, [1]);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_process_is_checked_again_after_the_cache_lifetime() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Identity::of(child.id()).unwrap();
        let (path, registry) = scratch("lifetime");
        let now = Instant::now();
        assert!(registry.is_alive(process, now));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(registry.is_alive(process, now + LIVENESS_CACHE_LIFETIME / 2));
        assert!(!registry.is_alive(process, now + LIVENESS_CACHE_LIFETIME));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_bounded_number_of_processes_is_remembered() {
        let (path, registry) = scratch("bounded");
        let now = Instant::now();
        for start in 0..=MAX_PROCESSES as u64 {
            // No process has this id.
            let pid = u32::MAX;
            registry.is_alive(Identity { pid, start }, now);
        }
        assert!(registry.cache.living.lock().unwrap().len() <= MAX_PROCESSES);
        fs::remove_dir_all(path).unwrap();
    }
}

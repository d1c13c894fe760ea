//! A member's cached copy of the table.
//!
//! A member looks up the owner of each packet to a number that is not its own. The lookup costs one query of
//! the file's metadata; the table is read again only if it has changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::process_identity::Identity;
use super::registry::{Registry, RegistryError, Stamp};
use super::registry_table::Table;
use crate::times::SCHEDULED;

/// How long the result of a check whether a process runs is reused.
const LIVENESS_CACHE_LIFETIME: Duration = SCHEDULED;

/// The maximum number of processes whose state is cached. There are fewer members.
const MAX_PROCESSES: usize = 4096;

/// A member's cached copy of the registry.
#[derive(Debug)]
pub(super) struct CachedTable {
    stamp: Option<Stamp>,
    table: Arc<Table>,
    living: HashMap<Identity, (Instant, bool)>,
    /// How many times the table was read.
    reads: u64,
}

impl CachedTable {
    pub(super) fn new() -> Self {
        Self {
            stamp: None,
            table: Arc::new(Table::EMPTY),
            living: HashMap::new(),
            reads: 0,
        }
    }

    /// The current table.
    pub(super) fn current(&mut self, registry: &Registry) -> Result<Arc<Table>, RegistryError> {
        // Read before the table: if the table changes in between, the next call reads it again.
        let stamp = registry.stamp();
        if stamp.is_none() || stamp != self.stamp {
            self.table = Arc::new(registry.read()?);
            self.stamp = stamp;
            self.reads += 1;
        }
        Ok(Arc::clone(&self.table))
    }

    /// Whether a process runs, or ran at the last check within `LIVENESS_CACHE_LIFETIME`.
    pub(super) fn is_alive(&mut self, process: Identity, now: Instant) -> bool {
        match self.living.get(&process) {
            Some((at, alive)) if now.saturating_duration_since(*at) < LIVENESS_CACHE_LIFETIME => {
                *alive
            }
            _ => {
                if self.living.len() >= MAX_PROCESSES {
                    self.living.clear();
                }
                let alive = process.is_alive();
                self.living.insert(process, (now, alive));
                alive
            }
        }
    }

    /// How many times the table was read.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::sharing::RuntimeDirectory;

    #[test]
    fn the_table_is_read_again_only_when_it_has_changed() {
        let path = std::env::temp_dir().join(format!("roci-cached-table-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let registry = Arc::new(Registry::new(directory.path(), [127, 0, 0, 1].into()));
        let mut table = Table::EMPTY;
        let mut cached_table = CachedTable::new();
        for round in 1..200 {
            // Two changes between two lookups: the file may have its old inode number again.
            for change in [round + 1000, round] {
                table.round = change;
                registry.lock().unwrap().write(&table).unwrap();
            }
            for _ in 0..3 {
                assert_eq!(cached_table.current(&registry).unwrap().round, round);
            }
        }
        assert_eq!(cached_table.reads(), 199);
        std::fs::remove_dir_all(path).unwrap();
        assert_eq!(*cached_table.current(&registry).unwrap(), Table::EMPTY);
    }

    #[test]
    fn a_process_is_checked_again_after_the_cache_lifetime() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Identity::of(child.id()).unwrap();
        let mut cached_table = CachedTable::new();
        let now = Instant::now();
        assert!(cached_table.is_alive(process, now));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cached_table.is_alive(process, now + LIVENESS_CACHE_LIFETIME / 2));
        assert!(!cached_table.is_alive(process, now + LIVENESS_CACHE_LIFETIME));
    }

    #[test]
    fn a_bounded_number_of_processes_is_remembered() {
        let mut cached_table = CachedTable::new();
        let now = Instant::now();
        for start in 0..=MAX_PROCESSES as u64 {
            // No process has this id.
            cached_table.is_alive(
                Identity {
                    pid: u32::MAX,
                    start,
                },
                now,
            );
        }
        assert!(cached_table.living.len() <= MAX_PROCESSES);
    }
}

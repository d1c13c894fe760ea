//! The files through which the members of an address know each other.
//!
//! Two per address: the table, which is always replaced as a whole, so that it can be read without
//! asking anybody; and an empty file that is locked by whoever changes the table. No lock is held
//! while waiting for anything, so it is free within microseconds, and the kernel frees it when its
//! holder dies.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use super::directory::RuntimeDirectory;
use super::slice::Slice;
use super::table::Table;

/// How long to wait before a taken lock is tried again.
const PAUSE: Duration = Duration::from_micros(100);

/// How often a caller who needs the lock tries: about two seconds.
const PATIENT: u32 = 12_000;

/// How often a caller tries who can as well try again later: a few milliseconds.
const BRIEF: u32 = 32;

/// Why the registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Somebody holds the lock and does not move on.
    #[error(
        "the registry {0} stays locked: a process of yours that changes it has been stopped, as a \
         debugger does; let it go on or end it"
    )]
    Locked(PathBuf),
    /// Another version of this library has written it.
    #[error(
        "the registry {0} is of another version: end the processes that still use that version, \
         and remove the file"
    )]
    OtherVersion(PathBuf),
    /// Anything else.
    #[error("the registry {path} can't be used: {source}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The registry of one address.
#[derive(Debug)]
pub(super) struct Registry {
    path: PathBuf,
    boot: String,
}

impl Registry {
    pub(super) fn new(directory: &RuntimeDirectory, address: IpAddr) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            path: directory.path().join(name(address)),
            boot: boot.trim().to_owned(),
        }
    }

    /// The registry of another address, in the same folder.
    pub(super) fn of_neighbour(&self, address: IpAddr) -> Self {
        Self {
            path: self.path.with_file_name(name(address)),
            boot: self.boot.clone(),
        }
    }

    /// Where the Unix socket of a member is.
    pub(super) fn mailbox(&self, slice: Slice) -> PathBuf {
        self.beside(&slice.to_string())
    }

    /// The table as it is now.
    pub(super) fn read(&self) -> Result<Table, RegistryError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(self.unusable(source)),
        };
        Table::parse(&text, &self.boot)
            .ok_or_else(|| RegistryError::OtherVersion(self.path.clone()))
    }

    /// Locks the table for a change.
    pub(super) fn lock(self: &Arc<Self>) -> Result<Locked, RegistryError> {
        self.lock_within(PATIENT)
    }

    /// Locks the table for a change, but gives up soon.
    pub(super) fn lock_briefly(self: &Arc<Self>) -> Result<Locked, RegistryError> {
        self.lock_within(BRIEF)
    }

    fn lock_within(self: &Arc<Self>, attempts: u32) -> Result<Locked, RegistryError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        // A description of its own for each lock: two members in one process exclude each other.
        let file = (options.mode(0o600).open(self.beside("lock")))
            .map_err(|source| self.unusable(source))?;
        for _ in 0..attempts {
            match file.try_lock() {
                Ok(()) => {
                    let registry = Arc::clone(self);
                    return Ok(Locked { registry, file });
                }
                Err(TryLockError::WouldBlock) => sleep(PAUSE),
                Err(TryLockError::Error(source)) => return Err(self.unusable(source)),
            }
        }
        Err(RegistryError::Locked(self.path.clone()))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
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
    pub(super) fn read(&self) -> Result<Table, RegistryError> {
        self.registry.read()
    }

    /// Removes those that don't run any more from a table, and what they left behind; whether there
    /// were any.
    pub(super) fn bury_dead(&self, table: &mut Table) -> bool {
        let dead = table.bury_dead();
        for slice in &dead {
            let _ = fs::remove_file(self.registry.mailbox(*slice));
        }
        !dead.is_empty()
    }

    pub(super) fn write(&self, table: &Table) -> Result<(), RegistryError> {
        let new = self.registry.beside("new");
        fs::write(&new, table.print(&self.registry.boot))
            .and_then(|()| fs::rename(&new, &self.registry.path))
            .map_err(|error| self.registry.unusable(error))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing would not be enough: a child that was forked meanwhile has the file as well.
        let _ = self.file.unlock();
    }
}

/// Sockets share a port within one network namespace, and process numbers mean something within one
/// process namespace: what is elsewhere has another registry.
fn name(address: IpAddr) -> String {
    format!("{address}@{:x}.{:x}", namespace("net"), namespace("pid"))
}

fn namespace(kind: &str) -> u64 {
    fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |found| found.ino())
}

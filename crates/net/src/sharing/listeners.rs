//! Which member listens for which service.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::join_error::JoinError;
use super::member::Member;
use super::number_block::NumberBlock;
use super::process_identity::Identity;
use super::registry::{Locked, Registry, RegistryError};
use super::registry_table::{Listener, Table};
use super::steering::program;
use crate::socket::Receiver;
use crate::sys::option::attach_steering;

/// Why a service can't be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Another process, or this one, has it: `EADDRINUSE`.
    #[error(
        "service {service:#x} is taken by process {pid}: choose another port, or end that process"
    )]
    InUse {
        /// The service id.
        service: u64,
        /// The process that has it; perhaps this one.
        pid: u32,
    },
    /// A limit of open files was reached.
    #[error("{limit}")]
    OpenFiles {
        /// Which one, and what to do.
        limit: JoinError,
        /// The error of the system.
        source: io::Error,
    },
    /// The registry can't be used.
    #[error(transparent)]
    Registry(RegistryError),
}

impl From<RegistryError> for ServiceError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Unusable { path, source } => match JoinError::of_limit(&source) {
                Some(limit) => Self::OpenFiles { limit, source },
                None => Self::Registry(RegistryError::Unusable { path, source }),
            },
            other => Self::Registry(other),
        }
    }
}

/// The services that the members of an address listen for, or have reserved.
///
/// A service is named by its 64-bit id; for the usual port spaces the port is in its low 16 bits. A
/// service of a dead process can be claimed at once.
#[derive(Debug)]
pub struct Listeners<'m> {
    member: &'m Member,
}

/// Claims services for a member, on any thread: it may have to wait for another process that has locked the registry.
#[derive(Debug)]
pub struct Claimant {
    registry: Arc<Registry>,
    block: NumberBlock,
    /// The member's socket. After the member has left, it is none of the group.
    receiver: Arc<Receiver>,
    /// The services that the member has claimed.
    services: Arc<Mutex<Vec<u64>>>,
}

impl Member {
    /// The services that the members of this address listen for.
    pub fn listeners(&self) -> Listeners<'_> {
        Listeners { member: self }
    }

    /// Claims services for this member.
    pub fn claimant(&self) -> Claimant {
        Claimant {
            registry: Arc::clone(&self.registry),
            block: self.block,
            receiver: Arc::clone(&self.receiver),
            services: Arc::clone(&self.services),
        }
    }

    /// Claims the services of this member again that are not in the registry any more, because it was damaged or
    /// removed. One that another process has claimed meanwhile is lost.
    pub(super) fn claim_lost_services(&self) -> Result<(), RegistryError> {
        let lost = self.lost_services(&*self.registry.current_if_free()?);
        if lost.is_empty() {
            return Ok(());
        }
        let locked = self.registry.lock_if_free()?;
        let mut table = locked.read()?;
        for service in self.lost_services(&table) {
            table.listeners.push(Listener {
                service,
                block: self.block,
            });
        }
        self.claimant().write(&locked, &table)
    }

    fn lost_services(&self, table: &Table) -> Vec<u64> {
        let is_known = |service: u64| table.listeners.iter().any(|it| it.service == service);
        let services = known_services(&self.services);
        services
            .iter()
            .copied()
            .filter(|it| !is_known(*it))
            .collect()
    }
}

/// No change of the list can fail halfway.
fn known_services(services: &Mutex<Vec<u64>>) -> MutexGuard<'_, Vec<u64>> {
    services.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listeners<'_> {
    /// The block of the member that listens for a service. The member may have died a moment ago.
    pub fn owner(&self, service: u64) -> Result<Option<NumberBlock>, RegistryError> {
        let registry = &self.member.registry;
        let table = registry.current()?;
        let found = table.listeners.iter().find(|it| it.service == service);
        let owner = found.and_then(|it| table.member(it.block));
        let owner = owner.filter(|it| !it.withdrawn);
        let living = owner.filter(|it| registry.is_alive(it.process, Instant::now()));
        Ok(living.map(|it| it.block))
    }
}

impl Claimant {
    /// Claims a service for the member.
    pub fn claim(&self, service: u64) -> Result<(), ServiceError> {
        let locked = self.registry.lock()?;
        let mut table = locked.read()?;
        if let Some(process) = holder(&table, service) {
            let pid = process.pid;
            return Err(ServiceError::InUse { service, pid });
        }
        // The process that had it is dead.
        table.listeners.retain(|it| it.service != service);
        table.listeners.push(Listener {
            service,
            block: self.block,
        });
        self.write(&locked, &table)?;
        known_services(&self.services).push(service);
        Ok(())
    }

    /// Releases a service of the member.
    pub fn release(&self, service: u64) -> Result<(), RegistryError> {
        known_services(&self.services).retain(|it| *it != service);
        let locked = self.registry.lock()?;
        let mut table = locked.read()?;
        let ours = self.block;
        (table.listeners).retain(|it| it.service != service || it.block != ours);
        self.write(&locked, &table)
    }

    /// Records the services, and lets the kernel steer requests to the members that have them.
    fn write(&self, locked: &Locked, table: &Table) -> Result<(), RegistryError> {
        locked.write(table)?;
        // If the kernel rejects the program, requests reach any member as before, which forwards them.
        let _ = attach_steering(self.receiver.as_fd(), &program(table));
        Ok(())
    }
}

/// The running process that has a service.
fn holder(table: &Table, service: u64) -> Option<Identity> {
    let listener = table.listeners.iter().find(|it| it.service == service)?;
    let process = table.member(listener.block)?.process;
    process.is_alive().then_some(process)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::sharing::registry_table::Entry;
    use crate::sharing::runtime_directory::RuntimeDirectory;

    #[test]
    fn a_service_of_a_dead_process_belongs_to_the_next_that_claims_it() {
        let name = format!("roci-listeners-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let directory = RuntimeDirectory::at(&path).unwrap();
        let member = Member::join_in(&directory, IpAddr::from([127, 91, 3, 8])).unwrap();
        let living = Identity::current();
        let blocks = [0x1000, 0x2000].map(|first| NumberBlock::new(first, 12).unwrap());
        let free = blocks.into_iter().find(|it| !it.overlaps(member.block()));
        let dead = Entry {
            block: free.unwrap(),
            process: Identity {
                start: living.start + 1,
                ..living
            },
            socket_index: None,
            round: 0,
            withdrawn: false,
        };
        let locked = member.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.add(dead);
        table.listeners.push(Listener {
            service: 7,
            block: dead.block,
        });
        locked.write(&table).unwrap();
        drop(locked);
        assert_eq!(member.listeners().owner(7).unwrap(), None);
        member.claimant().claim(7).unwrap();
        assert_eq!(member.listeners().owner(7).unwrap(), Some(member.block()));
        drop(member);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

//! The objects that queue pairs of several devices may use: protection domains, memory, completion queues and
//! shared receive queues.
//!
//! A driver may run several devices for one context, each with its own lock. They share these objects. The memory is
//! read for each packet and seldom changed. The tables are used when objects are created and destroyed, and for XRC.
//! A thread that needs both locks takes that of the tables first.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::completion::CompletionQueue;
use crate::limits::Limits;
use crate::memory::{Memory, ProtectionDomain, ReadMostly, Reading, Writing};
use crate::object_error::ObjectError;
use crate::peers::Peers;
use crate::queue_pair_init::{AttachedQueues, QueuePairInit};
use crate::random::Random;
use crate::receive_queue::{SharedReceiveInit, SharedReceiveQueue, SrqNumbers, XrcDomain};
use crate::slab::{Id, Table};

/// The objects that the queue pairs of one or several devices use.
pub struct SharedObjects {
    memory: ReadMostly<Memory>,
    tables: Mutex<Tables>,
    /// Which peers understand what, learned by each device for all.
    peers: Mutex<Peers>,
    /// How many devices have used them.
    devices: AtomicUsize,
}

/// The objects, as one device uses them.
pub(crate) struct DeviceObjects {
    objects: Arc<SharedObjects>,
    /// The number of the device among those that share them.
    device: usize,
}

impl DeviceObjects {
    pub(crate) fn new(objects: Arc<SharedObjects>) -> Self {
        let device = objects.devices.fetch_add(1, Ordering::Relaxed);
        Self { objects, device }
    }

    pub(crate) fn shared(&self) -> &Arc<SharedObjects> {
        &self.objects
    }

    /// All registered memory. It cannot change until the guard is dropped.
    #[inline(always)]
    pub(crate) fn memory(&self) -> Reading<'_, Memory> {
        self.objects.memory.read(self.device)
    }
}

impl Deref for DeviceObjects {
    type Target = SharedObjects;

    fn deref(&self) -> &SharedObjects {
        &self.objects
    }
}

/// The objects of each kind, with the number of their users.
pub(crate) struct Tables {
    pub(crate) domains: Table<ProtectionDomain>,
    pub(crate) xrc_domains: Table<XrcDomain>,
    pub(crate) completion_queues: Table<CompletionQueue, Counted<CompletionQueue>>,
    pub(crate) receive_queues: Table<SharedReceiveQueue, Counted<SharedReceiveQueue>>,
    pub(crate) srq_numbers: SrqNumbers,
    pub(crate) address_handles: u32,
}

/// An object, and how many others use it.
pub(crate) struct Counted<T> {
    pub(crate) object: Arc<T>,
    pub(crate) users: u32,
}

impl<T> Counted<T> {
    pub(crate) fn new(object: T) -> Self {
        Self {
            object: Arc::new(object),
            users: 0,
        }
    }
}

impl SharedObjects {
    pub(crate) fn new(mut random: Random, limits: Limits) -> Self {
        Self {
            tables: Mutex::new(Tables {
                domains: Table::with_capacity(limits.domains),
                xrc_domains: Table::with_capacity(limits.xrc_domains),
                completion_queues: Table::with_capacity(limits.completion_queues),
                receive_queues: Table::with_capacity(limits.shared_receive_queues),
                srq_numbers: SrqNumbers::new(random.fork()),
                address_handles: 0,
            }),
            peers: Mutex::new(Peers::new(random.fork())),
            memory: ReadMostly::new(Memory::new(random, limits)),
            devices: AtomicUsize::new(0),
        }
    }

    /// All registered memory, to change it. No device accesses it until the guard is dropped.
    pub(crate) fn memory_mut(&self) -> Writing<'_, Memory> {
        self.memory.write()
    }

    /// Runs `work` while no device accesses registered memory.
    pub fn without_memory_access<R>(&self, work: impl FnOnce() -> R) -> R {
        let _memory = self.memory_mut();
        work()
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock()
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }

    /// A completion queue.
    #[must_use]
    pub fn completion_queue(&self, id: Id<CompletionQueue>) -> Option<Arc<CompletionQueue>> {
        self.tables().completion_queue(id)
    }

    /// A shared receive queue.
    #[must_use]
    pub fn shared_receive_queue(
        &self,
        id: Id<SharedReceiveQueue>,
    ) -> Option<Arc<SharedReceiveQueue>> {
        self.tables().receive_queue(id)
    }
}

impl Tables {
    pub(crate) fn completion_queue(&self, id: Id<CompletionQueue>) -> Option<Arc<CompletionQueue>> {
        let counted = self.completion_queues.get(id)?;
        Some(Arc::clone(&counted.object))
    }

    pub(crate) fn receive_queue(
        &self,
        id: Id<SharedReceiveQueue>,
    ) -> Option<Arc<SharedReceiveQueue>> {
        let counted = self.receive_queues.get(id)?;
        Some(Arc::clone(&counted.object))
    }

    /// The queues of a new queue pair. Until [`detach`](Self::detach) nobody can destroy them.
    pub(crate) fn attach(&mut self, init: &QueuePairInit) -> Result<AttachedQueues, ObjectError> {
        let unknown = ObjectError::Unknown;
        self.domains.get(init.domain).ok_or(unknown)?;
        if let Some(domain) = init.xrc_domain {
            self.xrc_domains.get(domain).ok_or(unknown)?;
        }
        let completions = |id| self.completion_queue(id).ok_or(unknown);
        let receives = |id| self.receive_queue(id).ok_or(unknown);
        let attached = AttachedQueues {
            send_completions: completions(init.send_completions)?,
            receive_completions: completions(init.receive_completions)?,
            shared_receive: init.shared_receive.map(receives).transpose()?,
        };
        self.count_queue_pair(init, 1);
        Ok(attached)
    }

    /// Ends the use of its queues by a queue pair that was destroyed.
    pub(crate) fn detach(&mut self, init: &QueuePairInit) {
        self.count_queue_pair(init, -1);
    }

    pub(crate) fn count_in_domain(&mut self, id: Id<ProtectionDomain>, change: i32) {
        if let Some(domain) = self.domains.get_mut(id) {
            domain.users = domain.users.saturating_add_signed(change);
        }
    }

    fn count_completions(&mut self, id: Id<CompletionQueue>, change: i32) {
        if let Some(queue) = self.completion_queues.get_mut(id) {
            queue.users = queue.users.saturating_add_signed(change);
        }
    }

    fn count_xrc(&mut self, id: Id<XrcDomain>, change: i32) {
        if let Some(domain) = self.xrc_domains.get_mut(id) {
            domain.users = domain.users.saturating_add_signed(change);
        }
    }

    pub(crate) fn count_shared_receive(&mut self, init: &SharedReceiveInit, change: i32) {
        self.count_in_domain(init.domain, change);
        if let Some((domain, queue)) = init.xrc {
            self.count_xrc(domain, change);
            self.count_completions(queue, change);
        }
    }

    fn count_queue_pair(&mut self, init: &QueuePairInit, change: i32) {
        self.count_in_domain(init.domain, change);
        self.count_completions(init.send_completions, change);
        self.count_completions(init.receive_completions, change);
        if let Some(domain) = init.xrc_domain {
            self.count_xrc(domain, change);
        }
        if let Some(id) = init.shared_receive
            && let Some(queue) = self.receive_queues.get_mut(id)
        {
            queue.users = queue.users.saturating_add_signed(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_share_objects_have_locks_of_their_own_for_reading_memory() {
        let objects = Arc::new(SharedObjects::new(Random::new([1; 32]), Limits::default()));
        let [first, second] = [(); 2].map(|()| DeviceObjects::new(Arc::clone(&objects)));
        assert_ne!(first.device, second.device);
    }
}

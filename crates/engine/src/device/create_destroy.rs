//! Creation and destruction of the objects of a device.

use std::sync::Arc;

use wire::{Key, Qpn};

use super::Device;
use crate::completion::CompletionQueue;
use crate::incident::{Incident, Incidents, ObjectKind};
use crate::limits::{MAX_COMPLETIONS, MAX_INLINE, MAX_REQUESTS};
use crate::memory::{
    Access, Buffer, Extent, MemoryError, ProtectionDomain, RegionState, Registration, WindowKind,
};
use crate::object_counts::ObjectCounts;
use crate::object_error::ObjectError;
use crate::observation::{Observation, QueuePairSizes};
use crate::qpn_range::QpnRange;
use crate::queue_pair::QueuePair;
use crate::queue_pair_init::QueuePairInit;
use crate::receive_queue::{SharedReceiveInit, SharedReceiveQueue, XrcDomain};
use crate::shared_objects::{Counted, SharedObjects};
use crate::slab::Id;
use crate::state::QueuePairType;
use crate::work_request::MAX_SEGMENTS;

impl Device {
    /// Allocates a protection domain.
    pub fn allocate_domain(&mut self) -> Result<Id<ProtectionDomain>, ObjectError> {
        if self.opened_before_fork {
            return Err(ObjectError::OpenedBeforeFork);
        }
        let domain = ProtectionDomain { users: 0 };
        let id = self.state.objects.tables().domains.insert(domain);
        let id = id.ok_or(ObjectError::Exhausted)?;
        self.object_counts.domains += 1;
        self.observe(Observation::DomainAllocated(id));
        Ok(id)
    }

    /// Leaves a protection domain to the library that allocated it: the program need not free it.
    pub fn leave_domain(&mut self, id: Id<ProtectionDomain>) {
        self.observe(Observation::DomainFreed(id));
    }

    /// Records an observation, if they are recorded.
    fn observe(&mut self, observation: Observation) {
        self.state.observations.note(|| observation);
    }

    /// Frees a protection domain that no object uses.
    pub fn free_domain(&mut self, id: Id<ProtectionDomain>) -> Result<(), ObjectError> {
        let mut tables = self.state.objects.tables();
        let domain = tables.domains.get(id).ok_or(ObjectError::Unknown)?;
        check_unused(
            ObjectKind::ProtectionDomain,
            domain.users,
            &mut self.state.incidents,
        )?;
        tables.domains.remove(id);
        drop(tables);
        self.object_counts.domains -= 1;
        self.observe(Observation::DomainFreed(id));
        Ok(())
    }

    /// Opens an XRC domain.
    pub fn open_xrc_domain(&mut self) -> Result<Id<XrcDomain>, ObjectError> {
        let domain = XrcDomain { users: 0 };
        let id = self.state.objects.tables().xrc_domains.insert(domain);
        id.ok_or(ObjectError::Exhausted)
    }

    /// Closes an XRC domain that no object uses.
    pub fn close_xrc_domain(&mut self, id: Id<XrcDomain>) -> Result<(), ObjectError> {
        let mut tables = self.state.objects.tables();
        let domain = tables.xrc_domains.get(id).ok_or(ObjectError::Unknown)?;
        check_unused(
            ObjectKind::XrcDomain,
            domain.users,
            &mut self.state.incidents,
        )?;
        tables.xrc_domains.remove(id);
        Ok(())
    }

    /// Registers memory. `address` is the address of its first byte in work requests.
    pub fn register(
        &mut self,
        domain: Id<ProtectionDomain>,
        extent: impl Into<Extent>,
        address: u64,
        access: Access,
    ) -> Result<Registration, MemoryError> {
        let mut tables = self.state.objects.tables();
        let exists = tables.domains.get(domain);
        exists.ok_or(MemoryError::UnknownDomain)?;
        let mut memory = self.state.objects.memory_mut();
        let registered = memory.register(domain, extent.into(), address, access);
        drop(memory);
        if registered.is_ok() {
            tables.count_in_domain(domain, 1);
            self.object_counts.regions += 1;
        }
        drop(tables);
        match registered {
            Ok(region) => self.observe_registration(region.local_key),
            Err(error) => self
                .state
                .incidents
                .note(|| Incident::RegisterRejected { access, error }),
        }
        registered
    }

    /// Allocates device memory and registers it with addresses that start at 0.
    ///
    /// A software device keeps it in ordinary memory. The buffer is for copies in and out.
    pub fn register_device_memory(
        &mut self,
        domain: Id<ProtectionDomain>,
        length: usize,
        access: Access,
    ) -> Result<(Arc<Buffer>, Registration), MemoryError> {
        let buffer = Buffer::zeroed(length);
        let access = access | Access::ZERO_BASED;
        let registration = self.register(domain, Arc::clone(&buffer), 0, access)?;
        Ok((buffer, registration))
    }

    /// Changes a region in place and keeps its keys. `None` keeps the present value.
    pub fn reregister(
        &mut self,
        key: Key,
        domain: Option<Id<ProtectionDomain>>,
        place: Option<(Extent, u64)>,
        access: Option<Access>,
    ) -> Result<(), MemoryError> {
        let objects = &self.state.objects;
        let mut tables = objects.tables();
        if let Some(domain) = domain {
            let exists = tables.domains.get(domain);
            exists.ok_or(MemoryError::UnknownDomain)?;
        }
        let former = (objects.memory_mut()).reregister(key, domain, place, access)?;
        tables.count_in_domain(former, -1);
        tables.count_in_domain(domain.unwrap_or(former), 1);
        drop(tables);
        self.observe_registration(key);
        Ok(())
    }

    /// A region as it is registered now.
    #[must_use]
    pub fn region(&self, key: Key) -> Option<RegionState> {
        self.state.objects.memory().region_state(key)
    }

    fn observe_registration(&mut self, key: Key) {
        if !self.state.observations.are_recorded() {
            return;
        }
        let registration = self.state.objects.memory().registration(key);
        if let Some((region, access, memory, accelerated)) = registration {
            self.observe(Observation::Registered {
                region,
                access,
                memory,
                accelerated,
            });
        }
    }

    /// Deregisters a region. Its keys become invalid.
    pub fn deregister(&mut self, key: Key) -> Result<(), MemoryError> {
        let is_observed = self.state.observations.are_recorded();
        let objects = &self.state.objects;
        let changed = is_observed.then(|| objects.memory().changed_mapping(key));
        let domain = objects.memory_mut().deregister(key)?;
        objects.tables().count_in_domain(domain, -1);
        self.object_counts.regions -= 1;
        self.observe(Observation::Deregistered {
            key,
            changed: changed.flatten(),
        });
        Ok(())
    }

    /// Deregisters a region and unbinds its windows, so that none of their keys grants access to
    /// the memory.
    pub fn revoke(&mut self, key: Key) -> Result<(), MemoryError> {
        self.state.objects.memory_mut().unbind_windows_of(key);
        self.deregister(key)
    }

    /// Allocates an unbound memory window.
    pub fn allocate_window(
        &mut self,
        domain: Id<ProtectionDomain>,
        kind: WindowKind,
    ) -> Result<Key, MemoryError> {
        let objects = &self.state.objects;
        let mut tables = objects.tables();
        let exists = tables.domains.get(domain);
        exists.ok_or(MemoryError::UnknownDomain)?;
        let key = objects.memory_mut().allocate_window(domain, kind)?;
        tables.count_in_domain(domain, 1);
        Ok(key)
    }

    /// Frees a memory window, bound or not.
    pub fn free_window(&mut self, key: Key) -> Result<(), MemoryError> {
        let objects = &self.state.objects;
        let domain = objects.memory_mut().free_window(key)?;
        objects.tables().count_in_domain(domain, -1);
        Ok(())
    }

    /// The current key of a window. Binding changes the key.
    #[must_use]
    pub fn window_key(&self, key: Key) -> Option<Key> {
        self.state.objects.memory().window_key(key)
    }

    /// How many regions and windows exist.
    #[must_use]
    pub fn memory_count(&self) -> usize {
        self.state.objects.memory().len()
    }

    /// Creates a completion queue.
    pub fn create_completion_queue(
        &mut self,
        capacity: u32,
    ) -> Result<Id<CompletionQueue>, ObjectError> {
        if self.opened_before_fork {
            return Err(ObjectError::OpenedBeforeFork);
        }
        in_range("the number of entries", capacity, MAX_COMPLETIONS)?;
        let mut tables = self.state.objects.tables();
        let new = |id| Counted::new(CompletionQueue::new(id, capacity));
        let id = tables.completion_queues.insert_with(new);
        drop(tables);
        let id = id.ok_or(ObjectError::Exhausted)?;
        self.object_counts.completion_queues += 1;
        self.observe(Observation::CompletionQueue(id, capacity));
        Ok(id)
    }

    /// A completion queue.
    #[must_use]
    pub fn completion_queue(&self, id: Id<CompletionQueue>) -> Option<Arc<CompletionQueue>> {
        self.state.objects.completion_queue(id)
    }

    /// Changes the capacity of a completion queue.
    pub fn resize_completion_queue(
        &mut self,
        id: Id<CompletionQueue>,
        capacity: u32,
    ) -> Result<(), ObjectError> {
        in_range("the number of entries", capacity, MAX_COMPLETIONS)?;
        let queue = self.completion_queue(id).ok_or(ObjectError::Unknown)?;
        if queue.resize(capacity) {
            self.observe(Observation::CompletionQueue(id, capacity));
            Ok(())
        } else {
            Err(ObjectError::Mismatch(
                "more completions wait in the queue than would fit: poll them first",
            ))
        }
    }

    /// Destroys a completion queue that no object uses.
    pub fn destroy_completion_queue(&mut self, id: Id<CompletionQueue>) -> Result<(), ObjectError> {
        let mut tables = self.state.objects.tables();
        let queue = tables.completion_queues.get(id);
        let users = queue.ok_or(ObjectError::Unknown)?.users;
        check_unused(
            ObjectKind::CompletionQueue,
            users,
            &mut self.state.incidents,
        )?;
        tables.completion_queues.remove(id);
        drop(tables);
        self.state.overrun_before.retain(|known| *known != id);
        self.object_counts.completion_queues -= 1;
        self.observe(Observation::CompletionQueueDestroyed(id));
        Ok(())
    }

    /// Creates a shared receive queue.
    pub fn create_shared_receive_queue(
        &mut self,
        init: SharedReceiveInit,
    ) -> Result<Id<SharedReceiveQueue>, ObjectError> {
        in_range("the number of receives", init.capacity, MAX_REQUESTS)?;
        in_range("the number of segments", init.max_segments, MAX_SEGMENTS)?;
        let mut guard = self.state.objects.tables();
        let tables = &mut *guard;
        let unknown = ObjectError::Unknown;
        tables.domains.get(init.domain).ok_or(unknown)?;
        if let Some((domain, queue)) = init.xrc {
            tables.xrc_domains.get(domain).ok_or(unknown)?;
            tables.completion_queues.get(queue).ok_or(unknown)?;
        }
        let number = init.xrc.map(|_| tables.srq_numbers.draw());
        let new = |id| Counted::new(SharedReceiveQueue::new(id, init, number));
        let id = tables.receive_queues.insert_with(new);
        let id = id.ok_or(ObjectError::Exhausted)?;
        if let Some(number) = number {
            tables.srq_numbers.assign(number, id);
        }
        tables.count_shared_receive(&init, 1);
        drop(guard);
        self.object_counts.shared_receive_queues += 1;
        self.observe(Observation::SharedReceiveQueue(id));
        Ok(id)
    }

    /// A shared receive queue.
    #[must_use]
    pub fn shared_receive_queue(
        &self,
        id: Id<SharedReceiveQueue>,
    ) -> Option<Arc<SharedReceiveQueue>> {
        self.state.objects.shared_receive_queue(id)
    }

    /// Requests one event when fewer than `limit` receives are left. 0 cancels the request.
    pub fn set_shared_receive_limit(
        &mut self,
        id: Id<SharedReceiveQueue>,
        limit: u32,
    ) -> Result<(), ObjectError> {
        self.modify_shared_receive_queue(id, None, Some(limit))
    }

    /// Changes the capacity of a shared receive queue.
    pub fn resize_shared_receive_queue(
        &mut self,
        id: Id<SharedReceiveQueue>,
        capacity: u32,
    ) -> Result<(), ObjectError> {
        self.modify_shared_receive_queue(id, Some(capacity), None)
    }

    /// Changes the capacity of a shared receive queue and its limit; `None` keeps the present value. If one of them is
    /// rejected, neither changes.
    pub fn modify_shared_receive_queue(
        &mut self,
        id: Id<SharedReceiveQueue>,
        capacity: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), ObjectError> {
        if let Some(capacity) = capacity {
            in_range("the number of receives", capacity, MAX_REQUESTS)?;
        }
        let queue = self.shared_receive_queue(id).ok_or(ObjectError::Unknown)?;
        queue.modify(capacity, limit)
    }

    /// Destroys a shared receive queue that no queue pair uses.
    pub fn destroy_shared_receive_queue(
        &mut self,
        id: Id<SharedReceiveQueue>,
    ) -> Result<(), ObjectError> {
        let mut guard = self.state.objects.tables();
        let tables = &mut *guard;
        let queue = tables.receive_queues.get(id).ok_or(ObjectError::Unknown)?;
        let (init, number) = (queue.object.init, queue.object.number());
        check_unused(
            ObjectKind::SharedReceiveQueue,
            queue.users,
            &mut self.state.incidents,
        )?;
        if let Some(number) = number {
            tables.srq_numbers.release(number);
        }
        tables.receive_queues.remove(id);
        tables.count_shared_receive(&init, -1);
        drop(guard);
        self.object_counts.shared_receive_queues -= 1;
        self.observe(Observation::SharedReceiveQueueDestroyed(id));
        Ok(())
    }

    /// Creates a queue pair in the reset state. It may get any number of the device, so the device
    /// [gives](Self::can_give) none away after this.
    pub fn create_queue_pair(&mut self, init: QueuePairInit) -> Result<Qpn, ObjectError> {
        self.keeps_numbers |= init.kind != QueuePairType::Management;
        self.create_queue_pair_in(self.queue_pairs.space(), init)
    }

    /// Creates a queue pair in the reset state, with one of these numbers of the device. There must be a power of two of them.
    pub fn create_queue_pair_in(
        &mut self,
        numbers: QpnRange,
        init: QueuePairInit,
    ) -> Result<Qpn, ObjectError> {
        check_queue_pair(&init)?;
        let attached = self.state.objects.tables().attach(&init)?;
        let settings = self.settings;
        let make = |number| QueuePair::new(number, init, attached, settings);
        let number = match init.kind {
            QueuePairType::Management => self.queue_pairs.insert_management(make),
            _ => self.queue_pairs.insert(numbers, &self.given, make),
        };
        let Some(number) = number else {
            self.state.objects.tables().detach(&init);
            return Err(ObjectError::Exhausted);
        };
        self.observe(Observation::QueuePair(
            number,
            QueuePairSizes {
                kind: init.kind,
                send_completions: init.send_completions,
                receive_completions: init.receive_completions,
                shared_receive: init.shared_receive,
                max_sends: init.max_sends,
                max_receives: init.max_receives,
                max_send_segments: init.max_send_segments,
                max_receive_segments: init.max_receive_segments,
                max_inline: init.max_inline,
            },
        ));
        Ok(number)
    }

    /// Destroys a queue pair. Outstanding requests and unpolled completions are discarded.
    pub fn destroy_queue_pair(&mut self, number: Qpn) -> Result<(), ObjectError> {
        let mut queue_pair = self
            .queue_pairs
            .remove(number)
            .ok_or(ObjectError::Unknown)?;
        queue_pair.leave_path(&mut self.state.paths);
        let init = *queue_pair.init();
        queue_pair.observe_discard(Observation::QueuePairDestroyed, &mut self.state);
        self.groups.leave_all(number);
        self.state.uncompared.remove(&number);
        self.state.objects.memory().settle();
        self.state.objects.memory_mut().release_queue_pair(number);
        queue_pair.purge_completions();
        self.state.objects.tables().detach(&init);
        Ok(())
    }

    /// The maximum number of queue pairs, not counting queue pair 1.
    #[must_use]
    pub fn max_queue_pairs(&self) -> u32 {
        self.queue_pairs.capacity()
    }

    /// How many queue pairs exist.
    #[must_use]
    pub fn queue_pair_count(&self) -> usize {
        self.queue_pairs.len()
    }

    /// How many objects this device created, minus those that it destroyed and hidden ones. This takes no lock.
    #[must_use]
    pub fn object_counts(&self) -> ObjectCounts {
        self.object_counts
    }

    /// Excludes objects from the counts that the program does not know, such as those of queue pair 1.
    pub fn hide_objects(&mut self, counts: ObjectCounts) {
        self.object_counts -= counts;
    }

    /// Includes hidden objects again, before they are destroyed.
    pub fn unhide_objects(&mut self, counts: ObjectCounts) {
        self.object_counts += counts;
    }

    /// How many protection domains exist.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        self.state.objects.tables().domains.len()
    }

    /// How many XRC domains exist.
    #[must_use]
    pub fn xrc_domain_count(&self) -> usize {
        self.state.objects.tables().xrc_domains.len()
    }

    /// How many completion queues exist.
    #[must_use]
    pub fn completion_queue_count(&self) -> usize {
        self.state.objects.tables().completion_queues.len()
    }

    /// How many shared receive queues exist.
    #[must_use]
    pub fn shared_receive_queue_count(&self) -> usize {
        self.state.objects.tables().receive_queues.len()
    }

    /// The objects that its queue pairs use, for another device that shares them.
    #[must_use]
    pub fn objects(&self) -> &Arc<SharedObjects> {
        self.state.objects.shared()
    }
}

/// Fails if other objects use one that is to be destroyed.
fn check_unused(
    object: ObjectKind,
    users: u32,
    incidents: &mut Incidents,
) -> Result<(), ObjectError> {
    if users == 0 {
        return Ok(());
    }
    incidents.note(|| Incident::DestroyRejected { object, users });
    Err(ObjectError::InUse(users))
}

fn check_queue_pair(init: &QueuePairInit) -> Result<(), ObjectError> {
    let at_most = |what, value, max| {
        if value > max {
            Err(ObjectError::OutOfRange { what, max })
        } else {
            Ok(())
        }
    };
    at_most("the number of sends", init.max_sends, MAX_REQUESTS)?;
    at_most("the number of receives", init.max_receives, MAX_REQUESTS)?;
    let segments = "the number of segments";
    at_most(segments, init.max_send_segments, MAX_SEGMENTS)?;
    at_most(segments, init.max_receive_segments, MAX_SEGMENTS)?;
    at_most("the inline size", init.max_inline, MAX_INLINE)?;
    match (init.kind, init.xrc_domain) {
        (QueuePairType::XrcTarget, None) => Err(ObjectError::Mismatch(
            "an XRC target queue pair needs an XRC domain",
        )),
        (QueuePairType::XrcTarget, Some(_)) | (_, None) => Ok(()),
        (_, Some(_)) => Err(ObjectError::Mismatch(
            "only an XRC target queue pair takes an XRC domain",
        )),
    }
}

fn in_range(what: &'static str, value: u32, max: u32) -> Result<(), ObjectError> {
    if (1..=max).contains(&value) {
        Ok(())
    } else {
        Err(ObjectError::OutOfRange { what, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Config;

    #[test]
    fn objects_are_counted_once_by_devices_that_share_them() {
        let mut first = Device::new(Config::default());
        let mut second = Device::sharing(Config::default(), Arc::clone(first.objects()));
        let domain = first.allocate_domain().expect("a domain");
        let own = first.object_counts();
        first.hide_objects(own);
        let queue = second.create_completion_queue(1).expect("a queue");
        let other_domain = second.allocate_domain().expect("a domain");
        let region = second.register(domain, Buffer::zeroed(8), 0, Access::LOCAL_WRITE);
        let window = second.allocate_window(domain, WindowKind::One);
        let init = SharedReceiveInit {
            domain,
            capacity: 1,
            max_segments: 1,
            xrc: None,
        };
        let receives = first.create_shared_receive_queue(init).expect("a queue");
        let sum = |first: &Device, second: &Device| {
            let mut sum = first.object_counts();
            sum += second.object_counts();
            sum
        };
        let all = ObjectCounts {
            domains: 1,
            completion_queues: 1,
            regions: 1,
            shared_receive_queues: 1,
        };
        assert_eq!(
            sum(&first, &second),
            all,
            "windows and hidden objects are not counted"
        );
        first.destroy_completion_queue(queue).expect("unused");
        first.free_domain(other_domain).expect("unused");
        let region = region.expect("a region").local_key;
        first.deregister(region).expect("a region");
        second
            .destroy_shared_receive_queue(receives)
            .expect("unused");
        assert_eq!(sum(&first, &second), ObjectCounts::default());
        second
            .free_window(window.expect("a window"))
            .expect("a window");
        first.unhide_objects(own);
        second.free_domain(domain).expect("unused");
        assert_eq!(sum(&first, &second), ObjectCounts::default());
    }

    #[test]
    fn destroyed_xrc_receive_queue_releases_its_number() {
        let mut device = Device::new(Config::default());
        let domain = device.allocate_domain().expect("a domain");
        let completions = device.create_completion_queue(1).expect("a queue");
        let init = SharedReceiveInit {
            domain,
            capacity: 1,
            max_segments: 1,
            xrc: Some((device.open_xrc_domain().expect("a domain"), completions)),
        };
        for _ in 0..5000 {
            let queue = device
                .create_shared_receive_queue(init)
                .expect("the queue has room");
            device
                .destroy_shared_receive_queue(queue)
                .expect("nothing uses the queue");
        }
        assert!(device.state.objects.tables().srq_numbers.len() <= 4096);
    }
}

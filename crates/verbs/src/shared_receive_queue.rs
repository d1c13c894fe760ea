//! Shared receive queues.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use driver::PostedQueue;
use engine::{Id, ObjectError, PostError, ReceiveRequest, Segment, SharedReceiveInit};
use system::verbs;
use wire::Srqn;

use crate::completion_queue::{CompletionQueue, Reservation};
use crate::error::SetupError;
use crate::protection_domain::ProtectionDomain;

/// A receive queue that several queue pairs share. Cheap to clone.
#[derive(Clone)]
pub struct SharedReceiveQueue(Arc<Owner>);

struct Owner {
    domain: ProtectionDomain,
    object: Object,
    capacity: u32,
    /// The room for its receives in the completion queues of its queue pairs, which share it.
    reservations: Mutex<Vec<Weak<Reservation>>>,
}

enum Object {
    Software(PostedQueue),
    System(Arc<verbs::SharedReceiveQueue>),
}

/// Identifies a shared receive queue in asynchronous events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveQueueToken(pub(crate) u64);

impl ReceiveQueueToken {
    pub(crate) fn of_software(queue: Id<engine::SharedReceiveQueue>) -> Self {
        Self(u64::from(queue.index()))
    }
}

impl ProtectionDomain {
    /// Creates a shared receive queue.
    pub fn create_shared_receive_queue(
        &self,
        capacity: u32,
        max_segments: u32,
    ) -> Result<SharedReceiveQueue, ObjectError> {
        if let Some(domain) = self.system() {
            let queue = verbs::SharedReceiveQueue::create(domain, capacity, max_segments)?;
            return Ok(SharedReceiveQueue::of_system(self, queue, capacity));
        }
        let (_, domain) = self.software("shared receive queues")?;
        let init = SharedReceiveInit {
            domain,
            capacity,
            max_segments,
            xrc: None,
        };
        SharedReceiveQueue::create(self, init)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn create(
        domain: &ProtectionDomain,
        init: SharedReceiveInit,
    ) -> Result<Self, ObjectError> {
        let (driver, _) = domain.software("shared receive queues")?;
        let capacity = init.capacity;
        let queue = driver.create_shared_receive_queue(init)?;
        Ok(Self::of(domain, Object::Software(queue), capacity))
    }

    pub(crate) fn of_system(
        domain: &ProtectionDomain,
        queue: Arc<verbs::SharedReceiveQueue>,
        capacity: u32,
    ) -> Self {
        Self::of(domain, Object::System(queue), capacity)
    }

    fn of(domain: &ProtectionDomain, object: Object, capacity: u32) -> Self {
        Self(Arc::new(Owner {
            domain: domain.clone(),
            object,
            capacity,
            reservations: Mutex::default(),
        }))
    }

    /// How many receives it holds.
    pub(crate) fn capacity(&self) -> u32 {
        self.0.capacity
    }

    /// Reserves room for the completions of its receives, once for all queue pairs that complete there.
    pub(crate) fn reserve(&self, queue: &CompletionQueue) -> Result<Arc<Reservation>, SetupError> {
        let known = self.0.reservations.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.retain(|reservation| reservation.strong_count() > 0);
        let mut living = known.iter().filter_map(Weak::upgrade);
        if let Some(found) = living.find(|reservation| reservation.queue().is(queue)) {
            return Ok(found);
        }
        let new = Arc::new(queue.reserve(self.0.capacity)?);
        known.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// Its number for peers, if it is for XRC.
    pub(crate) fn number(&self) -> Option<Srqn> {
        match &self.0.object {
            Object::Software(queue) => {
                let (driver, id) = (self.0.domain.driver(), queue.id());
                driver.call_without_transmit(|device| device.shared_receive_queue(id)?.number())
            }
            Object::System(queue) => queue.number(),
        }
    }

    /// Posts a receive into a segment of registered memory, or into several, one after the other.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        let request = ReceiveRequest::new(id, segments);
        match &self.0.object {
            Object::Software(queue) => self.0.domain.driver().post_shared_receive(queue, request),
            Object::System(queue) => Ok(queue.post_receive(&request)?),
        }
    }

    /// Its token in [events](crate::AsyncEvent::SharedReceiveLimit) of its device.
    #[must_use]
    pub fn token(&self) -> ReceiveQueueToken {
        match &self.0.object {
            Object::Software(queue) => ReceiveQueueToken::of_software(queue.id()),
            Object::System(queue) => ReceiveQueueToken(queue.token()),
        }
    }

    /// Arms the limit: one event when fewer than `limit` receives are left; 0 disarms it.
    pub fn arm_limit(&self, limit: u32) -> Result<(), ObjectError> {
        match &self.0.object {
            Object::Software(queue) => {
                let (driver, id) = (self.0.domain.driver(), queue.id());
                driver.call(|device| device.set_shared_receive_limit(id, limit))
            }
            Object::System(queue) => Ok(queue.arm_limit(limit)?),
        }
    }

    /// Its number in the engine; `None` at devices of the system.
    pub(crate) fn id(&self) -> Option<Id<engine::SharedReceiveQueue>> {
        match &self.0.object {
            Object::Software(queue) => Some(queue.id()),
            Object::System(_) => None,
        }
    }

    /// The system's queue, if it belongs to a device of the system.
    pub(crate) fn system(&self) -> Option<&Arc<verbs::SharedReceiveQueue>> {
        match &self.0.object {
            Object::Software(_) => None,
            Object::System(queue) => Some(queue),
        }
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedReceiveQueue")
            .field(&self.id().map(Id::index))
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Object::Software(queue) = &self.object {
            let (driver, id) = (self.domain.driver(), queue.id());
            let _ = driver.call(|device| device.destroy_shared_receive_queue(id));
        }
    }
}

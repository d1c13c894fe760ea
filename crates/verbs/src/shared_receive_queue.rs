//! Shared receive queues.

use std::fmt;
use std::sync::Arc;

use driver::PostedQueue;
use engine::{Id, ObjectError, PostError, ReceiveRequest, Segment, SharedReceiveInit};

use wire::Srqn;

use crate::protection_domain::ProtectionDomain;

/// A receive queue that several queue pairs share. Cheap to clone.
#[derive(Clone)]
pub struct SharedReceiveQueue(Arc<Owner>);

struct Owner {
    domain: ProtectionDomain,
    queue: PostedQueue,
}

impl ProtectionDomain {
    /// Creates a shared receive queue.
    pub fn create_shared_receive_queue(
        &self,
        capacity: u32,
        max_segments: u32,
    ) -> Result<SharedReceiveQueue, ObjectError> {
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
        let queue = driver.create_shared_receive_queue(init)?;
        Ok(Self(Arc::new(Owner {
            domain: domain.clone(),
            queue,
        })))
    }

    /// Its number for peers, if it is for XRC.
    pub(crate) fn number(&self) -> Option<Srqn> {
        let id = self.id();
        let driver = self.0.domain.driver();
        driver.call_without_transmit(|device| device.shared_receive_queue(id)?.number())
    }

    /// Posts a receive.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        let request = ReceiveRequest::new(id, segments);
        let driver = self.0.domain.driver();
        driver.post_shared_receive(&self.0.queue, request)
    }

    /// Arms the limit: one event when fewer than `limit` receives are left; 0 disarms it.
    pub fn arm_limit(&self, limit: u32) -> Result<(), ObjectError> {
        let id = self.id();
        self.0
            .domain
            .driver()
            .call(|device| device.set_shared_receive_limit(id, limit))
    }

    pub(crate) fn id(&self) -> Id<engine::SharedReceiveQueue> {
        self.0.queue.id()
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedReceiveQueue")
            .field(&self.id().index())
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let id = self.queue.id();
        let _ = self
            .domain
            .driver()
            .call(|device| device.destroy_shared_receive_queue(id));
    }
}

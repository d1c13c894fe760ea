//! Posting to shared receive queues.

use std::sync::Arc;

use engine::{Id, ObjectError, PostError, ReceiveRequest, SharedReceiveInit, SharedReceiveQueue};

use super::Driver;

/// A shared receive queue, for threads that post to it.
#[derive(Debug, Clone)]
pub struct PostedQueue {
    queue: Arc<SharedReceiveQueue>,
    id: Id<SharedReceiveQueue>,
    /// Whether a receive can be posted without the lock of a lane: nothing observes that.
    direct: bool,
}

impl PostedQueue {
    /// Its number in the engine.
    #[must_use]
    pub fn id(&self) -> Id<SharedReceiveQueue> {
        self.id
    }
}

impl Driver {
    /// Creates a shared receive queue.
    pub fn create_shared_receive_queue(
        &self,
        init: SharedReceiveInit,
    ) -> Result<PostedQueue, ObjectError> {
        self.call_without_transmit(|device| {
            let id = device.create_shared_receive_queue(init)?;
            let queue = device.shared_receive_queue(id);
            Ok(PostedQueue {
                queue: queue.expect("it was just created"),
                id,
                direct: !device.records_observations(),
            })
        })
    }

    /// Posts a receive. The threads of all lanes post to the same queue, so this waits for no lane.
    pub fn post_shared_receive(
        &self,
        queue: &PostedQueue,
        request: ReceiveRequest,
    ) -> Result<(), PostError> {
        if !queue.direct || self.is_inherited() {
            return self
                .call_without_transmit(|device| device.post_shared_receive(queue.id, request));
        }
        queue.queue.post(request)?;
        self.lane().note_change_without_lock();
        Ok(())
    }
}

//! Completion queues.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Completion, Id, Notify, ObjectError};

use crate::context::Context;
use driver::{Awaited, Driver, Notifier, PolledQueue, WaitSet};

/// A queue of completions, oldest first.
///
/// Cheap to clone. Polling makes progress: the caller's thread receives packets, runs timers and sends
/// responses.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Owner>);

struct Owner {
    context: Context,
    queue: PolledQueue,
    waiting: Arc<WaitSet>,
}

/// Identifies a completion queue in the notifications of its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueToken(pub(crate) u64);

/// How long a waiting thread polls before it sleeps. Most responses arrive sooner than a thread can be woken.
const SPIN: Duration = Duration::from_micros(20);

impl Context {
    /// Creates a completion queue.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        CompletionQueue::create(self, capacity, None)
    }
}

impl CompletionQueue {
    pub(crate) fn create(
        context: &Context,
        capacity: u32,
        channel: Option<&Arc<Notifier>>,
    ) -> Result<Self, ObjectError> {
        let driver = context.driver();
        let id = driver.call(|device| device.create_completion_queue(capacity))?;
        let waiting = Arc::default();
        driver.set_wait_set(id, &waiting);
        if let Some(channel) = channel {
            driver.set_notifier(id, channel, token(id));
        }
        Ok(Self(Arc::new(Owner {
            context: context.clone(),
            queue: driver.polled_queue(id),
            waiting,
        })))
    }

    /// The oldest completion, if there is one now.
    #[must_use]
    pub fn poll(&self) -> Option<Completion> {
        self.driver().poll(&self.0.queue)
    }

    /// Appends at most `limit` completions that are available now. Returns how many.
    pub fn poll_many(&self, into: &mut Vec<Completion>, limit: usize) -> usize {
        let take = |completion| into.push(completion);
        self.driver().poll_many(&self.0.queue, limit, take)
    }

    /// Waits for the oldest completion: polls first, then sleeps.
    #[must_use]
    pub fn wait(&self) -> Completion {
        loop {
            if let Some(completion) = self.wait_until(None) {
                return completion;
            }
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<Completion> {
        self.wait_until(Some(driver::clock::now() + timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Completion> {
        let awake_until = driver::clock::spin_until(SPIN);
        loop {
            if let Some(completion) = self.driver().poll_without_yield(&self.0.queue) {
                return Some(completion);
            }
            let now = driver::clock::now();
            if deadline.is_some_and(|at| at <= now) {
                return None;
            }
            if now >= awake_until {
                self.driver().sleep(&self.awaited(), deadline);
            }
        }
    }

    fn awaited(&self) -> Awaited<'_> {
        Awaited::Completion(self.0.queue.id(), &self.0.waiting)
    }

    /// The token of this queue in the notifications of its channel.
    #[must_use]
    pub fn token(&self) -> QueueToken {
        QueueToken(token(self.0.queue.id()))
    }

    /// Arms the queue: the next completion adds one notification to the channel.
    ///
    /// Completions that are already in the queue do not count, so poll once more afterwards.
    pub fn notify(&self, notify: Notify) {
        self.driver().arm(self.0.queue.id(), notify);
    }

    /// Changes the capacity.
    pub fn resize(&self, capacity: u32) -> Result<(), ObjectError> {
        let id = self.0.queue.id();
        self.driver()
            .call(|device| device.resize_completion_queue(id, capacity))
    }

    /// Its number in the engine, for the [driver](Context::driver).
    #[must_use]
    pub fn id(&self) -> Id<engine::CompletionQueue> {
        self.0.queue.id()
    }

    pub(crate) fn driver(&self) -> &Driver {
        self.0.context.driver()
    }

    #[cfg(feature = "async")]
    pub(crate) fn waiting(&self) -> &WaitSet {
        &self.0.waiting
    }
}

/// A number that is unique among the existing queues.
pub(crate) fn token(queue: Id<engine::CompletionQueue>) -> u64 {
    u64::from(queue.index())
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue")
            .field(&self.0.queue.id().index())
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let id = self.queue.id();
        let driver = self.context.driver();
        driver.remove_notifier(id);
        let _ = driver.call(|device| device.destroy_completion_queue(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program may create and drop any number of queues while its device stays open.
    #[test]
    fn a_queue_that_is_dropped_leaves_nothing_with_its_device() {
        let context = Context::open("127.51.33.1").expect("a loopback address");
        let notifier = Arc::new(Notifier::without_descriptor());
        let queue = CompletionQueue::create(&context, 4, Some(&notifier)).expect("room");
        let waiting = Arc::downgrade(&queue.0.waiting);
        assert_eq!(Arc::strong_count(&notifier), 2);
        drop(queue);
        assert_eq!(Arc::strong_count(&notifier), 1);
        assert!(waiting.upgrade().is_none());
    }
}

//! Completion queues and channels: learning what became of work requests.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Completion, Id, Notify, ObjectError};

use crate::channel::QueueToken;
use crate::context::Context;
use crate::driver::{Awaited, Bell, Driver, WaitSet};

/// Completions, in the order in which they came.
///
/// Cheap to clone. Polling makes progress by itself: what has arrived is looked at, timers are
/// served, and answers go out on the caller's thread.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Owner>);

struct Owner {
    context: Context,
    id: Id<engine::CompletionQueue>,
    waiting: Arc<WaitSet>,
}

/// Before sleeping, a waiting thread looks this long by itself: most answers come sooner than a
/// thread can be woken.
const SPIN: Duration = Duration::from_micros(20);

impl CompletionQueue {
    pub(crate) fn create(
        context: &Context,
        capacity: u32,
        channel: Option<&Arc<Bell>>,
    ) -> Result<Self, ObjectError> {
        let driver = context.driver();
        let id = driver.call(|device| device.create_completion_queue(capacity))?;
        let waiting = Arc::default();
        driver.wake_for(id, &waiting);
        if let Some(channel) = channel {
            driver.ring_for(id, channel, token(id));
        }
        Ok(Self(Arc::new(Owner {
            context: context.clone(),
            id,
            waiting,
        })))
    }

    /// The oldest completion, if there is one now.
    #[must_use]
    pub fn poll(&self) -> Option<Completion> {
        self.driver().poll(self.0.id)
    }

    /// Appends the completions that are there now, at most `limit`; how many.
    pub fn poll_many(&self, into: &mut Vec<Completion>, limit: usize) -> usize {
        let take = |completion| into.push(completion);
        self.driver().poll_many(self.0.id, limit, take)
    }

    /// The oldest completion; waits for it, first awake and then asleep.
    #[must_use]
    pub fn wait(&self) -> Completion {
        loop {
            if let Some(completion) = self.wait_until(None) {
                return completion;
            }
        }
    }

    /// As [`wait`](Self::wait), but nothing when it takes longer than `patience`.
    #[must_use]
    pub fn wait_for(&self, patience: Duration) -> Option<Completion> {
        self.wait_until(Some(crate::clock::now() + patience))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Completion> {
        let awake_until = crate::clock::now() + SPIN;
        loop {
            if let Some(completion) = self.driver().poll_without_yield(self.0.id) {
                return Some(completion);
            }
            let now = crate::clock::now();
            if deadline.is_some_and(|at| at <= now) {
                return None;
            }
            if now >= awake_until {
                self.driver().sleep(&self.awaited(), deadline);
            }
        }
    }

    fn awaited(&self) -> Awaited<'_> {
        Awaited::Completion(self.0.id, &self.0.waiting)
    }

    /// How the events of a channel name this queue.
    #[must_use]
    pub fn token(&self) -> QueueToken {
        QueueToken(token(self.0.id))
    }

    /// Asks for one event in the channel when the next completion comes.
    ///
    /// Completions that are there already do not count: poll once more afterwards.
    pub fn notify(&self, notify: Notify) {
        self.driver().arm(self.0.id, notify);
    }

    /// Changes how many completions fit.
    pub fn resize(&self, capacity: u32) -> Result<(), ObjectError> {
        let id = self.0.id;
        self.driver()
            .call(|device| device.resize_completion_queue(id, capacity))
    }

    pub(crate) fn id(&self) -> Id<engine::CompletionQueue> {
        self.0.id
    }

    pub(crate) fn driver(&self) -> &Driver {
        self.0.context.driver()
    }

    #[cfg(feature = "async")]
    pub(crate) fn waiting(&self) -> &WaitSet {
        &self.0.waiting
    }
}

/// A number for a queue that is unique among those that exist.
pub(crate) fn token(queue: Id<engine::CompletionQueue>) -> u64 {
    u64::from(queue.index())
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue")
            .field(&self.0.id.index())
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let id = self.id;
        let driver = self.context.driver();
        driver.forget_bell(id);
        let _ = driver.call(|device| device.destroy_completion_queue(id));
    }
}

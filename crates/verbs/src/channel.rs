//! Completion channels: sleeping until something completes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use engine::ObjectError;

use crate::clock::now;
use crate::completion::CompletionQueue;
use crate::context::Context;
use crate::driver::{Awaited, Bell};

/// Tells which of its completion queues got a completion they were armed for.
///
/// The pattern that loses no wakeup: [arm](CompletionQueue::notify) the queue, poll it until it is
/// empty, then wait here. The descriptor can be waited for together with others.
#[derive(Debug)]
pub struct CompletionChannel {
    context: Context,
    bell: Arc<Bell>,
}

/// Names a completion queue in the events of its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueToken(pub(crate) u64);

impl CompletionChannel {
    pub(crate) fn create(context: &Context) -> Result<Self, ObjectError> {
        let bell = Bell::new().map_err(|_| ObjectError::Exhausted)?;
        Ok(Self {
            context: context.clone(),
            bell: Arc::new(bell),
        })
    }

    /// A completion queue whose notifications come here.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        CompletionQueue::create(&self.context, capacity, Some(&self.bell))
    }

    /// The oldest notification, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<QueueToken> {
        let oldest = self.context.driver().take_notification(&self.bell);
        oldest.map(QueueToken)
    }

    /// The oldest notification; sleeps until there is one.
    #[must_use]
    pub fn wait(&self) -> QueueToken {
        loop {
            if let Some(token) = self.poll() {
                return token;
            }
            self.context
                .driver()
                .sleep(&Awaited::Notification(&self.bell), None);
        }
    }

    /// As [`wait`](Self::wait), but nothing when it takes longer than `patience`.
    #[must_use]
    pub fn wait_for(&self, patience: Duration) -> Option<QueueToken> {
        let deadline = now() + patience;
        loop {
            if let Some(token) = self.poll() {
                return Some(token);
            }
            if now() >= deadline {
                return None;
            }
            self.context
                .driver()
                .sleep(&Awaited::Notification(&self.bell), Some(deadline));
        }
    }
}

impl AsFd for CompletionChannel {
    /// Readable while there are notifications, and now and then without one: a packet wakes the program
    /// directly, and only [`poll`](CompletionChannel::poll) finds out what it brought.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.driver().offer_packet_wakeups(&self.bell);
        self.bell.expose()
    }
}

//! Completion channels: waiting for completions of several queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use engine::ObjectError;

use crate::completion_queue::{CompletionQueue, QueueToken};
use crate::context::Context;
use driver::clock::now;
use driver::{Awaited, Driver, Notifier};

/// Receives the notifications of armed completion queues.
///
/// To miss no completion: [arm](CompletionQueue::arm) the queue, poll it until it is empty, then
/// wait here. A program can wait for the descriptor together with others.
#[derive(Debug)]
pub struct CompletionChannel {
    context: Context,
    notifier: Arc<Notifier>,
}

impl Context {
    /// Creates a channel for notifications of completion queues.
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, ObjectError> {
        self.software("completion channels")?;
        let notifier = Notifier::new().map_err(|_| ObjectError::Exhausted)?;
        Ok(CompletionChannel {
            context: self.clone(),
            notifier: Arc::new(notifier),
        })
    }
}

impl CompletionChannel {
    /// Creates a completion queue that notifies this channel.
    pub fn create_completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        CompletionQueue::create(&self.context, capacity, Some(&self.notifier))
    }

    /// The oldest notification, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<QueueToken> {
        let oldest = self.driver().take_notification(&self.notifier);
        oldest.map(QueueToken)
    }

    /// Waits for the oldest notification.
    #[must_use]
    pub fn wait(&self) -> QueueToken {
        loop {
            if let Some(token) = self.poll() {
                return token;
            }
            self.driver()
                .sleep(&Awaited::Notification(&self.notifier), None);
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<QueueToken> {
        let deadline = now() + timeout;
        loop {
            if let Some(token) = self.poll() {
                return Some(token);
            }
            if now() >= deadline {
                return None;
            }
            self.driver()
                .sleep(&Awaited::Notification(&self.notifier), Some(deadline));
        }
    }
}

impl CompletionChannel {
    fn driver(&self) -> &Driver {
        let driver = self.context.driver();
        driver.expect("the channel was created at one of our devices")
    }
}

impl AsFd for CompletionChannel {
    /// Readable while there are notifications, and sometimes without one: a packet may wake the program
    /// directly. Then [`poll`](CompletionChannel::poll) handles the packet and may return `None`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver().offer_packet_wakeups(&self.notifier);
        self.notifier.expose()
    }
}

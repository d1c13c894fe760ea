//! Completion channels: waiting for completions of several queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{ObjectError, SystemRefusal};

use crate::context::{Context, Opened};
use driver::clock::{deadline, now};
use driver::{Awaited, BlockedCall, Driver, Notifier};
use system::verbs;

/// Receives the notifications of armed completion queues.
///
/// To miss no completion at any device: [arm](crate::CompletionQueue::arm) the queue, poll it until it is empty, then
/// wait here. A notification may come after its completion was polled. A program can wait for the descriptor together with others.
#[derive(Debug)]
pub struct CompletionChannel {
    pub(crate) context: Context,
    pub(crate) object: Channel,
}

/// Identifies a completion queue in the notifications of its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueToken(pub(crate) u64);

/// The channel at its device.
#[derive(Debug, Clone)]
pub(crate) enum Channel {
    Software(Arc<Notifier>),
    System(Arc<verbs::CompletionChannel>),
}

impl Context {
    /// Creates a channel for notifications of completion queues.
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, ObjectError> {
        let object = match self.opened() {
            Opened::Software(_) => {
                let notifier = Notifier::new().map_err(|_| ObjectError::Exhausted)?;
                Channel::Software(Arc::new(notifier))
            }
            Opened::System(system) => {
                Channel::System(verbs::CompletionChannel::create(&system.context)?)
            }
        };
        Ok(CompletionChannel {
            context: self.clone(),
            object,
        })
    }
}

impl CompletionChannel {
    /// The oldest notification, if there is one.
    ///
    /// # Panics
    /// If a device of the system fails to report completions.
    #[must_use]
    pub fn poll(&self) -> Option<QueueToken> {
        let oldest = match &self.object {
            Channel::Software(notifier) => self.driver().take_notification(notifier),
            Channel::System(channel) => reported(channel.take()),
        };
        oldest.map(QueueToken)
    }

    /// Waits for the oldest notification.
    ///
    /// # Panics
    /// As [`poll`](Self::poll).
    #[must_use]
    pub fn wait(&self) -> QueueToken {
        let mut listed = None;
        loop {
            if let Some(token) = self.poll() {
                return token;
            }
            listed.get_or_insert_with(|| self.list_call());
            self.sleep(None);
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<QueueToken> {
        let deadline = deadline(timeout);
        let mut listed = None;
        loop {
            if let Some(token) = self.poll() {
                return Some(token);
            }
            if deadline.is_some_and(|at| at <= now()) {
                return None;
            }
            listed.get_or_insert_with(|| self.list_call());
            self.sleep(deadline);
        }
    }

    /// Lists a call that waits, if it waits at one of our devices.
    fn list_call(&self) -> Option<BlockedCall> {
        let Channel::Software(notifier) = &self.object else {
            return None;
        };
        let describe = || self.driver().describe_channel(notifier);
        Some(BlockedCall::begin("CompletionChannel::wait", describe))
    }

    fn sleep(&self, deadline: Option<Instant>) {
        match &self.object {
            Channel::Software(notifier) => {
                let awaited = Awaited::Notification(notifier);
                self.driver().sleep(&awaited, deadline);
            }
            Channel::System(channel) => channel.sleep(deadline),
        }
    }

    fn driver(&self) -> &Driver {
        let driver = self.context.driver();
        driver.expect("the channel was created at one of our devices")
    }
}

impl AsFd for CompletionChannel {
    /// Readable while there are notifications, and sometimes without one: a packet may wake the program
    /// directly. Then [`poll`](CompletionChannel::poll) handles the packet and may return `None`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.object {
            Channel::Software(notifier) => {
                self.driver().offer_packet_wakeups(notifier);
                notifier.expose()
            }
            Channel::System(channel) => channel.as_fd(),
        }
    }
}

/// What a device of the system reports.
///
/// # Panics
/// If it can't report completions any more: no outstanding request will ever complete.
pub(crate) fn reported<T>(result: Result<T, SystemRefusal>) -> T {
    result.unwrap_or_else(|error| panic!("the device reports no completions any more: {error}"))
}

//! Waiting for one request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use driver::clock;
use engine::{Completion, PostError, Status, SystemRefusal};
use wire::Key;

use super::core::Core;
use super::slots::{Side, Work};
use crate::executor::block_on;
use crate::task_timer::TaskTimer;

/// A request of [`Requests`](super::Requests): await it, or [wait](Self::wait) for it on this thread.
///
/// It was posted by the call that returned it, or waits for room in the queue and is posted in the order of the calls. So the order of the calls
/// is that of the requests, in whatever order they are awaited.
///
/// Dropping it cancels nothing that the device has: the request is executed, and the device uses its memory until then. A request that
/// still waits for room is not posted.
#[must_use = "dropped, it tells nobody whether the request succeeds"]
pub struct Outstanding<T> {
    core: Arc<Core>,
    side: Side,
    /// `None` when it is ready.
    slot: Option<usize>,
    result: fn(&Finished) -> T,
    deadline: Option<Instant>,
    /// Set when it is polled before the deadline.
    timer: Option<TaskTimer>,
}

/// A request that succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    pub(super) completion: Completion,
    /// For an atomic: the value before.
    pub(super) previous: u64,
}

/// A message that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// How many bytes it has. They are in the memory of the receive, unless the peer wrote them elsewhere with a WRITE with immediate.
    pub length: u32,
    /// Its immediate data.
    pub immediate: Option<[u8; 4]>,
    /// The local key that it invalidated.
    pub invalidated: Option<Key>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It could not be posted.
    #[error(transparent)]
    Rejected(PostError),
    /// It was executed, and failed. After the first such failure the queue pair is in the error state, and the requests that follow are flushed.
    #[error("the request failed: {0}")]
    Failed(Status),
    /// Its deadline passed. The device may still execute it.
    #[error("the request was not complete in time; it may still be executed")]
    TimedOut,
    /// Its connection was dropped.
    #[error("the connection was dropped before the request was complete")]
    Closed,
    /// A device of the system can't report completions any more.
    #[error("the device reports no completions any more: {0}")]
    Device(SystemRefusal),
}

impl<T> Outstanding<T> {
    pub(super) fn new(core: &Arc<Core>, work: Work, result: fn(&Finished) -> T) -> Self {
        let side = work.side();
        Self {
            slot: Some(core.add(work)),
            core: Arc::clone(core),
            side,
            result,
            deadline: None,
            timer: None,
        }
    }

    /// Sets how long it may take from now on. If that passes, the result is [`RequestError::TimedOut`], and the request goes on as one that is dropped.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.deadline = clock::deadline(timeout);
        self.timer = None;
        self
    }

    /// Waits for the result on this thread, which sleeps on the device's sockets.
    ///
    /// # Panics
    /// In a simulated host, as [`block_on`].
    pub fn wait(mut self) -> Result<T, RequestError> {
        let done = self.slot.and_then(|slot| self.core.take_soon(slot));
        match done {
            Some(done) => self.ready(done),
            None => block_on(self),
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    pub fn wait_for(self, timeout: Duration) -> Result<T, RequestError> {
        self.within(timeout).wait()
    }

    /// Its result, if the completion was taken. It is not polled afterwards.
    pub(crate) fn take(&mut self) -> Option<Result<T, RequestError>> {
        let done = self.core.take(self.slot?)?;
        Some(self.ready(done))
    }

    fn ready(&mut self, done: Result<Finished, RequestError>) -> Result<T, RequestError> {
        self.slot = None;
        self.timer = None;
        done.map(|finished| (self.result)(&finished))
    }
}

impl<T> Future for Outstanding<T> {
    type Output = Result<T, RequestError>;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let slot = this.slot.expect("a future is not polled after it is ready");
        if let Some(done) = this.core.poll(slot, context.waker()) {
            return Poll::Ready(this.ready(done));
        }
        let Some(deadline) = this.deadline else {
            return Poll::Pending;
        };
        let timer = (this.timer).get_or_insert_with(|| TaskTimer::new(this.core.context()));
        if timer.poll(deadline, context.waker()).is_pending() {
            return Poll::Pending;
        }
        this.core.abandon(slot, this.side);
        Poll::Ready(this.ready(Err(RequestError::TimedOut)))
    }
}

impl<T> Drop for Outstanding<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.core.abandon(slot, self.side);
        }
    }
}

impl<T> fmt::Debug for Outstanding<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outstanding")
            .field("side", &self.side)
            .field("slot", &self.slot)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Received {
    pub(super) fn of(finished: &Finished) -> Self {
        let completion = &finished.completion;
        Self {
            length: completion.length,
            immediate: completion.immediate,
            invalidated: completion.invalidated,
        }
    }
}

//! Awaiting completions, on any executor.
//!
//! A task that is polled receives its own packets. While it waits, a thread that runs it in [`block_on`](crate::block_on) sleeps on the
//! sockets. On other executors a thread of the device receives the packets, and wakes the tasks that wait for a completion queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use engine::Completion;

use crate::completion_queue::CompletionQueue;

impl CompletionQueue {
    /// Waits for the oldest completion.
    pub fn next(&self) -> NextCompletion<'_> {
        NextCompletion { queue: self }
    }
}

/// A future of the next completion.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct NextCompletion<'q> {
    queue: &'q CompletionQueue,
}

impl Future for NextCompletion<'_> {
    type Output = Completion;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        match self.queue.poll_task(context.waker()) {
            Some(completion) => Poll::Ready(completion),
            None => Poll::Pending,
        }
    }
}

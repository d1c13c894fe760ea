//! Awaiting completions, on any executor.
//!
//! Tasks do not poll sockets. A thread of the device does, and wakes the tasks that wait for a completion queue.

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

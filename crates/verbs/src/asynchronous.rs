//! Awaiting completions, on any executor.
//!
//! Tasks don't poll sockets: the device's own thread does, and wakes the tasks whose completion
//! queues it fills.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use engine::Completion;

use crate::completion::CompletionQueue;

impl CompletionQueue {
    /// The oldest completion, as soon as there is one.
    pub fn next(&self) -> Next<'_> {
        Next { queue: self }
    }
}

/// Waits for a completion.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next<'q> {
    queue: &'q CompletionQueue,
}

impl Future for Next<'_> {
    type Output = Completion;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        let (queue, driver) = (self.queue, self.queue.driver());
        if let Some(completion) = driver.take(queue.id()) {
            return Poll::Ready(completion);
        }
        // First the waker, then the watch and another look: nothing can slip through between.
        queue.waiting().add_task(context.waker());
        match driver.take_or_watch(queue.id()) {
            Some(completion) => Poll::Ready(completion),
            None => Poll::Pending,
        }
    }
}

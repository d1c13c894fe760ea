//! Awaiting completions, on any executor.
//!
//! Tasks do not poll sockets. The device's thread does, and wakes the tasks that wait for a completion queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use engine::Completion;

use crate::completion::CompletionQueue;

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
        let (queue, driver) = (self.queue, self.queue.driver());
        if let Some(completion) = driver.pop_completion(queue.id()) {
            return Poll::Ready(completion);
        }
        // Register the waker before the second check, so that no completion is missed between them.
        queue.waiting().add_task(context.waker());
        match driver.pop_completion_or_watch(queue.id()) {
            Some(completion) => Poll::Ready(completion),
            None => {
                let number = queue.id().index();
                driver.note_wait(|| format!("a completion of completion queue {number}"));
                Poll::Pending
            }
        }
    }
}

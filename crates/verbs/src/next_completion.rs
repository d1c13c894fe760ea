//! Awaiting completions, on any executor.
//!
//! A task that is polled receives its own packets. While it waits, a thread that runs it in [`block_on`](crate::block_on) sleeps on the
//! sockets. With the feature `tokio`, its reactor waits for them. On other executors a thread of the device receives the packets, and wakes the
//! tasks that wait for a completion queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use driver::TaskPoll;
use engine::Completion;

use crate::completion_channel::reported;
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
        let found = match reported(self.queue.poll_for_task()) {
            TaskPoll::Found(completion) => Some(completion),
            TaskPoll::Yield => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            TaskPoll::Wait => reported(self.queue.watch(context.waker())),
        };
        if found.is_none() {
            self.queue.note_wait("a completion");
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

//! With async: the code reads like the blocking version, but needs no thread for each side.
//!
//! Any executor can run it. The one here is minimal: it polls its future, and parks the thread until
//! a completion wakes it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::side::Side;

pub(crate) fn echo(client: &Side, server: &Side, rounds: u32) -> anyhow::Result<()> {
    let (client, server) = block_on(both(run_client(client, rounds), run_server(server, rounds)));
    client.and(server)
}

async fn run_client(side: &Side, rounds: u32) -> anyhow::Result<()> {
    for round in 0..rounds {
        side.send(round)?;
        for _ in 0..2 {
            side.take(&side.completions.next().await)?;
        }
        side.compare(round)?;
    }
    Ok(())
}

async fn run_server(side: &Side, rounds: u32) -> anyhow::Result<()> {
    for _ in 0..2 * rounds {
        if side.take(&side.completions.next().await)? {
            side.send_back()?;
        }
    }
    Ok(())
}

/// Runs two futures concurrently on one thread.
async fn both<A, B>(left: impl Future<Output = A>, right: impl Future<Output = B>) -> (A, B) {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let (mut left_done, mut right_done) = (None, None);
    std::future::poll_fn(move |context| {
        if left_done.is_none()
            && let Poll::Ready(output) = left.as_mut().poll(context)
        {
            left_done = Some(output);
        }
        if right_done.is_none()
            && let Poll::Ready(output) = right.as_mut().poll(context)
        {
            right_done = Some(output);
        }
        match (left_done.take(), right_done.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (left, right) => {
                (left_done, right_done) = (left, right);
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Wakes the thread that runs the future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

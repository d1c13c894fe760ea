//! With async: the code reads like the blocking version, but needs no thread for each side.
//!
//! Any executor can run it. The one here is minimal: it polls its future, and parks the thread until
//! a completion wakes it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};
use std::thread::{self, Thread};

use anyhow::ensure;
use rocinante::{Access, Context, MemoryRegion, Outstanding, Received, Requests};

use crate::side::{INBOX, OUTBOX, SIZE, connect_options, message};

/// One side of the connection, with a future for each request.
struct Side {
    requests: Requests,
    memory: MemoryRegion,
}

pub(crate) fn echo(context: &Context, rounds: u32) -> anyhow::Result<()> {
    let (client, server) = connected_pair(context)?;
    // The server is polled first, and posts its first receive.
    let (server, client) = block_on(both(
        run_server(&server, rounds),
        run_client(&client, rounds),
    ));
    client.and(server)
}

async fn run_client(side: &Side, rounds: u32) -> anyhow::Result<()> {
    for round in 0..rounds {
        let reply = side.receive();
        side.memory.write(OUTBOX, &message(round));
        side.send().await?;
        reply.await?;
        let found = side.memory.to_vec(INBOX..INBOX + SIZE);
        ensure!(found == message(round), "round {round} came back changed");
    }
    Ok(())
}

async fn run_server(side: &Side, rounds: u32) -> anyhow::Result<()> {
    let mut message = side.receive();
    for _ in 0..rounds {
        message.await?;
        let received = side.memory.to_vec(INBOX..INBOX + SIZE);
        side.memory.write(OUTBOX, &received);
        // Before the reply, because the peer sends again when it gets the reply.
        message = side.receive();
        side.send().await?;
    }
    Ok(())
}

impl Side {
    fn receive(&self) -> Outstanding<Received> {
        self.requests
            .receive(self.memory.slice(INBOX..INBOX + SIZE))
    }

    fn send(&self) -> Outstanding<()> {
        self.requests.send(self.memory.slice(OUTBOX..OUTBOX + SIZE))
    }
}

fn connected_pair(context: &Context) -> anyhow::Result<(Side, Side)> {
    let domain = context.allocate_protection_domain()?;
    let prepare = || {
        let builder = domain.requests_builder();
        builder
            .connect_options(connect_options(context))
            .create_reliable()
    };
    let (left, right) = (prepare()?, prepare()?);
    let (here, there) = (left.endpoint(), right.endpoint());
    let side = |requests| -> anyhow::Result<Side> {
        let memory = domain.allocate_memory(2 * SIZE, Access::LOCAL_WRITE)?;
        Ok(Side { requests, memory })
    };
    Ok((side(left.connect(there)?)?, side(right.connect(here)?)?))
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
    let mut context = task::Context::from_waker(&waker);
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

//! One side of the connection, as the two have it that take completions from a queue; and the messages of all three.

use anyhow::ensure;
use examples::gid_index;
use rocinante::{
    Access, Completion, CompletionChannel, CompletionQueue, ConnectOptions, Context, MemoryRegion,
    PreparedQueuePair, QueuePair, Request, Status,
};

/// The size of a message.
pub(crate) const SIZE: usize = 64;
/// The receive buffer and the send buffer.
pub(crate) const INBOX: usize = 0;
pub(crate) const OUTBOX: usize = SIZE;
/// Ids of the work requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// One side of the connection.
pub(crate) struct Side {
    /// Receives notifications; only the epoll version uses it.
    pub(crate) channel: CompletionChannel,
    pub(crate) completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pair: QueuePair,
}

/// Two connected sides, each with a receive posted.
pub(crate) fn connected_pair(context: &Context) -> anyhow::Result<(Side, Side)> {
    let (left, right) = (Unconnected::new(context)?, Unconnected::new(context)?);
    let (here, there) = (left.prepared.endpoint(), right.prepared.endpoint());
    Ok((left.connect(there)?, right.connect(here)?))
}

impl Side {
    /// Sends the message of this round, which differs from all others.
    pub(crate) fn send(&self, round: u32) -> anyhow::Result<()> {
        self.memory.write(OUTBOX, &message(round));
        self.post()
    }

    /// Sends the received message back.
    pub(crate) fn send_back(&self) -> anyhow::Result<()> {
        let message = self.memory.to_vec(INBOX..INBOX + SIZE);
        self.memory.write(OUTBOX, &message);
        // Post the next receive before the reply, because the peer sends again when it gets the reply.
        self.post_receive_buffer()?;
        self.post()
    }

    /// Checks a completion. Returns whether it is that of a receive.
    pub(crate) fn take(&self, completion: &Completion) -> anyhow::Result<bool> {
        let status = completion.status;
        ensure!(status == Status::Success, "a request failed: {status}");
        Ok(completion.id == RECEIVE)
    }

    /// Checks that the message of this round came back, and posts the next receive.
    pub(crate) fn compare(&self, round: u32) -> anyhow::Result<()> {
        let found = self.memory.to_vec(INBOX..INBOX + SIZE);
        ensure!(found == message(round), "round {round} came back changed");
        self.post_receive_buffer()
    }

    fn post_receive_buffer(&self) -> anyhow::Result<()> {
        let inbox = self.memory.slice(INBOX..INBOX + SIZE);
        Ok(self.queue_pair.post_receive(RECEIVE, [inbox])?)
    }

    fn post(&self) -> anyhow::Result<()> {
        let outbox = self.memory.slice(OUTBOX..OUTBOX + SIZE);
        Ok(self
            .queue_pair
            .post_send(Request::send().data(outbox).id(SEND))?)
    }
}

/// A side that is not connected yet.
struct Unconnected {
    channel: CompletionChannel,
    completions: CompletionQueue,
    memory: MemoryRegion,
    prepared: PreparedQueuePair,
}

impl Unconnected {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        let channel = context.create_completion_channel()?;
        let completions = channel.create_completion_queue(16)?;
        let memory = domain.allocate_memory(2 * SIZE, Access::LOCAL_WRITE)?;
        let prepared = domain
            .queue_pair_builder(&completions)
            .connect_options(connect_options(context))
            .create_reliable()?;
        prepared.post_receive(RECEIVE, [memory.slice(INBOX..INBOX + SIZE)])?;
        Ok(Self {
            channel,
            completions,
            memory,
            prepared,
        })
    }

    fn connect(self, peer: rocinante::Endpoint) -> anyhow::Result<Side> {
        Ok(Side {
            queue_pair: self.prepared.connect(peer)?,
            channel: self.channel,
            completions: self.completions,
            memory: self.memory,
        })
    }
}

pub(crate) fn connect_options(context: &Context) -> ConnectOptions {
    ConnectOptions {
        gid_index: Some(gid_index(context, None, None)),
        ..ConnectOptions::default()
    }
}

pub(crate) fn message(round: u32) -> Vec<u8> {
    let mut text = format!("message {round}").into_bytes();
    text.resize(SIZE, b'.');
    text
}

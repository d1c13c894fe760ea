//! What the three have in common: an end that can send, and take a completion.

use anyhow::ensure;
use examples::gid_index;
use rocinante::{
    Access, Completion, CompletionChannel, CompletionQueue, Context, MemoryRegion, Prepared,
    QueuePair, Request, Status, Terms,
};

/// How long a message is.
const SIZE: usize = 64;
/// Where messages land, and where they leave from.
const INBOX: usize = 0;
const OUTBOX: usize = SIZE;
/// The numbers of work requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// One end of the connection.
pub(crate) struct End {
    /// Tells that something has completed; only the one with epoll listens.
    pub(crate) channel: CompletionChannel,
    pub(crate) completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pair: QueuePair,
}

/// Two connected ends, each with a receive posted.
pub(crate) fn couple(context: &Context) -> anyhow::Result<(End, End)> {
    let (left, right) = (Draft::new(context)?, Draft::new(context)?);
    let (here, there) = (left.prepared.endpoint(), right.prepared.endpoint());
    Ok((left.connect(there)?, right.connect(here)?))
}

impl End {
    /// Sends a message that no other round has.
    pub(crate) fn send(&self, round: u32) -> anyhow::Result<()> {
        self.memory.write(OUTBOX, &message(round));
        self.post()
    }

    /// Sends what came.
    pub(crate) fn send_back(&self) -> anyhow::Result<()> {
        let message = self.memory.to_vec(INBOX..INBOX + SIZE);
        self.memory.write(OUTBOX, &message);
        // The inbox is free again: room for the next, before its sender can know.
        self.make_room()?;
        self.post()
    }

    /// Checks a completion; whether it was a message that arrived.
    pub(crate) fn take(&self, completion: &Completion) -> anyhow::Result<bool> {
        let status = completion.status;
        ensure!(status == Status::Success, "{:?}: {status}", completion.work);
        Ok(completion.id == RECEIVE)
    }

    /// Checks that the message of this round came back, and makes room for the next.
    pub(crate) fn compare(&self, round: u32) -> anyhow::Result<()> {
        let found = self.memory.to_vec(INBOX..INBOX + SIZE);
        ensure!(found == message(round), "round {round} came back changed");
        self.make_room()
    }

    fn make_room(&self) -> anyhow::Result<()> {
        let inbox = self.memory.slice(INBOX..INBOX + SIZE);
        Ok(self.queue_pair.post_receive(RECEIVE, [inbox])?)
    }

    fn post(&self) -> anyhow::Result<()> {
        let outbox = self.memory.slice(OUTBOX..OUTBOX + SIZE);
        Ok(self
            .queue_pair
            .post(Request::send().data(outbox).id(SEND))?)
    }
}

/// An end that has no peer yet.
struct Draft {
    channel: CompletionChannel,
    completions: CompletionQueue,
    memory: MemoryRegion,
    prepared: Prepared,
}

impl Draft {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let domain = context.protection_domain()?;
        let channel = context.completion_channel()?;
        let completions = channel.completion_queue(16)?;
        let memory = domain.register(2 * SIZE, Access::LOCAL_WRITE)?;
        let terms = Terms {
            gid_index: gid_index(context, None, None),
            ..Terms::default()
        };
        let prepared = domain.queue_pair(&completions).terms(terms).reliable()?;
        prepared.post_receive(RECEIVE, [memory.slice(INBOX..INBOX + SIZE)])?;
        Ok(Self {
            channel,
            completions,
            memory,
            prepared,
        })
    }

    fn connect(self, peer: rocinante::Endpoint) -> anyhow::Result<End> {
        Ok(End {
            queue_pair: self.prepared.connect(peer)?,
            channel: self.channel,
            completions: self.completions,
            memory: self.memory,
        })
    }
}

fn message(round: u32) -> Vec<u8> {
    let mut text = format!("message {round}").into_bytes();
    text.resize(SIZE, b'.');
    text
}

//! The verbs objects of one side: its memory and its queue pairs.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rocinante::{
    Access, AddressHandle, Completion, CompletionQueue, ConnectOptions, Context, DatagramQueuePair,
    Endpoint, MemoryRegion, PathMtu, PostError, PreparedQueuePair, QueueKey, QueuePair,
    QueuePairBuilder, RemoteMemory, Request, Segment, SetupError, Status,
};
use serde::{Deserialize, Serialize};

use super::local_device::LocalDevice;
use super::test_parameters::{Service, TestParameters, Verb};
use crate::json_channel::MemoryDescription;

/// The Q_Key of both sides.
const QUEUE_KEY: u32 = 0x1111_1111;
/// The length of the network header before every received datagram.
const NETWORK_HEADER: usize = 40;
/// Set in the ids of receives; the other bits are the index of the queue pair.
const RECEIVE: u64 = 1 << 63;

/// The parameters that the peer needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) mtu: usize,
    pub(super) endpoints: Vec<String>,
    memory: MemoryDescription,
}

impl Side {
    /// The source address of its packets.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let endpoint: Endpoint = self.endpoints.first()?.parse().ok()?;
        endpoint.gid.ip()
    }
}

/// A side before its queue pairs are connected.
pub(super) struct Draft {
    local_device: LocalDevice,
    completions: CompletionQueue,
    memory: MemoryRegion,
    layout: Layout,
    connections: Vec<DraftEnd>,
    mtu: PathMtu,
    parameters: TestParameters,
}

enum DraftEnd {
    Connected(PreparedQueuePair),
    Datagram(DatagramQueuePair),
}

impl DraftEnd {
    fn new(builder: QueuePairBuilder, service: Service) -> Result<Self, SetupError> {
        match service {
            Service::Rc => builder.create_reliable().map(Self::Connected),
            Service::Uc => builder.create_unreliable().map(Self::Connected),
            Service::Ud => builder
                .create_datagram(QueueKey::new(QUEUE_KEY))
                .map(Self::Datagram),
        }
    }
}

/// Parts of at least a page begin with a page: memory that is not aligned is copied more slowly.
const PAGE: usize = 4096;

/// The layout of the memory. Each queue pair has a part to send from, and then a part to receive into.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Where the first part begins: at a page.
    base: usize,
    /// How many bytes each part has.
    part: usize,
}

impl Layout {
    fn new(parameters: &TestParameters) -> Self {
        let bytes = parameters.largest() + NETWORK_HEADER;
        // Atomics need eight aligned bytes.
        let unit = if bytes < PAGE { 64 } else { PAGE };
        Self {
            base: 0,
            part: bytes.next_multiple_of(unit),
        }
    }

    /// In memory that begins at this address.
    fn at(self, address: u64) -> Self {
        let base = address.wrapping_neg() as usize % PAGE;
        Self { base, ..self }
    }

    fn outgoing(self, connection: usize) -> usize {
        self.base + 2 * connection * self.part
    }

    fn incoming(self, connection: usize) -> usize {
        self.outgoing(connection) + self.part
    }

    /// How many bytes are needed, wherever the memory begins.
    fn total(self, connections: usize) -> usize {
        2 * connections * self.part + PAGE
    }
}

impl Draft {
    /// Creates the objects that a test needs, and posts receives.
    pub(super) fn new(
        local_device: LocalDevice,
        parameters: &TestParameters,
        mtu: PathMtu,
    ) -> anyhow::Result<Self> {
        let layout = Layout::new(parameters);
        let domain = local_device.context.allocate_protection_domain()?;
        let entries = parameters.queue_pairs * (parameters.depth + parameters.receive_depth);
        let completions = local_device.context.create_completion_queue(entries)?;
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let connections = parameters.queue_pairs as usize;
        let memory =
            domain.allocate_memory(layout.total(connections), Access::LOCAL_WRITE | remote)?;
        let layout = layout.at(memory.remote(0).address);
        let connect_options = ConnectOptions {
            gid_index: Some(local_device.gid_index),
            path_mtu: Some(mtu),
            ..ConnectOptions::default()
        };
        let builder = || {
            let builder = domain
                .queue_pair_builder(&completions)
                .connect_options(connect_options);
            builder.depth(parameters.depth, parameters.receive_depth)
        };
        let draft = Self {
            connections: (0..connections)
                .map(|_| DraftEnd::new(builder(), parameters.service))
                .collect::<Result<_, _>>()?,
            local_device,
            completions,
            memory,
            layout,
            mtu,
            parameters: parameters.clone(),
        };
        draft.set_out_receives()?;
        Ok(draft)
    }

    fn set_out_receives(&self) -> anyhow::Result<()> {
        if self.parameters.test.verb() != Verb::Send {
            return Ok(());
        }
        for (index, connection) in self.connections.iter().enumerate() {
            let buffer = incoming(&self.memory, self.layout, index);
            for _ in 0..self.parameters.receive_depth {
                let id = RECEIVE | index as u64;
                match connection {
                    DraftEnd::Connected(prepared) => prepared.post_receive(id, [buffer])?,
                    DraftEnd::Datagram(datagram) => datagram.post_receive(id, [buffer])?,
                }
            }
        }
        Ok(())
    }

    /// The parameters for the peer.
    pub(super) fn side(&self) -> Side {
        let endpoint = |connection: &DraftEnd| match connection {
            DraftEnd::Connected(prepared) => prepared.endpoint().to_string(),
            DraftEnd::Datagram(datagram) => datagram.endpoint().to_string(),
        };
        Side {
            mtu: self.mtu.bytes(),
            endpoints: self.connections.iter().map(endpoint).collect(),
            memory: self.memory.remote(self.layout.base).into(),
        }
    }

    /// Connects every queue pair to its peer.
    pub(super) fn connect(self, peer: &Side) -> anyhow::Result<QueuePairs> {
        ensure!(
            peer.endpoints.len() == self.connections.len(),
            "the peer has another number of queue pairs; use the same version of roci on both sides"
        );
        let mut connections = Vec::new();
        let theirs = Layout {
            base: 0,
            ..self.layout
        };
        for (index, (connection, endpoint)) in self
            .connections
            .into_iter()
            .zip(&peer.endpoints)
            .enumerate()
        {
            let endpoint: Endpoint = endpoint.parse()?;
            connections.push(Connected {
                ends: Ends::connect(connection, endpoint, &self.local_device)?,
                remote: peer.memory.at(theirs.incoming(index) as u64),
            });
        }
        Ok(QueuePairs {
            completions: self.completions,
            memory: self.memory,
            layout: self.layout,
            connections,
            idle: Cell::new(0),
            mtu: self.mtu,
            parameters: self.parameters,
            context: self.local_device.context,
        })
    }
}

fn incoming(memory: &MemoryRegion, layout: Layout, connection: usize) -> Segment {
    let begin = layout.incoming(connection);
    memory.slice(begin..begin + layout.part)
}

/// One queue pair and the destination of its messages.
struct Connected {
    ends: Ends,
    remote: RemoteMemory,
}

enum Ends {
    Connected(QueuePair),
    Datagram(DatagramQueuePair, AddressHandle),
}

impl Ends {
    fn connect(
        connection: DraftEnd,
        peer: Endpoint,
        local_device: &LocalDevice,
    ) -> anyhow::Result<Self> {
        Ok(match connection {
            DraftEnd::Connected(prepared) => Self::Connected(prepared.connect(peer)?),
            DraftEnd::Datagram(datagram) => {
                let (number, key) = (peer.queue_pair, QueueKey::new(QUEUE_KEY));
                let index = local_device.gid_index;
                let to = AddressHandle::new(&local_device.context, peer.gid, index, number, key)?;
                Self::Datagram(datagram, to)
            }
        })
    }

    fn post(&self, request: Request) -> Result<(), PostError> {
        match self {
            Self::Connected(queue_pair) => queue_pair.post_send(request),
            Self::Datagram(queue_pair, to) => queue_pair.post_send(to, request),
        }
    }

    fn post_receive(&self, id: u64, buffer: Segment) -> Result<(), PostError> {
        match self {
            Self::Connected(queue_pair) => queue_pair.post_receive(id, [buffer]),
            Self::Datagram(queue_pair, _) => queue_pair.post_receive(id, [buffer]),
        }
    }
}

/// A connected side.
pub(super) struct QueuePairs {
    completions: CompletionQueue,
    memory: MemoryRegion,
    layout: Layout,
    connections: Vec<Connected>,
    /// Empty polls since the last completion or yield.
    idle: Cell<u32>,
    pub(super) mtu: PathMtu,
    pub(super) parameters: TestParameters,
    pub(super) context: Context,
}

/// A completion.
pub(super) enum Done {
    /// This many messages of a queue pair were sent.
    Sent { connection: usize, messages: u32 },
    /// A message was received. Its receive is posted again.
    Received,
}

impl QueuePairs {
    /// The number of queue pairs.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether the peer's requests need nothing from this program: they take no receives, and the device is the system's.
    pub(super) fn are_served_by_system(&self) -> bool {
        self.parameters.test.verb() != Verb::Send && self.context.driver().is_none()
    }

    /// Posts one message. With `messages`, its completion counts for that many; without, it has no
    /// completion.
    pub(super) fn post(
        &self,
        connection: usize,
        size: usize,
        messages: Option<u32>,
    ) -> anyhow::Result<()> {
        let Connected { ends, remote } = &self.connections[connection];
        let begin = self.layout.outgoing(connection);
        let data = self.memory.slice(begin..begin + size);
        let request = match self.parameters.test.verb() {
            Verb::Send => Request::send().data(data),
            Verb::Write => Request::write(*remote).data(data),
            Verb::Read => Request::read(*remote).data(data),
            Verb::Atomic => Request::fetch_add(*remote, 1).data(data),
        };
        let request = match messages {
            Some(messages) => request.id(u64::from(messages) << 32 | connection as u64),
            None => request.unsignaled(),
        };
        Ok(ends.post(request)?)
    }

    /// The next completion, if there is one. Sleeps for it if the parameters say so.
    pub(super) fn next(&self) -> anyhow::Result<Option<Done>> {
        let completion = if self.parameters.events {
            self.completions.wait_for(Duration::from_millis(50))
        } else {
            self.poll()
        };
        completion
            .map(|completion| self.take(&completion))
            .transpose()
    }

    /// Polls, and yields the CPU after many empty polls: on a busy machine the peer may wait for the same core.
    fn poll(&self) -> Option<Completion> {
        const LONG: u32 = 32;
        let completion = self.completions.poll();
        let idle = if completion.is_none() {
            self.idle.get() + 1
        } else {
            0
        };
        self.idle.set(idle % LONG);
        if idle == LONG {
            std::thread::yield_now();
        }
        completion
    }

    fn take(&self, completion: &Completion) -> anyhow::Result<Done> {
        if completion.status != Status::Success {
            bail!("{}", explain(completion.status));
        }
        let connection = (completion.id & 0xffff_ffff) as usize;
        if completion.id & RECEIVE == 0 {
            let messages = (completion.id >> 32) as u32;
            return Ok(Done::Sent {
                connection,
                messages,
            });
        }
        let buffer = incoming(&self.memory, self.layout, connection);
        self.connections[connection]
            .ends
            .post_receive(completion.id, buffer)?;
        Ok(Done::Received)
    }

    /// The byte where the peer writes the last byte of messages of this size.
    pub(super) fn last_byte(&self, size: usize) -> u8 {
        let mut byte = [0];
        self.memory
            .read(self.layout.incoming(0) + size - 1, &mut byte);
        byte[0]
    }

    /// Clears this byte.
    pub(super) fn clear_last_byte(&self, size: usize) {
        self.memory.write(self.layout.incoming(0) + size - 1, &[0]);
    }

    /// Sets the last byte of the next messages of this size.
    pub(super) fn set_last_byte(&self, size: usize, byte: u8) {
        self.memory
            .write(self.layout.outgoing(0) + size - 1, &[byte]);
    }
}

/// The explanation of a failed request: what it means, and what to do.
fn explain(status: Status) -> String {
    match status {
        Status::RetriesExhausted => {
            "the peer does not answer; is it still running, and does a firewall let UDP port \
             4791 through?"
                .to_owned()
        }
        Status::ReceiverNotReady => "the peer has no receives left; raise -r".to_owned(),
        Status::RemoteAccess | Status::RemoteInvalidRequest => {
            format!("the peer rejected a request: {status}; use the same version of roci")
        }
        other => format!("a request failed: {other}; `roci doctor` may know why"),
    }
}

/// The path MTU: the smallest of the requested one and those of both sides.
pub(super) fn common_mtu(
    wanted: Option<usize>,
    here: usize,
    there: usize,
) -> anyhow::Result<PathMtu> {
    let most = here.min(there);
    let mtu = wanted.unwrap_or(most);
    ensure!(
        mtu <= most,
        "a path MTU of {mtu} is too large for the network; use -m {most} or less"
    );
    PathMtu::largest_within(mtu).context("the smallest path MTU is 256")
}

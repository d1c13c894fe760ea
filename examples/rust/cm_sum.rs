//! An introduction to the connection manager: a client sends two numbers, and the server returns
//! their sum. The program waits for each event explicitly, as programs with `rdma_cm` do.
//!
//! The server sends the address and the rkey of its buffer as private data. The client writes the
//! first number there by RDMA WRITE, and sends the second by SEND. A reliable connection keeps the
//! order: when the SEND has arrived, the WRITE has, too.
//!
//! ```text
//! cargo run --release --example cm_sum -- server
//! cargo run --release --example cm_sum -- client
//! ```
//!
//! Interoperates with the C program of the same name: either can be server or client.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, TIMEOUT, point_to_capture, println};
use rocinante::rdma_cm::{Event, EventChannel, EventKind, PeerParameters, PortSpace};
use rocinante::{
    Access, Completion, CompletionChannel, CompletionQueue, Context, Key, MemoryRegion, Notify,
    PreparedQueuePair, ProtectionDomain, RemoteMemory, Request, Status,
};

/// The layout of the buffer: two numbers and their sum.
const NUMBER: usize = 4;
const FIRST: usize = 0;
const SECOND: usize = NUMBER;
const SUM: usize = 2 * NUMBER;

/// Ids of the work requests.
const RECEIVE: u64 = 1;
const WRITE: u64 = 2;
const SEND: u64 = 3;

/// Add two numbers on a server, connected by the connection manager
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Wait for a client and add its numbers
    Server {
        #[command(flatten)]
        common: Common,
    },
    /// Send two numbers to a server
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        /// The numbers
        #[arg(num_args = 2, default_values_t = [123, 567])]
        numbers: Vec<u32>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    #[command(flatten)]
    device: DeviceOptions,
    /// The server's port in the connection manager (not a TCP port)
    #[arg(long, default_value_t = 20079)]
    port: u16,
}

fn main() -> anyhow::Result<()> {
    match Options::parse().role {
        Role::Server { common } => run_server(&common),
        Role::Client {
            server,
            numbers,
            common,
        } => run_client(&common, server, numbers[0], numbers[1]),
    }
}

fn run_server(common: &Common) -> anyhow::Result<()> {
    let context = common.device.open_server("cm_sum-server.pcapng")?;
    // One channel carries the events of all its ids. It has a file descriptor.
    let channel = EventChannel::new()?;
    let listener = channel.create_id(PortSpace::Tcp);
    listener.choose(&context);
    let address = listener.bind((Ipv4Addr::UNSPECIFIED, common.port).into())?;
    listener.listen(1)?;
    println!("server  listens on port {}", address.port());

    let event = next(&channel)?;
    let id = event.request.context("the first event must be a request")?;
    let resources = Resources::new(&context)?;
    let prepared = resources.prepare()?;
    // Post the receive before accepting: the client may send as soon as it is accepted.
    prepared.post_receive(RECEIVE, [resources.memory.slice(SECOND..SUM)])?;
    let first_number = to_bytes(resources.memory.remote(FIRST));
    let parameters = prepared.parameters(&first_number);
    let queue_pair = prepared.connect_by(&id)?;
    id.accept(&parameters)?;
    expect(&channel, &EventKind::Established)?;

    resources.wait_for(RECEIVE)?;
    let (first, second) = (resources.number(FIRST), resources.number(SECOND));
    let sum = first.wrapping_add(second);
    println!("server  {first} + {second} = {sum}");
    resources.memory.write(SUM, &sum.to_be_bytes());
    let reply = resources.memory.slice(SUM..SUM + NUMBER);
    queue_pair.post_send(Request::send().data(reply).id(SEND))?;
    resources.wait_for(SEND)?;

    expect(&channel, &EventKind::Disconnected { timed_out: false })?;
    // Answer the disconnect request.
    id.disconnect()?;
    point_to_capture(&context);
    Ok(())
}

fn run_client(common: &Common, server: IpAddr, first: u32, second: u32) -> anyhow::Result<()> {
    let context = common.device.open("cm_sum-client.pcapng", Some(server))?;
    let channel = EventChannel::new()?;
    let id = channel.create_id(PortSpace::Tcp);
    id.choose(&context);
    // Find the local device and address, then the path. Each result is an event.
    id.resolve_address(None, SocketAddr::new(server, common.port), TIMEOUT)?;
    expect(&channel, &EventKind::AddressResolved)?;
    id.resolve_route(TIMEOUT)?;
    expect(&channel, &EventKind::RouteResolved)?;

    let resources = Resources::new(&context)?;
    let prepared = resources.prepare()?;
    prepared.post_receive(RECEIVE, [resources.memory.slice(SUM..SUM + NUMBER)])?;
    id.connect(&prepared.parameters(&[]))?;
    let server = accepted(&channel)?;
    let queue_pair = prepared.connect_by(&id)?;
    id.establish()?;

    let first_number = from_bytes(&server.private_data)?;
    println!("client  writes {first}, then sends {second}");
    resources.memory.write(FIRST, &first.to_be_bytes());
    resources.memory.write(SECOND, &second.to_be_bytes());
    let write = Request::write(first_number).data(resources.memory.slice(FIRST..SECOND));
    let send = Request::send().data(resources.memory.slice(SECOND..SUM));
    // Post both at once: there is no need to wait for the first.
    queue_pair.post_send_many([write.id(WRITE), send.id(SEND)])?;
    // Sends and receives each complete in order, but not relative to each other: the reply may be first.
    resources.wait_for_all([WRITE, SEND, RECEIVE])?;
    let sum = resources.number(SUM);
    println!("client  the server says {sum}");

    id.disconnect()?;
    expect(&channel, &EventKind::Disconnected { timed_out: false })?;
    point_to_capture(&context);
    ensure!(sum == first.wrapping_add(second), "the sum is wrong");
    Ok(())
}

/// The objects that both sides need.
struct Resources {
    /// Receives a notification when the armed completion queue gets a completion.
    notifications: CompletionChannel,
    completions: CompletionQueue,
    memory: MemoryRegion,
    domain: ProtectionDomain,
}

impl Resources {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        let notifications = context.create_completion_channel()?;
        Ok(Self {
            completions: notifications.create_completion_queue(16)?,
            notifications,
            memory: domain
                .allocate_memory(3 * NUMBER, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            domain,
        })
    }

    fn prepare(&self) -> anyhow::Result<PreparedQueuePair> {
        Ok(self
            .domain
            .queue_pair_builder(&self.completions)
            .create_reliable()?)
    }

    /// Waits until this request has completed.
    fn wait_for(&self, request: u64) -> anyhow::Result<()> {
        self.wait_for_all([request])
    }

    /// Waits until all of these requests have completed, in any order.
    fn wait_for_all<const N: usize>(&self, requests: [u64; N]) -> anyhow::Result<()> {
        let mut outstanding = requests.to_vec();
        while !outstanding.is_empty() {
            let Completion { id, status, .. } = self.next_completion()?;
            ensure!(status == Status::Success, "request {id}: {status}");
            outstanding.retain(|request| *request != id);
        }
        Ok(())
    }

    /// Arms the queue, polls it, and then sleeps. In this order no completion is missed.
    fn next_completion(&self) -> anyhow::Result<Completion> {
        loop {
            self.completions.arm(Notify::Any);
            if let Some(completion) = self.completions.poll() {
                return Ok(completion);
            }
            let notified = self.notifications.wait_for(TIMEOUT);
            notified.context("nothing completed in 30 seconds: is the peer still running?")?;
        }
    }

    fn number(&self, offset: usize) -> u32 {
        let mut bytes = [0; NUMBER];
        self.memory.read(offset, &mut bytes);
        u32::from_be_bytes(bytes)
    }
}

fn next(channel: &EventChannel) -> anyhow::Result<Event> {
    let event = channel.wait();
    println!("event   {}", name(&event.kind));
    Ok(event)
}

fn expect(channel: &EventChannel, kind: &EventKind) -> anyhow::Result<()> {
    let event = next(channel)?;
    ensure!(event.kind == *kind, "expected {}", name(kind));
    Ok(())
}

/// Waits for the server's reply.
fn accepted(channel: &EventChannel) -> anyhow::Result<PeerParameters> {
    match next(channel)?.kind {
        EventKind::ConnectResponse(server) => Ok(server),
        EventKind::Rejected { reason, .. } => bail!("{reason}: is the server running?"),
        _ => bail!("the server does not answer: check its address and UDP port 4791"),
    }
}

/// Its name in librdmacm.
fn name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::AddressResolved => "ADDR_RESOLVED",
        EventKind::AddressError(_) => "ADDR_ERROR",
        EventKind::RouteResolved => "ROUTE_RESOLVED",
        EventKind::RouteError(_) => "ROUTE_ERROR",
        EventKind::ConnectRequest { .. } => "CONNECT_REQUEST",
        EventKind::ConnectResponse(_) => "CONNECT_RESPONSE",
        EventKind::ConnectError(_) => "CONNECT_ERROR",
        EventKind::Unreachable(_) => "UNREACHABLE",
        EventKind::Rejected { .. } => "REJECTED",
        EventKind::Established => "ESTABLISHED",
        EventKind::Disconnected { .. } => "DISCONNECTED",
        _ => "another event",
    }
}

/// Private data: the address and the key, in network byte order.
fn to_bytes(remote: RemoteMemory) -> Vec<u8> {
    let key = remote.key.value();
    [&remote.address.to_be_bytes()[..], &key.to_be_bytes()].concat()
}

fn from_bytes(bytes: &[u8]) -> anyhow::Result<RemoteMemory> {
    let short = "the server's private data is too short";
    let (address, rest) = bytes.split_first_chunk().context(short)?;
    let key = rest.first_chunk().context(short)?;
    Ok(RemoteMemory {
        address: u64::from_be_bytes(*address),
        key: Key::new(u32::from_be_bytes(*key)),
    })
}

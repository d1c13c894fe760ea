//! An introduction to the connection manager: a client sends two numbers, the server answers their
//! sum. Every event is waited for by hand, as programs with `rdma_cm` do it.
//!
//! The server tells the client in its private data where a buffer is and which key opens it. The
//! client puts the first number there by RDMA WRITE, and SENDs the second. A reliable connection
//! keeps the order: when the SEND has arrived, the WRITE has too.
//!
//! ```text
//! cargo run --release --example cm_sum -- server
//! cargo run --release --example cm_sum -- client
//! ```
//!
//! The C program of the same name speaks the same language: either can be server or client.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, PATIENCE, point_to_capture};
use rocinante::rdma_cm::{Event, EventChannel, EventKind, Offer, PortSpace};
use rocinante::{
    Access, Completion, CompletionChannel, CompletionQueue, Context, Key, MemoryRegion, Notify,
    Prepared, ProtectionDomain, Remote, Request, Status,
};

/// Two numbers, and behind them the sum.
const NUMBER: usize = 4;
const FIRST: usize = 0;
const SECOND: usize = NUMBER;
const SUM: usize = 2 * NUMBER;

/// Numbers for our work requests.
const RECEIVE: u64 = 1;
const WRITE: u64 = 2;
const SEND: u64 = 3;

/// The connection manager's introduction: the server adds two numbers for its client
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
        place: Place,
    },
    /// Have two numbers added by a server
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        /// The numbers
        #[arg(num_args = 2, default_values_t = [123, 567])]
        numbers: Vec<u32>,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
struct Place {
    #[command(flatten)]
    device: DeviceOptions,
    /// The server's port in the connection manager, which is none of TCP's
    #[arg(long, default_value_t = 20079)]
    port: u16,
}

fn main() -> anyhow::Result<()> {
    match Options::parse().role {
        Role::Server { place } => serve(&place),
        Role::Client {
            server,
            numbers,
            place,
        } => ask(&place, server, numbers[0], numbers[1]),
    }
}

fn serve(place: &Place) -> anyhow::Result<()> {
    let context = place.device.open("cm_sum-server.pcapng", None)?;
    // Events of all ids come out of one channel, which has a descriptor to wait for.
    let channel = EventChannel::new()?;
    let listener = channel.create(PortSpace::Tcp);
    listener.choose(&context);
    let address = listener.bind((Ipv4Addr::UNSPECIFIED, place.port).into())?;
    listener.listen(1)?;
    println!("server  listens at port {}", address.port());

    let event = next(&channel)?;
    let id = event.request.context("the first event must be a request")?;
    let desk = Desk::new(&context)?;
    let prepared = desk.prepare()?;
    // The receive must be there before the client can send, so it comes before accepting.
    prepared.post_receive(RECEIVE, [desk.memory.slice(SECOND..SUM)])?;
    let place_for_first = to_bytes(desk.memory.remote(FIRST));
    let parameters = prepared.parameters(&place_for_first);
    let queue_pair = prepared.connect_by(&id)?;
    id.accept(&parameters)?;
    expect(&channel, &EventKind::Established)?;

    desk.wait_for(RECEIVE)?;
    let (first, second) = (desk.number(FIRST), desk.number(SECOND));
    let sum = first.wrapping_add(second);
    println!("server  {first} + {second} = {sum}");
    desk.memory.write(SUM, &sum.to_be_bytes());
    let answer = desk.memory.slice(SUM..SUM + NUMBER);
    queue_pair.post(Request::send().data(answer).id(SEND))?;
    desk.wait_for(SEND)?;

    expect(&channel, &EventKind::Disconnected { timed_out: false })?;
    // The good-bye wants an answer.
    id.disconnect()?;
    point_to_capture(&context);
    Ok(())
}

fn ask(place: &Place, server: IpAddr, first: u32, second: u32) -> anyhow::Result<()> {
    let context = place.device.open("cm_sum-client.pcapng", Some(server))?;
    let channel = EventChannel::new()?;
    let id = channel.create(PortSpace::Tcp);
    id.choose(&context);
    // Which of our addresses leads there, and by which path? Each answer is an event.
    id.resolve_address(None, SocketAddr::new(server, place.port), PATIENCE)?;
    expect(&channel, &EventKind::AddressResolved)?;
    id.resolve_route(PATIENCE)?;
    expect(&channel, &EventKind::RouteResolved)?;

    let desk = Desk::new(&context)?;
    let prepared = desk.prepare()?;
    prepared.post_receive(RECEIVE, [desk.memory.slice(SUM..SUM + NUMBER)])?;
    id.connect(&prepared.parameters(&[]))?;
    let offer = accepted(&channel)?;
    let queue_pair = prepared.connect_by(&id)?;
    id.establish()?;

    let place_for_first = from_bytes(&offer.private_data)?;
    println!("client  writes {first}, then sends {second}");
    desk.memory.write(FIRST, &first.to_be_bytes());
    desk.memory.write(SECOND, &second.to_be_bytes());
    let write = Request::write(place_for_first).data(desk.memory.slice(FIRST..SECOND));
    let send = Request::send().data(desk.memory.slice(SECOND..SUM));
    // Both at once: there is no need to wait for the first.
    queue_pair.post_many([write.id(WRITE), send.id(SEND)])?;
    // Each queue keeps its order, but between the two there is none: the answer may come first.
    desk.wait_for_all([WRITE, SEND, RECEIVE])?;
    let sum = desk.number(SUM);
    println!("client  the server says {sum}");

    id.disconnect()?;
    expect(&channel, &EventKind::Disconnected { timed_out: false })?;
    point_to_capture(&context);
    ensure!(sum == first.wrapping_add(second), "the sum is wrong");
    Ok(())
}

/// What both sides work with.
struct Desk {
    /// Where the completion queue rings when something has completed.
    bell: CompletionChannel,
    completions: CompletionQueue,
    memory: MemoryRegion,
    domain: ProtectionDomain,
}

impl Desk {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let domain = context.protection_domain()?;
        let bell = context.completion_channel()?;
        Ok(Self {
            completions: bell.completion_queue(16)?,
            bell,
            memory: domain.register(3 * NUMBER, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            domain,
        })
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        Ok(self.domain.queue_pair(&self.completions).reliable()?)
    }

    /// Sleeps until this request has completed.
    fn wait_for(&self, request: u64) -> anyhow::Result<()> {
        self.wait_for_all([request])
    }

    /// Sleeps until all of these requests have completed, in whatever order.
    fn wait_for_all<const N: usize>(&self, requests: [u64; N]) -> anyhow::Result<()> {
        let mut open = requests.to_vec();
        while !open.is_empty() {
            let Completion { id, status, .. } = self.next_completion()?;
            ensure!(status == Status::Success, "request {id}: {status}");
            open.retain(|request| *request != id);
        }
        Ok(())
    }

    /// Arm, poll, sleep: in this order no completion can slip through between.
    fn next_completion(&self) -> anyhow::Result<Completion> {
        loop {
            self.completions.notify(Notify::Any);
            if let Some(completion) = self.completions.poll() {
                return Ok(completion);
            }
            let rang = self.bell.wait_for(PATIENCE);
            rang.context("nothing completed in 30 seconds: did the other end stop?")?;
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

/// The server's answer.
fn accepted(channel: &EventChannel) -> anyhow::Result<Offer> {
    match next(channel)?.kind {
        EventKind::ConnectResponse(offer) => Ok(offer),
        EventKind::Rejected { reason, .. } => bail!("{reason}: is the server running?"),
        _ => bail!("the server does not answer: check its address, and UDP port 4791"),
    }
}

/// As the C library calls it.
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
        _ => "something else",
    }
}

/// Private data: the address and the key, in network order.
fn to_bytes(remote: Remote) -> Vec<u8> {
    let key = remote.key.value();
    [&remote.address.to_be_bytes()[..], &key.to_be_bytes()].concat()
}

fn from_bytes(bytes: &[u8]) -> anyhow::Result<Remote> {
    let short = "the server's private data is too short";
    let (address, rest) = bytes.split_first_chunk().context(short)?;
    let key = rest.first_chunk().context(short)?;
    Ok(Remote {
        address: u64::from_be_bytes(*address),
        key: Key::new(u32::from_be_bytes(*key)),
    })
}

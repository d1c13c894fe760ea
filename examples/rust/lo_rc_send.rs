//! Two queue pairs in one process, and one SEND between them.
//!
//! This is the smallest complete RDMA program: it has one of each object that RDMA needs. It uses
//! loopback. The capture contains every packet even so, because the device itself writes it.
//!
//! ```text
//! cargo run --release --example lo_rc_send
//! ```

#![forbid(unsafe_code)]

use clap::Parser;
use examples::{DeviceOptions, describe_gid, gid_index, point_to_capture, println, succeeded};
use rocinante::{
    Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, PreparedQueuePair,
    ProtectionDomain, QueuePair, Request,
};

const MESSAGE: &[u8] = b"hello, queue pair";

/// The size of the buffer of each side.
const BUFFER_SIZE: usize = 64;

/// SEND a message from one queue pair to another, in one process
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    device: DeviceOptions,
    /// GID index [default: the first with an IPv4 address]
    #[arg(long, value_name = "N")]
    gid_index: Option<u8>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();

    // The device. This one is in user space; a NIC or the kernel's Soft-RoCE works the same way.
    let context = options.device.open("lo_rc_send.pcapng", None)?;
    let gid_index = gid_index(&context, options.gid_index, None);
    println!("device       {}", describe_gid(&context, gid_index));

    // A queue pair can only access memory in its own protection domain.
    let domain = context.allocate_protection_domain()?;

    let left = Side::new("left", &context, &domain, gid_index)?;
    let right = Side::new("right", &context, &domain, gid_index)?;
    let (left, right) = connect(left, right)?;

    send(&left, &right)?;
    point_to_capture(&context);
    Ok(())
}

/// One side of the connection.
struct Side<Pair> {
    name: &'static str,
    /// Where the device reports the results of work requests.
    completions: CompletionQueue,
    /// Memory that the device may access. It has an address and keys.
    memory: MemoryRegion,
    /// A send queue and a receive queue. `PreparedQueuePair` can't send yet, `QueuePair` can.
    pair: Pair,
}

impl Side<PreparedQueuePair> {
    fn new(
        name: &'static str,
        context: &Context,
        domain: &ProtectionDomain,
        gid_index: u8,
    ) -> anyhow::Result<Self> {
        let completions = context.create_completion_queue(16)?;
        // LOCAL_WRITE: the device may write here when a message arrives.
        let memory = domain.allocate_memory(BUFFER_SIZE, Access::LOCAL_WRITE)?;
        let connect_options = ConnectOptions {
            gid_index: Some(gid_index),
            ..ConnectOptions::default()
        };
        // RC, "reliable connected": each message arrives once and in order. The state is now INIT.
        let pair = domain
            .queue_pair_builder(&completions)
            .connect_options(connect_options)
            .create_reliable()?;
        let number = pair.endpoint().queue_pair.value();
        println!(
            "{name:<12} queue pair {number:#x}, first sequence number {:#x}",
            pair.endpoint().psn.value()
        );
        Ok(Self {
            name,
            completions,
            memory,
            pair,
        })
    }

    /// Goes from INIT to RTR (ready to receive) and RTS (ready to send).
    fn connect(self, peer: rocinante::Endpoint) -> anyhow::Result<Side<QueuePair>> {
        Ok(Side {
            pair: self.pair.connect(peer)?,
            name: self.name,
            completions: self.completions,
            memory: self.memory,
        })
    }
}

/// Connects the two queue pairs. Both are in this process, so no parameters go over the network.
fn connect(
    left: Side<PreparedQueuePair>,
    right: Side<PreparedQueuePair>,
) -> anyhow::Result<(Side<QueuePair>, Side<QueuePair>)> {
    // Post the receive before the send. A message without a posted receive is rejected (RNR).
    right.pair.post_receive(2, [right.memory.all()])?;
    println!("right        posts a receive of up to {BUFFER_SIZE} bytes, work request 2");
    let (here, there) = (left.pair.endpoint(), right.pair.endpoint());
    let sides = (left.connect(there)?, right.connect(here)?);
    println!("both         INIT -> RTR -> RTS: connected");
    Ok(sides)
}

fn send(left: &Side<QueuePair>, right: &Side<QueuePair>) -> anyhow::Result<()> {
    left.memory.write(0, MESSAGE);
    let data = left.memory.slice(0..MESSAGE.len());
    left.pair.post_send(Request::send().data(data).id(1))?;
    println!(
        "left         posts a SEND of {} bytes, work request 1",
        MESSAGE.len()
    );

    // The receiver's completion: the message is in its buffer.
    let received = succeeded(&right.completions, "the receive")?;
    let bytes = right.memory.to_vec(0..received.length as usize);
    println!(
        "{:<12} work request {} completed: {} bytes, \"{}\"",
        right.name,
        received.id,
        received.length,
        String::from_utf8_lossy(&bytes)
    );

    // The sender's completion: the receiver has acknowledged it, so the buffer can be reused.
    let sent = succeeded(&left.completions, "the SEND")?;
    println!(
        "{:<12} work request {} completed: the peer has acknowledged it",
        left.name, sent.id
    );
    anyhow::ensure!(
        bytes == MESSAGE,
        "the received data differs from the sent data"
    );
    Ok(())
}

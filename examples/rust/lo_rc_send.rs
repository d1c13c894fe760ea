//! Two queue pairs in one process, and one SEND between them.
//!
//! This is the smallest whole RDMA program: every object that there has to be, once. It talks to
//! itself over loopback, and yet each packet is in the capture, because the device writes it.
//!
//! ```text
//! cargo run --release --example lo_rc_send
//! ```

#![forbid(unsafe_code)]

use clap::Parser;
use examples::{DeviceOptions, describe_gid, gid_index, point_to_capture, succeeded};
use rocinante::{
    Access, CompletionQueue, Context, MemoryRegion, Prepared, ProtectionDomain, QueuePair, Request,
    Terms,
};

const MESSAGE: &[u8] = b"hello, queue pair";

/// How much memory each side has.
const ROOM: usize = 64;

/// SEND a message from one queue pair to another, in one process
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    device: DeviceOptions,
    /// Which entry of the GID table [default: the first with an IPv4 address]
    #[arg(long, value_name = "N")]
    gid_index: Option<u8>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();

    // The device. A real NIC would do, or the kernel's Soft-RoCE; this one is in user space.
    let context = options.device.open("lo_rc_send.pcapng", None)?;
    let gid_index = gid_index(&context, options.gid_index, None);
    println!("device       {}", describe_gid(&context, gid_index));

    // The protection domain is a fence: a queue pair can only touch memory of its own domain.
    let domain = context.protection_domain()?;

    let left = Side::new("left", &context, &domain, gid_index)?;
    let right = Side::new("right", &context, &domain, gid_index)?;
    let (left, right) = introduce(left, right)?;

    send(&left, &right)?;
    point_to_capture(&context);
    Ok(())
}

/// What one end of a conversation consists of.
struct Side<Pair> {
    name: &'static str,
    /// Where the device tells what became of our requests.
    completions: CompletionQueue,
    /// Memory that the device may use: it has an address and keys.
    memory: MemoryRegion,
    /// Two queues, one for sends and one for receives. `Prepared` can't send yet, `QueuePair` can.
    pair: Pair,
}

impl Side<Prepared> {
    fn new(
        name: &'static str,
        context: &Context,
        domain: &ProtectionDomain,
        gid_index: u8,
    ) -> anyhow::Result<Self> {
        let completions = context.completion_queue(16)?;
        // LOCAL_WRITE: the device itself may write here, when a message arrives.
        let memory = domain.register(ROOM, Access::LOCAL_WRITE)?;
        let terms = Terms {
            gid_index,
            ..Terms::default()
        };
        // RC, "reliable connected": everything arrives, once and in order. INIT is its state now.
        let pair = domain.queue_pair(&completions).terms(terms).reliable()?;
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

    /// INIT, then RTR (ready to receive), then RTS (ready to send).
    fn connect(self, peer: rocinante::Endpoint) -> anyhow::Result<Side<QueuePair>> {
        Ok(Side {
            pair: self.pair.connect(peer)?,
            name: self.name,
            completions: self.completions,
            memory: self.memory,
        })
    }
}

/// Tells each queue pair who its peer is. Here that is easy: both are ours.
fn introduce(
    left: Side<Prepared>,
    right: Side<Prepared>,
) -> anyhow::Result<(Side<QueuePair>, Side<QueuePair>)> {
    // A receive first, and only then a send: a message that finds none is turned away (RNR).
    right.pair.post_receive(2, [right.memory.all()])?;
    println!("right        has room for a message of up to {ROOM} bytes");
    let (here, there) = (left.pair.endpoint(), right.pair.endpoint());
    let sides = (left.connect(there)?, right.connect(here)?);
    println!("both         INIT -> RTR -> RTS: connected");
    Ok(sides)
}

fn send(left: &Side<QueuePair>, right: &Side<QueuePair>) -> anyhow::Result<()> {
    left.memory.write(0, MESSAGE);
    let words = left.memory.slice(0..MESSAGE.len());
    left.pair.post(Request::send().data(words).id(1))?;
    println!(
        "left         posts a SEND of {} bytes, work request 1",
        MESSAGE.len()
    );

    // The receiver's completion: the message is in its memory.
    let received = succeeded(&right.completions, "the receive")?;
    let bytes = right.memory.to_vec(0..received.length as usize);
    println!(
        "{:<12} work request {} completed: {} bytes, \"{}\"",
        right.name,
        received.id,
        received.length,
        String::from_utf8_lossy(&bytes)
    );

    // The sender's completion: the receiver has acknowledged it, so the memory is ours again.
    let sent = succeeded(&left.completions, "the SEND")?;
    println!(
        "{:<12} work request {} completed: the other end has acknowledged it",
        left.name, sent.id
    );
    anyhow::ensure!(bytes == MESSAGE, "other bytes arrived than were sent");
    Ok(())
}

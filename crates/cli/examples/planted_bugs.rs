//! Small programs with one bug each, for `roci torture` to find. `--fixed` is the same program without the bug.
//!
//! All of them work as long as the network loses nothing and both sides are fast.
//!
//! ```text
//! cargo build --release -p roci --example planted_bugs
//! roci torture -- target/release/examples/planted_bugs rnr-retry
//! roci torture -- target/release/examples/planted_bugs rnr-retry --fixed
//! ```
//!
//! Client and server are two devices of one process. Their first and second context are those of the client and the
//! server.

#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use rocinante::{
    Access, AckTimeout, AddressHandle, CompletionChannel, CompletionQueue, ConnectOptions, Context,
    DatagramQueuePair, MemoryRegion, Notify, ProtectionDomain, QueueKey, QueuePair, Request,
    Status,
};

/// How many messages, requests or rounds each program has.
const ROUNDS: u64 = 10;
/// How long a program waits before it gives up: longer than all retransmissions.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for the next event: longer than the retransmissions of a message.
const LAST_EVENT: Duration = Duration::from_millis(1500);
/// After which time a datagram is sent again.
const RESEND: Duration = Duration::from_millis(60);
/// How often a datagram is sent.
const ATTEMPTS: u32 = 60;
/// The network header in front of each received datagram.
const NETWORK_HEADER: usize = 40;
const NUMBER: usize = 8;
/// Several packets.
const BLOCK: usize = 3 * 4096;
const KEY: QueueKey = QueueKey::new(0x1234);

/// Show one bug that only a bad network reveals
#[derive(Parser)]
struct Options {
    /// The bug
    bug: Bug,
    /// Run the program without the bug
    #[arg(long)]
    fixed: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bug {
    /// The sender does not retry if the receiver has no receive yet (rnr_retry 0)
    RnrRetry,
    /// The sender does not retry if a packet is lost (retry_cnt 0)
    Retry,
    /// The client waits for a reply to a datagram that may be lost
    LostDatagram,
    /// The server adds a number again if the client asks again, because the reply was lost
    CountedTwice,
    /// The server trusts a WRITE on an unreliable connection
    TornWrite,
    /// The server trusts that a WRITE is complete when a SEND on another queue pair has arrived
    TwoQueuePairs,
    /// The server takes one completion for each event
    OneEvent,
}

fn main() -> anyhow::Result<()> {
    let Options { bug, fixed } = Options::parse();
    match bug {
        Bug::RnrRetry => messages(ConnectOptions {
            rnr_retry: if fixed { 7 } else { 0 },
            ..quick()
        }),
        Bug::Retry => messages(ConnectOptions {
            retry_count: if fixed { 7 } else { 0 },
            ..quick()
        }),
        Bug::LostDatagram => ask_server(fixed, true),
        Bug::CountedTwice => ask_server(true, fixed),
        Bug::TornWrite => write_blocks(fixed),
        Bug::TwoQueuePairs => write_and_tell(fixed),
        Bug::OneEvent => count_events(fixed),
    }
}

/// One side: a device and what its programs need.
struct End {
    context: Context,
    domain: ProtectionDomain,
    channel: CompletionChannel,
    sent: CompletionQueue,
    received: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    fn at(address: &str) -> anyhow::Result<Self> {
        let context = Context::open(address)?;
        let domain = context.allocate_protection_domain()?;
        let channel = context.create_completion_channel()?;
        Ok(End {
            sent: context.create_completion_queue(256)?,
            received: channel.create_completion_queue(256)?,
            channel,
            memory: domain.allocate_memory(1 << 16, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            domain,
            context,
        })
    }

    fn datagrams(&self) -> anyhow::Result<DatagramQueuePair> {
        let builder = self.domain.queue_pair_builder(&self.sent);
        Ok(builder
            .receive_completions(&self.received)
            .create_datagram(KEY)?)
    }

    /// Waits for a completion, which must be a success.
    fn success(&self, queue: &CompletionQueue) -> anyhow::Result<u64> {
        let completion = queue.wait_for(TIMEOUT).context("nothing completes")?;
        ensure!(
            completion.status == Status::Success,
            "{}",
            completion.status
        );
        Ok(completion.id)
    }

    fn number_at(&self, offset: usize) -> u64 {
        let mut bytes = [0; NUMBER];
        self.memory.read(offset, &mut bytes);
        u64::from_be_bytes(bytes)
    }
}

fn quick() -> ConnectOptions {
    ConnectOptions {
        ack_timeout: AckTimeout::new(12).expect("a five-bit code"),
        ..ConnectOptions::default()
    }
}

fn both_ends() -> anyhow::Result<(End, End)> {
    Ok((End::at("127.0.0.1")?, End::at("127.0.0.2")?))
}

/// Two connected queue pairs: that of the client and that of the server, which has its receives posted.
fn connect(
    client: &End,
    server: &End,
    options: ConnectOptions,
    reliable: bool,
) -> anyhow::Result<(QueuePair, QueuePair)> {
    let prepare = |end: &End| {
        let builder = end.domain.queue_pair_builder(&end.sent).depth(64, 64);
        let builder = builder
            .receive_completions(&end.received)
            .connect_options(options);
        if reliable {
            builder.create_reliable()
        } else {
            builder.create_unreliable()
        }
    };
    let (ours, theirs) = (prepare(client)?, prepare(server)?);
    for number in 0..ROUNDS {
        let at = BLOCK + number as usize * NUMBER;
        theirs.post_receive(number, [server.memory.slice(at..at + NUMBER)])?;
    }
    let (our_end, their_end) = (ours.endpoint(), theirs.endpoint());
    Ok((ours.connect(their_end)?, theirs.connect(our_end)?))
}

/// The client sends messages, and the server counts them.
fn messages(options: ConnectOptions) -> anyhow::Result<()> {
    let (client, server) = both_ends()?;
    let (ours, _theirs) = connect(&client, &server, options, true)?;
    for number in 0..ROUNDS {
        ours.post_send(Request::send().inline(&number.to_be_bytes()))?;
        client.success(&client.sent)?;
        server.success(&server.received)?;
    }
    Ok(())
}

/// The client sends numbers as datagrams, and the server answers with their sum.
fn ask_server(asks_again: bool, counts_once: bool) -> anyhow::Result<()> {
    let (client, server) = both_ends()?;
    let (ours, theirs) = (client.datagrams()?, server.datagrams()?);
    let to_server = address(&client, &theirs)?;
    let to_client = address(&server, &ours)?;
    post_room(&server, &theirs)?;
    thread::spawn(move || add_numbers(&server, &theirs, &to_client, counts_once));
    let mut expected = 0;
    for number in 1..=ROUNDS {
        expected += number;
        let sum = ask(&client, &ours, &to_server, number, asks_again)?;
        ensure!(sum == expected, "the sum is {sum} instead of {expected}");
    }
    Ok(())
}

fn address(from: &End, to: &DatagramQueuePair) -> anyhow::Result<AddressHandle> {
    let to = to.endpoint();
    Ok(AddressHandle::new(
        &from.context,
        to.gid,
        0,
        to.queue_pair,
        KEY,
    )?)
}

fn post_room(server: &End, datagrams: &DatagramQueuePair) -> anyhow::Result<()> {
    let room = server.memory.slice(0..NETWORK_HEADER + NUMBER);
    Ok(datagrams.post_receive(0, [room])?)
}

/// The server: adds each number, and answers with the number and the sum.
fn add_numbers(
    server: &End,
    datagrams: &DatagramQueuePair,
    to_client: &AddressHandle,
    counts_once: bool,
) -> anyhow::Result<()> {
    let (mut sum, mut last) = (0, 0);
    loop {
        server.success(&server.received)?;
        let number = server.number_at(NETWORK_HEADER);
        // Before the reply, because the next request may follow it at once.
        post_room(server, datagrams)?;
        if !counts_once || number > last {
            sum += number;
            last = number;
        }
        let reply = [number.to_be_bytes(), sum.to_be_bytes()].concat();
        datagrams.post_send(to_client, Request::send().inline(&reply))?;
        while server.sent.poll().is_some() {}
    }
}

/// The client: sends a number and waits for the sum.
fn ask(
    client: &End,
    datagrams: &DatagramQueuePair,
    to_server: &AddressHandle,
    number: u64,
    asks_again: bool,
) -> anyhow::Result<u64> {
    let room = client.memory.slice(0..NETWORK_HEADER + 2 * NUMBER);
    datagrams.post_receive(0, [room])?;
    for _ in 0..ATTEMPTS {
        datagrams.post_send(to_server, Request::send().inline(&number.to_be_bytes()))?;
        while client.sent.poll().is_some() {}
        let mut reply = if asks_again {
            client.received.wait_for(RESEND)
        } else {
            Some(client.received.wait())
        };
        while reply.is_some() {
            let answered = client.number_at(NETWORK_HEADER);
            if answered == number {
                return Ok(client.number_at(NETWORK_HEADER + NUMBER));
            }
            // A late reply to an earlier number.
            datagrams.post_receive(0, [room])?;
            reply = client.received.wait_for(RESEND);
        }
    }
    bail!("the server does not answer")
}

/// The client writes blocks and announces each by a SEND on the same queue pair.
fn write_blocks(reliable: bool) -> anyhow::Result<()> {
    let (client, server) = both_ends()?;
    let (ours, _theirs) = connect(&client, &server, quick(), reliable)?;
    for round in 0..ROUNDS {
        fill(&client, round);
        let block = client.memory.slice(0..BLOCK);
        ours.post_send(Request::write(server.memory.remote(0)).data(block))?;
        ours.post_send(Request::send().inline(&round.to_be_bytes()))?;
        server.success(&server.received)?;
        check_block(&server, round)?;
        client.success(&client.sent)?;
        client.success(&client.sent)?;
    }
    Ok(())
}

/// The client writes blocks on one queue pair and announces them on another.
fn write_and_tell(waits: bool) -> anyhow::Result<()> {
    let (client, server) = both_ends()?;
    let (data, _server_data) = connect(&client, &server, quick(), true)?;
    let (control, _server_control) = connect(&client, &server, quick(), true)?;
    for round in 0..ROUNDS {
        fill(&client, round);
        let block = client.memory.slice(0..BLOCK);
        data.post_send(Request::write(server.memory.remote(0)).data(block))?;
        if waits {
            client.success(&client.sent)?;
        }
        control.post_send(Request::send().inline(&round.to_be_bytes()))?;
        server.success(&server.received)?;
        check_block(&server, round)?;
        client.success(&client.sent)?;
        if !waits {
            client.success(&client.sent)?;
        }
    }
    Ok(())
}

fn fill(client: &End, round: u64) {
    client.memory.write(0, &[round as u8 + 1; BLOCK]);
}

fn check_block(server: &End, round: u64) -> anyhow::Result<()> {
    let mut block = [0; BLOCK];
    server.memory.read(0, &mut block);
    let is_new = block.iter().all(|&byte| byte == round as u8 + 1);
    ensure!(is_new, "block {round} is announced, but old data is in it");
    Ok(())
}

/// The client sends a message every 20 ms, and the server waits for the event of each.
fn count_events(takes_all: bool) -> anyhow::Result<()> {
    let (client, server) = both_ends()?;
    // A message that follows a lost one is retransmitted together with it, before the timeout of 34 ms.
    let options = ConnectOptions {
        ack_timeout: AckTimeout::new(13).expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let (ours, _theirs) = connect(&client, &server, options, true)?;
    server.received.arm(Notify::Any);
    let sender = thread::spawn(move || -> anyhow::Result<()> {
        for number in 0..ROUNDS {
            ours.post_send(Request::send().inline(&number.to_be_bytes()))?;
            thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..ROUNDS {
            client.success(&client.sent)?;
        }
        Ok(())
    });
    let mut taken = 0;
    while taken < ROUNDS {
        let event = server.channel.wait_for(LAST_EVENT);
        event.with_context(|| format!("no event after message {taken}"))?;
        server.received.arm(Notify::Any);
        taken += u64::from(server.received.poll().is_some());
        while takes_all && server.received.poll().is_some() {
            taken += 1;
        }
    }
    sender.join().expect("the client does not panic")
}

//! Datagrams: one queue pair answers any number of clients, without connections. A client asks again if a reply
//! does not come, because datagrams can be lost.
//!
//! ```text
//! cargo run --release --example ud_echo -- server
//! cargo run --release --example ud_echo -- client 127.0.0.1
//! ```

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::num::ParseIntError;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Parser, Subcommand};
use examples::{
    DeviceOptions, Exchange, describe_gid, gid_index, listen, point_to_capture, println, text_of,
};
use rocinante::{
    Access, AddressHandle, CompletedWork, Completion, CompletionQueue, ConnectOptions, Context,
    DatagramQueuePair, Gid, MemoryRegion, Outgoing, Qpn, QueueKey, Request, Status,
};

/// Each receive begins with 40 bytes for the network header (GRH) of the datagram.
const HEADER: usize = 40;
/// The longest message of this program. A datagram is one packet, so it can't be longer than the MTU.
const TEXT: usize = 64;
const SLOT: usize = HEADER + TEXT;

/// A datagram must have the Q_Key of the queue pair that receives it. It is no secret, like a port number.
const KEY: u32 = 0x1234;

/// The immediate data of replies; questions have none. Sources can be forged: without the mark, one datagram would
/// make two servers answer each other for ever, or one server itself.
const REPLY: [u8; 4] = *b"echo";

/// How long a client waits for a reply before it asks again.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_ATTEMPTS: u32 = 5;

/// How often a server without datagrams looks whether its clients are done.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Ask and answer by datagrams (UD)
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answer each datagram in capital letters
    Server {
        /// Exit after this many clients
        #[arg(long, default_value_t = 1)]
        clients: usize,
        /// The number of receives; a datagram without a receive is lost
        #[arg(long, default_value_t = 16)]
        receives: usize,
        #[command(flatten)]
        common: Common,
    },
    /// Send some lines, and wait for the replies
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        /// The number of lines
        #[arg(long, default_value_t = 3)]
        lines: usize,
        /// Use this Q_Key instead of the server's: a decimal number, or a hexadecimal one with 0x
        #[arg(long, value_name = "KEY", value_parser = parse_key)]
        key: Option<u32>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    #[command(flatten)]
    device: DeviceOptions,
    /// Also use this multicast group, such as 239.1.2.3: a server joins it, a client asks the whole group
    #[arg(long, value_name = "ADDR")]
    group: Option<IpAddr>,
    /// The TCP port of the server
    #[arg(long, default_value_t = 18702)]
    port: u16,
}

fn main() -> anyhow::Result<()> {
    match Options::parse().role {
        Role::Server {
            clients,
            receives,
            common,
        } => run_server(&common, clients, receives),
        Role::Client {
            server,
            lines,
            key,
            common,
        } => run_client(&common, server, lines, key),
    }
}

/// A queue pair for datagrams and its memory: a slot for each receive, and one for sending.
struct Side {
    context: Context,
    gid_index: u8,
    completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pair: DatagramQueuePair,
    receives: usize,
}

impl Side {
    fn new(
        common: &Common,
        capture: &str,
        peer: Option<IpAddr>,
        receives: usize,
    ) -> anyhow::Result<Self> {
        let context = match peer {
            Some(peer) => common.device.open(capture, Some(peer))?,
            None => common.device.open_server(capture)?,
        };
        let gid_index = gid_index(&context, None, peer);
        println!("device  {}", describe_gid(&context, gid_index));
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(2 * receives as u32 + 2)?;
        let memory = domain.allocate_memory((receives + 1) * SLOT, Access::LOCAL_WRITE)?;
        let connect_options = ConnectOptions {
            gid_index: Some(gid_index),
            ..ConnectOptions::default()
        };
        // It goes to RTS without a peer: each request names its destination.
        let queue_pair = domain
            .queue_pair_builder(&completions)
            .depth(receives as u32, receives as u32)
            .connect_options(connect_options)
            .create_datagram(QueueKey::new(KEY))?;
        let side = Self {
            context,
            gid_index,
            completions,
            memory,
            queue_pair,
            receives,
        };
        for slot in 0..receives {
            side.post_receive(slot)?;
        }
        Ok(side)
    }

    fn post_receive(&self, slot: usize) -> anyhow::Result<()> {
        let buffer = self.memory.slice(slot * SLOT..(slot + 1) * SLOT);
        Ok(self.queue_pair.post_receive(slot as u64, [buffer])?)
    }

    /// A destination: a queue pair at an address. Such handles are made once and used for many requests.
    fn destination(&self, gid: Gid, number: Qpn, key: u32) -> anyhow::Result<AddressHandle> {
        let key = QueueKey::new(key);
        let handle = AddressHandle::new(&self.context, gid, self.gid_index, number, key);
        handle.with_context(|| format!("{gid} can't be reached"))
    }

    /// Sends a text. The completion of a datagram only means that it was sent.
    fn send(&self, to: &AddressHandle, message: Outgoing, text: &str) -> anyhow::Result<()> {
        ensure!(text.len() <= TEXT, "`{text}` is longer than {TEXT} bytes");
        let start = self.receives * SLOT;
        self.memory.write(start, text.as_bytes());
        let data = self.memory.slice(start..start + text.len());
        let id = self.receives as u64;
        Ok(self.queue_pair.post_send(to, message.data(data).id(id))?)
    }

    /// The text of a received datagram. The length of its completion includes the header.
    fn text(&self, received: &Completion) -> String {
        let start = received.id as usize * SLOT;
        let end = start + received.length as usize;
        text_of(&self.memory.to_vec(start + HEADER..end))
    }

    /// The next datagram before the deadline.
    fn receive(&self, deadline: Instant) -> anyhow::Result<Option<Completion>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(completion) = self.completions.wait_for(left) else {
                return Ok(None);
            };
            let status = completion.status;
            ensure!(status == Status::Success, "a request failed: {status}");
            if completion.work == CompletedWork::Receive {
                return Ok(Some(completion));
            }
        }
    }
}

fn run_server(common: &Common, clients: usize, receives: usize) -> anyhow::Result<()> {
    let side = Side::new(common, "ud_echo-server.pcapng", None, receives)?;
    if let Some(group) = common.group {
        side.queue_pair.join(group.into())?;
        println!("server  has joined the group {group}");
    }
    let endpoint = side.queue_pair.endpoint();
    let line = format!(
        "gid={} qpn={:#x} qkey={KEY:#x}",
        endpoint.gid,
        endpoint.queue_pair.value()
    );
    println!("server  {line}");
    let listener = listen(common.port)?;
    let port = listener.local_addr()?.port();
    println!("server  waits for {clients} client(s) on TCP port {port}");
    let done = introduce(listener, clients, line);
    loop {
        match done.try_recv() {
            Ok(result) => {
                result?;
                break;
            }
            Err(TryRecvError::Disconnected) => bail!("the thread that accepts clients has ended"),
            Err(TryRecvError::Empty) => {}
        }
        if let Some(received) = side.receive(Instant::now() + CHECK_INTERVAL)? {
            let text = side.text(&received);
            side.post_receive(received.id as usize)?;
            // Anyone can send anything, from a forged address, too. That must not end a server.
            if let Err(error) = reply(&side, &received, &text) {
                eprintln!("server  can't reply: {error:#}");
            }
        }
    }
    point_to_capture(&side.context);
    Ok(())
}

/// Tells each client over TCP where the queue pair is, and waits until all of them are done.
fn introduce(listener: TcpListener, clients: usize, line: String) -> Receiver<anyhow::Result<()>> {
    let (tell, done) = mpsc::channel();
    thread::spawn(move || {
        let serve = || -> anyhow::Result<()> {
            let mut waiting = Vec::new();
            for _ in 0..clients {
                let mut exchange = Exchange::over(listener.accept()?.0)?;
                exchange.send(&line)?;
                waiting.push(exchange);
            }
            waiting
                .iter_mut()
                .try_for_each(|exchange| exchange.receive().map(drop))
        };
        let _ = tell.send(serve());
    });
    done
}

/// Answers a question, if it is one. The completion names its sender.
fn reply(side: &Side, received: &Completion, text: &str) -> anyhow::Result<()> {
    let source = received.source.context("a datagram has a source")?;
    println!(
        "receive {} bytes from QP {:#x} at {}: {HEADER} of header, then \"{text}\"",
        received.length,
        source.queue_pair.value(),
        source.gid.ip().context("a source has an address")?
    );
    if received.immediate.is_some() {
        println!("server  does not reply: the datagram is no question");
        return Ok(());
    }
    let to = side.destination(source.gid, source.queue_pair, KEY)?;
    let request = Request::send_with_immediate(REPLY);
    side.send(&to, request, shortened(&text.to_uppercase()))
}

/// As much of a text as a message can hold. Capital letters can be longer than small ones, and so can the
/// replacements of invalid characters.
fn shortened(text: &str) -> &str {
    let mut ends = (0..=TEXT).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn run_client(
    common: &Common,
    server: IpAddr,
    lines: usize,
    key: Option<u32>,
) -> anyhow::Result<()> {
    let side = Side::new(common, "ud_echo-client.pcapng", Some(server), 4)?;
    let mut exchange = Exchange::connect((server, common.port).into())?;
    let line = exchange.receive()?;
    println!("server  {line}");
    let (gid, number, queue_key) = parse(&line)?;
    let key = key.unwrap_or(queue_key);
    let to = match common.group {
        Some(group) => side.destination(group.into(), Qpn::MULTICAST, key)?,
        None => side.destination(gid, number, key)?,
    };
    let outcome = (1..=lines).try_for_each(|line| ask(&side, &to, &format!("{line} hello")));
    exchange.send("done")?;
    point_to_capture(&side.context);
    outcome
}

/// Sends a line until its reply comes. A reply to an earlier attempt may come late, so replies are compared.
fn ask(side: &Side, to: &AddressHandle, line: &str) -> anyhow::Result<()> {
    let expected = line.to_uppercase();
    for attempt in 1..=MAX_ATTEMPTS {
        side.send(to, Request::send(), line)?;
        let deadline = Instant::now() + REPLY_TIMEOUT;
        while let Some(received) = side.receive(deadline)? {
            let text = side.text(&received);
            side.post_receive(received.id as usize)?;
            if received.immediate == Some(REPLY) && text == expected {
                println!("client  \"{line}\" was answered by \"{text}\", attempt {attempt}");
                return Ok(());
            }
        }
    }
    bail!("\"{line}\" was not answered in {MAX_ATTEMPTS} attempts: lost, dropped, or nobody there")
}

fn parse_key(text: &str) -> Result<u32, ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

/// The queue pair of the server and its Q_Key.
fn parse(line: &str) -> anyhow::Result<(Gid, Qpn, u32)> {
    let field = |name: &str| {
        let mut words = line.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.with_context(|| format!("the server sent `{line}`, without {name}"))
    };
    let number = |name: &str| -> anyhow::Result<u32> {
        let text = field(name)?;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        Ok(u32::from_str_radix(digits, 16)?)
    };
    Ok((
        field("gid")?.parse()?,
        Qpn::new(number("qpn")?),
        number("qkey")?,
    ))
}

//! A chat without messages: what you type is written into the other end's memory, and that end
//! looks at its own memory until it changes.
//!
//! Nobody receives anything here. There is no receive posted, no completion at the end that is
//! written to, no interrupt: the processor over there takes no part. So the writer must find out by
//! itself whether it has been read, and does it by RDMA READ.
//!
//! ```text
//! cargo run --release --example chat -- server
//! cargo run --release --example chat -- client
//! ```
//!
//! The C program of the same name speaks the same language: either can be server or client.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, completed, point_to_capture};
use rocinante::{
    Access, CompletionQueue, Connection, Connector, Context, Key, Listener, MemoryRegion,
    ProtectionDomain, Remote, Request, Status,
};

/// The board that each end has: two numbers and a text. The peer writes the first number and the
/// text; the owner writes the second number, and the peer reads it.
const WRITTEN: usize = 0;
const SEEN: usize = 8;
const LENGTH: usize = 16;
const TEXT: usize = 24;
const BOARD: usize = 1024;

/// Behind our board: where we prepare what we write, and where what we read lands.
const DRAFT: usize = BOARD;
const ECHO: usize = 2 * BOARD;

/// Between two looks at a memory.
const PAUSE: Duration = Duration::from_micros(200);

/// Chat by RDMA WRITE into each other's memory; `q` ends it
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Wait for somebody to chat with
    Server {
        #[command(flatten)]
        place: Place,
    },
    /// Chat with a server
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
struct Place {
    #[command(flatten)]
    device: DeviceOptions,
    /// The server's port in the connection manager
    #[arg(long, default_value_t = 7471)]
    port: u16,
}

fn main() -> anyhow::Result<()> {
    let (context, mut chat) = match Options::parse().role {
        Role::Server { place } => wait_for_guest(&place)?,
        Role::Client { server, place } => visit(&place, server)?,
    };
    println!("connected: type something, `q` ends");
    chat.run()?;
    point_to_capture(&context);
    Ok(())
}

fn wait_for_guest(place: &Place) -> anyhow::Result<(Context, Chat)> {
    let context = place.device.open("chat-server.pcapng", None)?;
    let own = Own::new(&context)?;
    let listener = Listener::bind_on(&context, (Ipv4Addr::UNSPECIFIED, place.port).into())?;
    println!("waiting at port {}", listener.local_address().port());
    let request = listener.wait();
    let theirs = from_bytes(request.private_data())?;
    let prepared = request.prepare(own.domain.queue_pair(&own.completions))?;
    let connection = prepared.accept(&to_bytes(own.memory.remote(0)))?;
    Ok((context, own.chat(connection, theirs)))
}

fn visit(place: &Place, server: IpAddr) -> anyhow::Result<(Context, Chat)> {
    let context = place.device.open("chat-client.pcapng", Some(server))?;
    let own = Own::new(&context)?;
    let connector = Connector::resolve_on(&context, SocketAddr::new(server, place.port))?;
    let prepared = connector.prepare(own.domain.queue_pair(&own.completions))?;
    let connection = prepared.connect(&to_bytes(own.memory.remote(0)))?;
    let theirs = from_bytes(connection.private_data())?;
    Ok((context, own.chat(connection, theirs)))
}

/// What an end has before it knows the other.
struct Own {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Own {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let domain = context.protection_domain()?;
        // The peer writes its text into our board, and reads whether we have seen it.
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        Ok(Self {
            completions: context.completion_queue(16)?,
            memory: domain.register(3 * BOARD, rights)?,
            domain,
        })
    }

    fn chat(self, connection: Connection, theirs: Remote) -> Chat {
        Chat {
            own: self,
            connection,
            theirs,
            written: 0,
            seen: 0,
        }
    }
}

/// Both boards: ours in our memory, theirs at the other end of the connection.
struct Chat {
    own: Own,
    connection: Connection,
    theirs: Remote,
    /// How many lines we have written to their board.
    written: u64,
    /// How many lines we have seen on ours.
    seen: u64,
}

impl Chat {
    /// Looks at our board, at the keyboard and at the connection in turn.
    fn run(&mut self) -> anyhow::Result<()> {
        let keyboard = read_keyboard();
        loop {
            self.show_news();
            if self.connection.wait_disconnected(Duration::ZERO) {
                println!("the other end has left");
                return Ok(());
            }
            match keyboard.recv_timeout(PAUSE) {
                Ok(line) if line == "q" => {
                    self.connection.disconnect()?;
                    return Ok(());
                }
                Ok(line) => self.say(&line)?,
                Err(RecvTimeoutError::Timeout) => {}
                // Nothing more will be typed here: the other end may go on.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(PAUSE),
            }
        }
    }

    /// Writes a line to their board and reads it back until they have seen it.
    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let text = &line.as_bytes()[..line.len().min(BOARD - TEXT)];
        self.written += 1;
        let draft = &self.own.memory;
        draft.write(DRAFT + WRITTEN, &self.written.to_be_bytes());
        draft.write(DRAFT + LENGTH, &(text.len() as u64).to_be_bytes());
        draft.write(DRAFT + TEXT, text);
        // The number last: who sees it change finds the text in its place already.
        let left = !self.write(LENGTH..TEXT + text.len())? || !self.write(WRITTEN..SEEN)?;
        if left || !self.wait_until_seen()? {
            println!("the other end has left; this was not seen any more: {line}");
        }
        Ok(())
    }

    /// READs the board back until its owner has seen our line; false if nobody is there any more.
    fn wait_until_seen(&mut self) -> anyhow::Result<bool> {
        loop {
            let echo = self.own.memory.slice(ECHO..ECHO + BOARD);
            if !self.carry_out(Request::read(self.theirs).data(echo))? {
                return Ok(false);
            }
            if self.number(ECHO + SEEN) == self.written {
                println!("  [seen] {}", self.text(ECHO));
                return Ok(true);
            }
            // They may be waiting for us in the same way.
            self.show_news();
            thread::sleep(PAUSE);
        }
    }

    /// Shows what has been written to our board, and notes on it that we have seen it.
    fn show_news(&mut self) {
        let written = self.number(WRITTEN);
        if written == self.seen {
            return;
        }
        println!("> {}", self.text(0));
        self.seen = written;
        self.own.memory.write(SEEN, &written.to_be_bytes());
    }

    /// Writes a part of the draft to the same place on their board.
    fn write(&self, part: Range<usize>) -> anyhow::Result<bool> {
        let place = Remote {
            address: self.theirs.address + part.start as u64,
            ..self.theirs
        };
        let draft = self.own.memory.slice(DRAFT + part.start..DRAFT + part.end);
        self.carry_out(Request::write(place).data(draft))
    }

    /// False if the connection has ended meanwhile: then everything outstanding is flushed.
    fn carry_out(&self, request: Request) -> anyhow::Result<bool> {
        if self.connection.post(request).is_err() {
            return Ok(false);
        }
        Ok(completed(&self.own.completions)?.status == Status::Success)
    }

    fn number(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.own.memory.read(offset, &mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// The text of the board that begins here.
    fn text(&self, board: usize) -> String {
        // The length was written by the peer: it may be anything.
        let length = self.number(board + LENGTH).min((BOARD - TEXT) as u64) as usize;
        let begin = board + TEXT;
        String::from_utf8_lossy(&self.own.memory.to_vec(begin..begin + length)).into_owned()
    }
}

/// The lines that are typed. Reading blocks, so a thread does it.
fn read_keyboard() -> Receiver<String> {
    let (typed, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if typed.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Private data: the address and the key of a board, in network order.
fn to_bytes(remote: Remote) -> Vec<u8> {
    let key = remote.key.value();
    [&remote.address.to_be_bytes()[..], &key.to_be_bytes()].concat()
}

fn from_bytes(bytes: &[u8]) -> anyhow::Result<Remote> {
    let short = "the other end's private data is too short";
    let (address, rest) = bytes.split_first_chunk().context(short)?;
    let key = rest.first_chunk().context(short)?;
    Ok(Remote {
        address: u64::from_be_bytes(*address),
        key: Key::new(u32::from_be_bytes(*key)),
    })
}

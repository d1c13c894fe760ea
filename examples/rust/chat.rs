//! A chat over one-sided RDMA: each side writes its lines directly into the memory of the peer, and
//! watches its own memory for changes.
//!
//! No receive is posted, and the side that is written to gets no completion. Its CPU takes no part in
//! the transfer. So the writer uses RDMA READ to find out whether its line was read.
//!
//! ```text
//! cargo run --release --example chat -- server
//! cargo run --release --example chat -- client
//! ```
//!
//! Interoperates with the C program of the same name: either can be server or client.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, TIMEOUT, completed, point_to_capture, println};
use rocinante::{
    Access, CompletionQueue, Connection, Connector, Context, Key, Listener, MemoryRegion,
    ProtectionDomain, RemoteMemory, Request, Status,
};

/// The layout of the board that each side has. The peer writes WRITTEN, LENGTH and TEXT. The owner
/// writes SEEN, and the peer reads it.
const WRITTEN: usize = 0;
const SEEN: usize = 8;
const LENGTH: usize = 16;
const TEXT: usize = 24;
const BOARD: usize = 1024;

/// After the local board: the buffer for WRITEs, and the buffer for READs of the remote board.
const DRAFT: usize = BOARD;
const ECHO: usize = 2 * BOARD;

/// Time between two polls of the memory.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Chat by RDMA WRITE into the memory of the peer; `q` quits
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Wait for a client
    Server {
        #[command(flatten)]
        common: Common,
    },
    /// Chat with a server
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    #[command(flatten)]
    device: DeviceOptions,
    /// The server's port in the connection manager
    #[arg(long, default_value_t = 7471)]
    port: u16,
}

fn main() -> anyhow::Result<()> {
    let (context, mut chat) = match Options::parse().role {
        Role::Server { common } => run_server(&common)?,
        Role::Client { server, common } => run_client(&common, server)?,
    };
    println!("connected: type a line, or `q` to quit");
    chat.run()?;
    point_to_capture(&context);
    Ok(())
}

fn run_server(common: &Common) -> anyhow::Result<(Context, Chat)> {
    let context = common.device.open_server("chat-server.pcapng")?;
    let local = Local::new(&context)?;
    let listener = Listener::bind_on(&context, (Ipv4Addr::UNSPECIFIED, common.port))?;
    println!("waiting on port {}", listener.local_address().port());
    let request = listener.wait();
    let remote = from_bytes(request.private_data())?;
    let prepared = request.prepare(local.domain.queue_pair_builder(&local.completions))?;
    let connection = prepared.accept(&to_bytes(local.memory.remote(0)))?;
    Ok((context, local.chat(connection, remote)))
}

fn run_client(common: &Common, server: IpAddr) -> anyhow::Result<(Context, Chat)> {
    let context = common.device.open("chat-client.pcapng", Some(server))?;
    let local = Local::new(&context)?;
    let connector = Connector::resolve_on(&context, SocketAddr::new(server, common.port))?;
    let prepared = connector.prepare(local.domain.queue_pair_builder(&local.completions))?;
    let connection = prepared.connect(&to_bytes(local.memory.remote(0)))?;
    let remote = from_bytes(connection.private_data())?;
    Ok((context, local.chat(connection, remote)))
}

/// The objects that one side creates before it is connected.
struct Local {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Local {
    fn new(context: &Context) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        // The peer writes its lines to the local board, and reads SEEN.
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        Ok(Self {
            completions: context.create_completion_queue(16)?,
            memory: domain.allocate_memory(3 * BOARD, rights)?,
            domain,
        })
    }

    fn chat(self, connection: Connection, remote: RemoteMemory) -> Chat {
        Chat {
            local: self,
            connection,
            remote,
            written: 0,
            seen: 0,
        }
    }
}

/// A connected chat.
struct Chat {
    local: Local,
    connection: Connection,
    remote: RemoteMemory,
    /// Number of lines written to the remote board.
    written: u64,
    /// Number of lines seen on the local board.
    seen: u64,
}

impl Chat {
    /// Polls the local board, the keyboard and the connection in turn.
    fn run(&mut self) -> anyhow::Result<()> {
        let keyboard = read_keyboard();
        loop {
            self.show_new_line();
            if self.connection.wait_disconnected(Duration::ZERO) {
                println!("the peer has disconnected");
                return Ok(());
            }
            match keyboard.recv_timeout(POLL_INTERVAL) {
                Ok(line) if line == "q" => {
                    self.connection.disconnect()?;
                    // Until the peer has answered the disconnect request.
                    self.connection.wait_disconnected(TIMEOUT);
                    return Ok(());
                }
                Ok(line) => {
                    if !self.send_line(&line)? {
                        println!("the peer has disconnected; it did not see this line: {line}");
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // End of input. The peer may still send lines.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Writes a line to the remote board, and reads the board until the peer has seen the line. Returns false if it has
    /// disconnected.
    fn send_line(&mut self, line: &str) -> anyhow::Result<bool> {
        let text = &line.as_bytes()[..line.len().min(BOARD - TEXT)];
        self.written += 1;
        let draft = &self.local.memory;
        draft.write(DRAFT + WRITTEN, &self.written.to_be_bytes());
        draft.write(DRAFT + LENGTH, &(text.len() as u64).to_be_bytes());
        draft.write(DRAFT + TEXT, text);
        // Write the number last: when the peer sees it change, the text is already there.
        Ok(self.write(LENGTH..TEXT + text.len())?
            && self.write(WRITTEN..SEEN)?
            && self.wait_until_seen()?)
    }

    /// READs the remote board until the peer has seen the line. Returns false if it has disconnected.
    fn wait_until_seen(&mut self) -> anyhow::Result<bool> {
        loop {
            let echo = self.local.memory.slice(ECHO..ECHO + BOARD);
            if !self.carry_out(Request::read(self.remote).data(echo))? {
                return Ok(false);
            }
            if self.number(ECHO + SEEN) == self.written {
                println!("  [seen] {}", self.text(ECHO));
                return Ok(true);
            }
            // The peer may be waiting in the same way.
            self.show_new_line();
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Prints a new line on the local board, and marks it as seen.
    fn show_new_line(&mut self) {
        let written = self.number(WRITTEN);
        if written == self.seen {
            return;
        }
        println!("> {}", self.text(0));
        self.seen = written;
        self.local.memory.write(SEEN, &written.to_be_bytes());
    }

    /// Writes a part of the draft to the same offset of the remote board.
    fn write(&self, part: Range<usize>) -> anyhow::Result<bool> {
        let destination = RemoteMemory {
            address: self.remote.address + part.start as u64,
            ..self.remote
        };
        let draft = self
            .local
            .memory
            .slice(DRAFT + part.start..DRAFT + part.end);
        self.carry_out(Request::write(destination).data(draft))
    }

    /// Performs a request. Returns false if the connection has ended, which flushes the request.
    fn carry_out(&self, request: Request) -> anyhow::Result<bool> {
        if self.connection.post_send(request).is_err() {
            return Ok(false);
        }
        Ok(completed(&self.local.completions)?.status == Status::Success)
    }

    fn number(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.local.memory.read(offset, &mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// The text of the board at this offset.
    fn text(&self, board: usize) -> String {
        // The peer wrote the length: do not trust it.
        let length = self.number(board + LENGTH).min((BOARD - TEXT) as u64) as usize;
        let begin = board + TEXT;
        String::from_utf8_lossy(&self.local.memory.to_vec(begin..begin + length)).into_owned()
    }
}

/// Reads lines from the keyboard, in a thread because reading blocks.
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

/// Private data: the address and the key of a board, in network byte order.
fn to_bytes(remote: RemoteMemory) -> Vec<u8> {
    let key = remote.key.value();
    [&remote.address.to_be_bytes()[..], &key.to_be_bytes()].concat()
}

fn from_bytes(bytes: &[u8]) -> anyhow::Result<RemoteMemory> {
    let short = "the peer's private data is too short";
    let (address, rest) = bytes.split_first_chunk().context(short)?;
    let key = rest.first_chunk().context(short)?;
    Ok(RemoteMemory {
        address: u64::from_be_bytes(*address),
        key: Key::new(u32::from_be_bytes(*key)),
    })
}

//! A key-value server with a line protocol, over a byte stream of RDMA or over TCP. Only [`serve`] and [`connect`] know which: the protocol
//! reads and writes bytes.
//!
//! ```text
//! cargo run --release --example key_value -- server --clients 2
//! printf 'set colour blue\nget colour\n' | cargo run --release --example key_value -- client
//! ```
//!
//! With `--tcp`, both sides do the same over TCP.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, println};
use rocinante::{Connector, Listener, Stream, StreamOptions};

/// The longest line. A client that sends no end of line takes no more memory.
const LONGEST_LINE: u64 = 4096;

/// A key-value server with the lines `set KEY VALUE`, `get KEY` and `delete KEY`
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Serve clients
    Server {
        /// How many clients to serve
        #[arg(long, default_value_t = 1)]
        clients: usize,
        #[command(flatten)]
        common: Common,
    },
    /// Send the lines of the input to a server, and print its replies
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
    /// The server's port, in the connection manager or of TCP
    #[arg(long, default_value_t = 7471)]
    port: u16,
    /// Use TCP instead of RDMA
    #[arg(long)]
    tcp: bool,
}

fn main() -> anyhow::Result<()> {
    match Options::parse().role {
        Role::Server { clients, common } => serve(&common, clients),
        Role::Client { server, common } => connect(&common, server),
    }
}

/// Accepts clients, each in a thread of its own.
fn serve(common: &Common, clients: usize) -> anyhow::Result<()> {
    let store = &Store::default();
    if common.tcp {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, common.port))?;
        println!("waiting on port {}", listener.local_addr()?.port());
        return thread::scope(|scope| {
            for _ in 0..clients {
                let (stream, _) = listener.accept()?;
                scope.spawn(move || report(answer_all(&stream, store)));
            }
            Ok(())
        });
    }
    let context = common.device.open_server("key_value-server.pcapng")?;
    let listener = Listener::bind_on(&context, (Ipv4Addr::UNSPECIFIED, common.port))?;
    println!("waiting on port {}", listener.local_address().port());
    thread::scope(|scope| {
        for _ in 0..clients {
            let request = listener.wait();
            // Here, because a client may be slow to confirm the connection.
            scope.spawn(move || {
                let stream = Stream::accept(request).map_err(io::Error::other);
                report(stream.and_then(|stream| answer_all(&stream, store)));
            });
        }
    });
    Ok(())
}

fn connect(common: &Common, server: IpAddr) -> anyhow::Result<()> {
    if common.tcp {
        ask_all(&TcpStream::connect((server, common.port))?)?;
    } else {
        let context = (common.device).open("key_value-client.pcapng", Some(server))?;
        let connector = Connector::resolve_on(&context, (server, common.port))?;
        ask_all(&StreamOptions::default().connect(connector)?)?;
    }
    Ok(())
}

/// What a byte stream can do besides reading and writing.
trait Finish {
    /// Ends what this side writes.
    fn finish(&self) -> io::Result<()>;
}

impl Finish for Stream {
    fn finish(&self) -> io::Result<()> {
        Self::finish(self)
    }
}

impl Finish for TcpStream {
    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// What the clients have set.
#[derive(Default)]
struct Store(Mutex<HashMap<String, String>>);

impl Store {
    fn answer(&self, line: &str) -> String {
        let mut words = line.trim_end().splitn(3, ' ');
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (words.next(), words.next(), words.next()) {
            (Some("set"), Some(key), Some(value)) => {
                values.insert(key.to_owned(), value.to_owned());
                "ok".to_owned()
            }
            (Some("get"), Some(key), None) => match values.get(key) {
                Some(value) => format!("value {value}"),
                None => "none".to_owned(),
            },
            (Some("delete"), Some(key), None) => match values.remove(key) {
                Some(_) => "ok".to_owned(),
                None => "none".to_owned(),
            },
            _ => "error: set KEY VALUE, get KEY or delete KEY".to_owned(),
        }
    }
}

/// Answers each line of a client, until it ends its stream.
fn answer_all<S: Finish>(stream: &S, store: &Store) -> io::Result<()>
where
    for<'s> &'s S: Read + Write,
{
    let (mut lines, mut replies) = (BufReader::new(stream), BufWriter::new(stream));
    let mut line = String::new();
    while (&mut lines).take(LONGEST_LINE).read_line(&mut line)? > 0 {
        writeln!(replies, "{}", store.answer(&line))?;
        line.clear();
        // Replies to requests that came together go together.
        if lines.buffer().is_empty() {
            replies.flush()?;
        }
    }
    replies.flush()?;
    stream.finish()
}

/// Sends the lines of the input, and prints the replies meanwhile.
fn ask_all<S: Finish + Sync>(stream: &S) -> io::Result<()>
where
    for<'s> &'s S: Read + Write,
{
    thread::scope(|scope| {
        let printing = scope.spawn(|| {
            for reply in BufReader::new(stream).lines() {
                println!("{}", reply?);
            }
            Ok(())
        });
        for line in io::stdin().lines() {
            let line = line? + "\n";
            let mut writer = stream;
            writer.write_all(line.as_bytes())?;
        }
        stream.finish()?;
        printing.join().expect("it does not panic")
    })
}

fn report(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        eprintln!("a client is gone: {error}");
    }
}

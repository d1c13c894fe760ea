//! On-device memory: a peer accesses it like host memory, without the host's memory bus. Shows five
//! operations on it, and a lock that many clients share.
//!
//! ```text
//! cargo run --release --example device_memory -- server
//! cargo run --release --example device_memory -- client
//! cargo run --release --example device_memory -- lock --clients 4 --times 100
//! ```
//!
//! Interoperates with the C program of the same name: either can be server or client.

#![forbid(unsafe_code)]

mod client;
mod server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use anyhow::ensure;
use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, describe_gid, gid_index, listen, point_to_capture, println};
use rocinante::Context;

use client::Client;
use server::Server;

/// The layout of the device memory, the same on both sides.
mod layout {
    /// A text that the server writes at the start.
    pub(crate) const GREETING: usize = 0;
    /// The buffer of the receive for a client's SEND.
    pub(crate) const INBOX: usize = 64;
    /// The destination of a client's WRITE.
    pub(crate) const BOARD: usize = 128;
    /// Eight bytes for compare-and-swap.
    pub(crate) const FLAG: usize = 192;
    /// Eight bytes for fetch-and-add.
    pub(crate) const TICKETS: usize = 200;
    /// The lock: 0 if it is free, else the number of its holder.
    pub(crate) const LOCK: usize = 256;
    /// The counter that the lock protects.
    pub(crate) const COUNTER: usize = 264;
    /// The maximum length of each text.
    pub(crate) const TEXT: usize = 64;
}

/// Memory on the device: SEND, READ, WRITE, atomics, and a lock
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Offer device memory to clients, and print it before and after
    Server {
        #[command(flatten)]
        common: Common,
        /// Size of the device memory in bytes
        #[arg(long, default_value_t = 128 * 1024)]
        size: usize,
        /// Number of clients to run_server
        #[arg(long, default_value_t = 1)]
        clients: usize,
    },
    /// Access a server's device memory
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        #[command(flatten)]
        common: Common,
        /// Only increment the counter under the lock, this many times
        #[arg(long, value_name = "TIMES")]
        increment: Option<u64>,
    },
    /// Run a server and clients in one process, and check the counter
    Lock {
        #[command(flatten)]
        common: Common,
        /// Number of clients
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// Number of increments of each client
        #[arg(long, default_value_t = 100)]
        times: u64,
    },
}

/// Options of both sides.
#[derive(Args, Clone)]
struct Common {
    #[command(flatten)]
    device: DeviceOptions,
    /// GID index [default: the first of the server's address family]
    #[arg(short = 'g', long, value_name = "INDEX")]
    gid_index: Option<u8>,
    /// The TCP port for the exchange of connection parameters
    #[arg(long, default_value_t = 18701)]
    port: u16,
}

impl Common {
    fn open(&self, capture: &str, peer: Option<IpAddr>) -> anyhow::Result<(Context, u8)> {
        Ok(self.described(self.device.open(capture, peer)?, peer))
    }

    fn open_server(&self, capture: &str) -> anyhow::Result<(Context, u8)> {
        Ok(self.described(self.device.open_server(capture)?, None))
    }

    /// The device and the GID index to use, which it prints.
    fn described(&self, context: Context, peer: Option<IpAddr>) -> (Context, u8) {
        let index = gid_index(&context, self.gid_index, peer);
        println!("device   {}", describe_gid(&context, index));
        (context, index)
    }
}

fn main() -> anyhow::Result<()> {
    match Options::parse().role {
        Role::Server {
            common,
            size,
            clients,
        } => run_server(&common, size, clients),
        Role::Client {
            server,
            common,
            increment,
        } => run_client(&common, server, increment),
        Role::Lock {
            common,
            clients,
            times,
        } => run_lock(&common, clients, times),
    }
}

fn run_server(common: &Common, size: usize, clients: usize) -> anyhow::Result<()> {
    let (context, gid_index) = common.open_server("device_memory-server.pcapng")?;
    let server = Server::new(&context, gid_index, size)?;
    println!("memory   {size} bytes on the device, registered: addresses begin at 0");
    server.show();
    let listener = listen(common.port)?;
    let port = listener.local_addr()?.port();
    println!("server   waits for {clients} client(s) on TCP port {port}");
    server.serve(&listener, clients)?;
    println!("\nAfterwards:");
    server.show();
    point_to_capture(&context);
    Ok(())
}

fn run_client(common: &Common, server: IpAddr, increment: Option<u64>) -> anyhow::Result<()> {
    let (context, gid_index) = common.open("device_memory-client.pcapng", Some(server))?;
    let address = SocketAddr::new(server, common.port);
    let mut client = Client::connect(&context, gid_index, address)?;
    match increment {
        None => client.try_everything()?,
        Some(times) => {
            let retries = client.increment(times)?;
            println!(
                "client   added 1 to the counter {times} times; retried the lock {retries} times"
            );
        }
    }
    client.end()?;
    point_to_capture(&context);
    Ok(())
}

/// Each client increments the counter by READ and WRITE. Without the lock, most increments would be lost.
fn run_lock(common: &Common, clients: usize, times: u64) -> anyhow::Result<()> {
    let (context, gid_index) = common.open("device_memory-lock.pcapng", None)?;
    let server = Server::new(&context, gid_index, 4096)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    println!("lock     {clients} clients, each adds 1 to the same counter {times} times");
    let count = || -> anyhow::Result<u64> {
        let mut client = Client::connect(&context, gid_index, address)?;
        let retries = client.increment(times)?;
        client.end()?;
        Ok(retries)
    };
    let retries = thread::scope(|scope| -> anyhow::Result<u64> {
        let counting: Vec<_> = (0..clients).map(|_| scope.spawn(count)).collect();
        server.serve(&listener, clients)?;
        let retries = counting.into_iter().map(|it| it.join().expect("no panic"));
        retries.sum()
    })?;
    let (sum, expected) = (server.counter(), clients as u64 * times);
    println!("lock     retried {retries} times");
    println!("counter  {sum}: {clients} x {times} = {expected}");
    point_to_capture(&context);
    ensure!(sum == expected, "the lock did not hold");
    Ok(())
}

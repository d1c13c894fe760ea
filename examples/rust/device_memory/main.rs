//! Memory on the device itself: a peer reaches it like any other, and the host's own memory bus has
//! nothing to do with it. Five operations on it, and a lock that many clients share.
//!
//! ```text
//! cargo run --release --example device_memory -- server
//! cargo run --release --example device_memory -- client
//! cargo run --release --example device_memory -- lock --clients 4 --times 100
//! ```
//!
//! The C program of the same name speaks the same language: either can be server or client.

#![forbid(unsafe_code)]

mod client;
mod server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use anyhow::ensure;
use clap::{Args, Parser, Subcommand};
use examples::{DeviceOptions, describe_gid, gid_index, listen, point_to_capture};
use rocinante::Context;

use client::Client;
use server::Server;

/// Where things lie in the device memory. Both ends must know.
mod layout {
    /// What the server has written.
    pub(crate) const GREETING: usize = 0;
    /// Where a client's SEND lands.
    pub(crate) const INBOX: usize = 64;
    /// Where a client WRITEs.
    pub(crate) const BOARD: usize = 128;
    /// Eight bytes for compare-and-swap.
    pub(crate) const FLAG: usize = 192;
    /// Eight bytes for fetch-and-add.
    pub(crate) const TICKETS: usize = 200;
    /// The lock: 0 when it is free, else the number of its holder.
    pub(crate) const LOCK: usize = 256;
    /// What the lock protects.
    pub(crate) const COUNTER: usize = 264;
    /// How long each of the texts can be.
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
    /// Offer device memory to clients, and show what they did with it
    Server {
        #[command(flatten)]
        place: Place,
        /// How much device memory, in bytes
        #[arg(long, default_value_t = 128 * 1024)]
        size: usize,
        /// How many clients to serve
        #[arg(long, default_value_t = 1)]
        clients: usize,
    },
    /// Use a server's device memory
    Client {
        /// The server
        #[arg(default_value_t = Ipv4Addr::LOCALHOST.into())]
        server: IpAddr,
        #[command(flatten)]
        place: Place,
        /// Only increment the counter under the lock, so often
        #[arg(long, value_name = "TIMES")]
        increment: Option<u64>,
    },
    /// A server and clients in one process: is the sum right?
    Lock {
        #[command(flatten)]
        place: Place,
        /// How many clients
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// How often each increments the counter
        #[arg(long, default_value_t = 100)]
        times: u64,
    },
}

/// Where to be.
#[derive(Args, Clone)]
struct Place {
    #[command(flatten)]
    device: DeviceOptions,
    /// Which entry of the GID table [default: the first of the server's address family]
    #[arg(short = 'g', long, value_name = "INDEX")]
    gid_index: Option<u8>,
    /// The TCP port at which the two ends introduce themselves
    #[arg(long, default_value_t = 18701)]
    port: u16,
}

impl Place {
    fn open(&self, capture: &str, peer: Option<IpAddr>) -> anyhow::Result<(Context, u8)> {
        let context = self.device.open(capture, peer)?;
        let index = gid_index(&context, self.gid_index, peer);
        println!("device   {}", describe_gid(&context, index));
        Ok((context, index))
    }
}

fn main() -> anyhow::Result<()> {
    match Options::parse().role {
        Role::Server {
            place,
            size,
            clients,
        } => serve(&place, size, clients),
        Role::Client {
            server,
            place,
            increment,
        } => visit(&place, server, increment),
        Role::Lock {
            place,
            clients,
            times,
        } => count_together(&place, clients, times),
    }
}

fn serve(place: &Place, size: usize, clients: usize) -> anyhow::Result<()> {
    let (context, gid_index) = place.open("device_memory-server.pcapng", None)?;
    let server = Server::new(&context, gid_index, size)?;
    println!("memory   {size} bytes on the device, registered: addresses begin at 0");
    server.show();
    let listener = listen(place.port)?;
    let port = listener.local_addr()?.port();
    println!("server   waits for {clients} client(s) at TCP port {port}");
    server.serve(&listener, clients)?;
    println!("\nAfterwards:");
    server.show();
    point_to_capture(&context);
    Ok(())
}

fn visit(place: &Place, server: IpAddr, increment: Option<u64>) -> anyhow::Result<()> {
    let (context, gid_index) = place.open("device_memory-client.pcapng", Some(server))?;
    let address = SocketAddr::new(server, place.port);
    let mut client = Client::connect(&context, gid_index, address)?;
    match increment {
        None => client.try_everything()?,
        Some(times) => {
            let waits = client.increment(times)?;
            println!(
                "client   added 1 to the counter {times} times; found the lock taken {waits} times"
            );
        }
    }
    client.end()?;
    point_to_capture(&context);
    Ok(())
}

/// Every client adds 1 so often by READ and WRITE, which would lose most of it without the lock.
fn count_together(place: &Place, clients: usize, times: u64) -> anyhow::Result<()> {
    let (context, gid_index) = place.open("device_memory-lock.pcapng", None)?;
    let server = Server::new(&context, gid_index, 4096)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    println!("lock     {clients} clients, each adds 1 to the same counter {times} times");
    let count = || -> anyhow::Result<u64> {
        let mut client = Client::connect(&context, gid_index, address)?;
        let waits = client.increment(times)?;
        client.end()?;
        Ok(waits)
    };
    let waits = thread::scope(|scope| -> anyhow::Result<u64> {
        let counting: Vec<_> = (0..clients).map(|_| scope.spawn(count)).collect();
        server.serve(&listener, clients)?;
        let waits = counting.into_iter().map(|it| it.join().expect("no panic"));
        waits.sum()
    })?;
    let (sum, expected) = (server.counter(), clients as u64 * times);
    println!("lock     found taken {waits} times");
    println!("counter  {sum}: {clients} x {times} = {expected}");
    point_to_capture(&context);
    ensure!(sum == expected, "the lock did not hold");
    Ok(())
}

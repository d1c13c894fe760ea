//! The same echo with three ways to wait: blocking calls, a completion channel with epoll, and `async`.
//!
//! With `async`, each request is a future; the other two take completions from a queue.
//!
//! ```text
//! cargo run --release --example sync_async
//! ```

#![forbid(unsafe_code)]

mod awaiting;
mod blocking;
mod side;
mod with_epoll;

use std::time::Instant;

use clap::{Parser, ValueEnum};
use examples::{DeviceOptions, describe_gid, gid_index, point_to_capture, println};
use rocinante::Context;

/// The same echo with blocking calls, with epoll, and with async
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    device: DeviceOptions,
    /// Only this way [default: all three]
    #[arg(value_enum)]
    way: Option<Way>,
    /// Number of round trips
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// Two threads that block until their next completion
    Blocking,
    /// One thread that waits for the descriptors of two completion channels
    Epoll,
    /// Two tasks on one thread that await their next completion
    Async,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let context = options.device.open("sync_async.pcapng", None)?;
    let index = gid_index(&context, None, None);
    println!("device    {}", describe_gid(&context, index));
    let ways = match options.way {
        Some(way) => vec![way],
        None => vec![Way::Blocking, Way::Epoll, Way::Async],
    };
    for way in ways {
        measure(way, &context, options.rounds)?;
    }
    point_to_capture(&context);
    Ok(())
}

/// Runs the echo between a client and a server in this process.
fn measure(way: Way, context: &Context, rounds: u32) -> anyhow::Result<()> {
    let pair = || side::connected_pair(context);
    let began = Instant::now();
    let name = match way {
        Way::Blocking => {
            let (client, server) = pair()?;
            blocking::echo(&client, &server, rounds)?;
            "blocking"
        }
        Way::Epoll => {
            let (client, server) = pair()?;
            with_epoll::echo(&client, &server, rounds)?;
            "epoll"
        }
        Way::Async => {
            awaiting::echo(context, rounds)?;
            "async"
        }
    };
    let each = began.elapsed() / rounds.max(1);
    println!("{name:<9} {rounds} messages came back unchanged, one round trip in {each:.1?}");
    Ok(())
}

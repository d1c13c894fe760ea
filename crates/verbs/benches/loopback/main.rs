//! How fast the device is over loopback, beside TCP and plain UDP.
//!
//! Two processes: this one, and a copy of itself that it starts as the peer. Every figure stands
//! beside one of another protocol over the same interface; both take turns within one run, and
//! ratios are of medians with the smallest and largest beside them. The goal is printed behind a figure, and whether it is met.

#[cfg(feature = "async")]
mod awaiting;
mod bandwidth;
mod bare_packets;
mod costs;
mod in_process;
mod latency;
mod memory;
mod peer;
mod rate;
mod requests;
mod spread;
mod threads;

use peer::{Peer, Way};
use rocinante::PathMtu;

/// The tables that can be chosen by name.
const TABLES: [&str; 13] = [
    "bandwidth",
    "mtu",
    "bare",
    "rate",
    "latency",
    "events",
    "async",
    "requests",
    "process",
    "threads",
    "memory",
    "opening",
    "idle",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["peer", path_mtu] => peer::run(path_mtu),
        ["client", count, creator, operation, size] => {
            threads::be_client([count, creator, operation, size]);
        }
        ["server", count, creator, operation, size] => {
            threads::be_server([count, creator, operation, size]);
        }
        ["request-server", connections, size] => requests::be_server(connections, size),
        ["open"] => costs::print_opening(),
        _ => print_tables(&words),
    }
}

/// Cargo adds flags of its own; names choose tables.
fn print_tables(chosen: &[&str]) {
    let named = |table: &str| chosen.contains(&table);
    // Only by name: it disturbs everything else on the machine.
    let all = !TABLES.into_iter().chain(["busy"]).any(named);
    let ways = [("sockets", Way::Sockets), ("default", Way::Shortcut)];
    let both = !ways.iter().any(|(name, _)| named(name));
    let chosen = ways.iter().filter(|(name, _)| both || named(name));
    for way in chosen.map(|(_, way)| *way) {
        if all || named("bandwidth") {
            bandwidth::run(&mut Peer::start(way), way, named);
        }
        if way == Way::Sockets && (all || named("mtu")) {
            let mut peer = Peer::start_with(way, Some(PathMtu::Mtu1024));
            bandwidth::run_small_packets(&mut peer, way, named);
        }
        if way == Way::Sockets && (all || named("bare")) {
            bare_packets::run(&mut Peer::start(way));
        }
        if all || named("rate") {
            rate::run(&mut Peer::start(way), way);
        }
        if all || named("latency") {
            latency::run(&mut Peer::start(way), way);
        }
        if all || named("events") {
            latency::run_events(&mut Peer::start(way), way);
        }
        if all || named("async") {
            run_async(way);
        }
        if all || named("requests") {
            requests::run(way);
        }
        if all || named("threads") {
            threads::run(way);
        }
        if named("busy") {
            latency::run_busy(&mut Peer::start(way), way);
        }
        if all || named("idle") {
            costs::run_idle(way);
        }
    }
    if all || named("process") {
        in_process::run();
    }
    if all || named("opening") {
        costs::run_opening();
    }
    if all || named("memory") {
        memory::run();
    }
}

#[cfg(feature = "async")]
fn run_async(way: Way) {
    awaiting::run(way);
}

#[cfg(not(feature = "async"))]
fn run_async(_: Way) {
    println!("tasks: left out, because they need `--features async`\n");
}

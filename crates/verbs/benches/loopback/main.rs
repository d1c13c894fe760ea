//! How fast the device is over loopback, beside TCP and plain UDP.
//!
//! Two processes: this one, and a copy of itself that it starts as the peer. Every figure stands
//! beside one of another protocol over the same interface; both take turns within one run, and
//! ratios are of medians with the smallest and largest beside them.

mod bandwidth;
mod in_process;
mod latency;
mod memory;
mod peer;
mod spread;
mod threads;

use peer::Way;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("peer") {
        return peer::run();
    }
    if let [_, role, count, shared] = &std::env::args().collect::<Vec<_>>()[..]
        && role == "target"
    {
        return threads::be_target(count, shared);
    }
    // Cargo adds flags of its own; names choose tables.
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let named = |table: &str| chosen.iter().any(|argument| argument == table);
    let all = ![
        "bandwidth",
        "latency",
        "events",
        "busy",
        "memory",
        "process",
        "threads",
    ]
    .into_iter()
    .any(named);
    for way in [Way::Sockets, Way::Shortcut] {
        let mut peer = peer::Peer::start(way);
        if all || named("bandwidth") {
            bandwidth::run(&mut peer, way, named);
        }
        if all || named("latency") {
            latency::run(&mut peer, way);
        }
        drop(peer);
        if all || named("events") {
            latency::run_events(&mut peer::Peer::start(way), way);
        }
        // Only by name: it disturbs everything else on the machine.
        if named("busy") {
            latency::run_busy(&mut peer::Peer::start(way), way);
        }
    }
    if all || named("process") {
        in_process::run();
    }
    if all || named("threads") {
        threads::run();
    }
    if all || named("memory") {
        memory::run();
    }
}

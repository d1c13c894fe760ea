//! The cost of a packet with few and with many connections.

use std::time::Instant;

use wire::PathMtu;

use crate::Spread;
use crate::pair::Pair;

const ROUNDS: usize = 9;
const MESSAGES: usize = 20_000;
const BYTES: u32 = 64;

pub(crate) fn run() {
    println!("scaling: RDMA WRITEs of {BYTES} bytes, ns per packet on both ends together");
    println!(
        "{:>12}  {:>26}  {:>26}",
        "connections", "one of them busy", "all busy, 16 each in turn"
    );
    let mut first: Option<(f64, f64)> = None;
    for connections in [1, 100, 10_000] {
        let mut pair = Pair::connected(PathMtu::Mtu1024, connections, BYTES as usize);
        let one = measure(&mut pair, 1);
        let all = measure(&mut pair, connections);
        let (base_one, base_all) = *first.get_or_insert((one.median, all.median));
        println!(
            "{connections:>12}  {one:>26}  {all:>26}   x{:.2}  x{:.2}",
            one.median / base_one,
            all.median / base_all
        );
    }
    println!("x: ratio to the first row; the goal is at most x1.50\n");
}

/// Nanoseconds per packet when `busy` connections take turns.
fn measure(pair: &mut Pair, busy: usize) -> Spread {
    run_messages(pair, busy);
    Spread::of((0..ROUNDS).map(|_| run_messages(pair, busy)).collect())
}

fn run_messages(pair: &mut Pair, busy: usize) -> f64 {
    let packets = pair.packets;
    let start = Instant::now();
    for turn in 0..MESSAGES / 16 {
        for _ in 0..16 {
            pair.post_write(turn % busy, BYTES);
        }
        pair.transfer_all(start);
        pair.drain_completions();
    }
    let elapsed = start.elapsed().as_nanos() as f64;
    elapsed / (pair.packets - packets) as f64
}

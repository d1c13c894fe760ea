//! Bulk data beside TCP.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::time::Instant;

use rocinante::{Request, Status};

use crate::peer::{Peer, Way};
use crate::spread::{Goal, in_turn};

const BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;

/// The operations that are `named`, or all.
pub(crate) fn run(peer: &mut Peer, way: Way, named: impl Fn(&str) -> bool) {
    println!("bandwidth {way}, one connection, two processes: GB/s, median (min-max)");
    let long = match way {
        Way::Sockets => Goal::AtLeast(1.0),
        Way::Shortcut => Goal::AtLeast(1.5),
    };
    compare(peer, long, &[4 << 10, 64 << 10, 1 << 20], named);
}

/// As on ordinary Ethernet.
pub(crate) fn run_small_packets(peer: &mut Peer, way: Way, named: impl Fn(&str) -> bool) {
    println!("bandwidth {way}, path MTU 1024: GB/s, median (min-max)");
    compare(peer, Goal::AtLeast(0.8), &[64 << 10, 1 << 20], named);
}

fn compare(peer: &mut Peer, goal: Goal, sizes: &[usize], named: impl Fn(&str) -> bool) {
    let operations = ["write", "read", "send"];
    let all = !operations.into_iter().any(&named);
    println!("{:>18}  {:>25}  {:>25}  ratio  goal", "", "RDMA", "TCP");
    for name in operations.into_iter().filter(|name| all || named(name)) {
        for &size in sizes {
            // Both closures need the peer, one after the other.
            let peer = RefCell::new(&mut *peer);
            let ours = || rdma(&mut peer.borrow_mut(), name, size);
            let theirs = || tcp(&mut peer.borrow_mut(), size);
            let (rdma, tcp) = in_turn(ROUNDS, ours, theirs);
            let ratio = rdma.median / tcp.median;
            let goal = if size < 64 << 10 { Goal::None } else { goal };
            println!(
                "{name:>8} {:>5} KiB  {rdma}  {tcp}  {ratio:5.2}  {}",
                size >> 10,
                goal.for_figure(ratio)
            );
        }
    }
    println!();
}

fn rdma(peer: &mut Peer, name: &str, size: usize) -> f64 {
    let count = BYTES / size;
    match name {
        "send" => peer.be(&format!("receive {count} {size}")),
        _ => peer.be("target"),
    }
    let depth = ((4 << 20) / size).clamp(2, 64);
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < count {
        while posted < count && posted - done < depth {
            let data = peer.end.memory.slice(0..size);
            peer.end.post_send(match name {
                "write" => Request::write(peer.remote).data(data),
                "read" => Request::read(peer.remote).data(data),
                _ => Request::send().data(data),
            });
            posted += 1;
        }
        while let Some(completion) = peer.end.completions.poll() {
            assert_eq!(completion.status, Status::Success);
            done += 1;
        }
    }
    BYTES as f64 / start.elapsed().as_secs_f64() / 1e9
}

pub(crate) fn tcp(peer: &mut Peer, size: usize) -> f64 {
    peer.be(&format!("sink {BYTES}"));
    let buffer = vec![1; size];
    let start = Instant::now();
    for _ in 0..BYTES / size {
        peer.tcp.write_all(&buffer).expect("it listens");
    }
    peer.tcp.read_exact(&mut [0]).expect("it answers");
    BYTES as f64 / start.elapsed().as_secs_f64() / 1e9
}

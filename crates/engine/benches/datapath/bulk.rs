//! 1 MiB RDMA WRITEs beside a plain copy and CRC of the same bytes.

use std::hint::black_box;
use std::time::Instant;

use wire::PathMtu;

use crate::Spread;
use crate::pair::Pair;

const MESSAGE: usize = 1 << 20;
const MESSAGES: usize = 64;
const ROUNDS: usize = 15;
const GIGA: f64 = 1e9;

pub(crate) fn run() {
    println!("bulk: {MESSAGES} RDMA WRITEs of 1 MiB from device to device, GB/s, median (min-max)");
    println!(
        "{:>6}  {:>24}  {:>24}  {:>24}  {:>6}  {:>6}",
        "MTU", "engine", "copy+CRC once", "copy+CRC at both ends", "ratio", "ratio"
    );
    for mtu in [
        PathMtu::Mtu256,
        PathMtu::Mtu1024,
        PathMtu::Mtu2048,
        PathMtu::Mtu4096,
    ] {
        let figures = measure(mtu);
        println!(
            "{:>6}  {:>24}  {:>24}  {:>24}  {:>6.2}  {:>6.2}",
            mtu.bytes(),
            figures.engine,
            figures.once,
            figures.both_ends,
            figures.engine.median / figures.once.median,
            figures.engine.median / figures.both_ends.median,
        );
    }
    println!("ratios: engine to the two columns before; at least 0.60 of the first is the goal at MTU 4096\n");
}

struct Figures {
    engine: Spread,
    once: Spread,
    both_ends: Spread,
}

fn measure(mtu: PathMtu) -> Figures {
    let mut pair = Pair::connected(mtu, 1, MESSAGE);
    let pattern: Vec<u8> = (0..MESSAGE).map(|index| (index % 251) as u8).collect();
    pair.client.regions[0].0.write(0, &pattern);
    let (mut target, mut bounce) = (vec![0; MESSAGE], vec![0; mtu.bytes()]);
    write_all(&mut pair);
    assert_eq!(pair.server.regions[0].0.to_vec(), pattern);

    let (mut engine, mut once, mut both_ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        engine.push(rate(|| write_all(&mut pair)));
        once.push(rate(|| {
            for _ in 0..MESSAGES {
                copy_and_check(&pattern, &mut target, mtu.bytes());
            }
        }));
        both_ends.push(rate(|| {
            for _ in 0..MESSAGES {
                copy_and_check_twice(&pattern, &mut bounce, &mut target);
            }
        }));
    }
    Figures {
        engine: Spread::of(engine),
        once: Spread::of(once),
        both_ends: Spread::of(both_ends),
    }
}

/// Gigabytes per second of moving all messages once.
fn rate(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    (MESSAGES * MESSAGE) as f64 / start.elapsed().as_secs_f64() / GIGA
}

fn write_all(pair: &mut Pair) {
    let now = Instant::now();
    for _ in 0..MESSAGES {
        pair.post_write(0, MESSAGE as u32);
        pair.settle(now);
    }
    assert_eq!(pair.drain_completions(), MESSAGES);
}

/// The least that one end must do: copy each packet's data and compute its CRC.
fn copy_and_check(source: &[u8], target: &mut [u8], piece: usize) {
    for (from, to) in source.chunks(piece).zip(target.chunks_mut(piece)) {
        to.copy_from_slice(from);
        black_box(crc32fast::hash(to));
    }
}

/// The least that both ends must do: into the packet and out of it, with a CRC on each side.
fn copy_and_check_twice(source: &[u8], packet: &mut [u8], target: &mut [u8]) {
    let piece = packet.len();
    for (from, to) in source.chunks(piece).zip(target.chunks_mut(piece)) {
        packet.copy_from_slice(from);
        black_box(crc32fast::hash(packet));
        black_box(crc32fast::hash(black_box(packet)));
        to.copy_from_slice(packet);
    }
}

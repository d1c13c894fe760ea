//! RDMA WRITEs of 1 MiB, compared with a plain copy and CRC of the same bytes.
//!
//! A message crosses two devices. Each must copy every byte and compute its CRC once. So there are
//! two references: one copy plus CRC of the message for one device, and a copy plus CRC into a
//! packet and out of it for both devices in one thread.

use std::hint::black_box;
use std::time::{Duration, Instant};

use wire::PathMtu;

use crate::Spread;
use crate::pair::{Pair, TimeSpent};

const MESSAGE: usize = 1 << 20;
const MESSAGES: usize = 64;
const ROUNDS: usize = 15;
const GIGA: f64 = 1e9;

pub(crate) fn run() {
    println!("bulk: {MESSAGES} RDMA WRITEs of 1 MiB from device to device in one thread");
    println!("GB/s, median (min-max) of {ROUNDS} rounds in turn; ratios of the medians");
    for mtu in [
        PathMtu::Mtu256,
        PathMtu::Mtu1024,
        PathMtu::Mtu2048,
        PathMtu::Mtu4096,
    ] {
        print(mtu, &Figures::measure(mtu));
    }
    println!("the goal is a ratio of at least 0.60 at path MTU 4096\n");
}

/// The rates of all rounds, in GB/s.
struct Figures {
    sending: Vec<f64>,
    receiving: Vec<f64>,
    together: Vec<f64>,
    copy_once: Vec<f64>,
    copy_twice: Vec<f64>,
}

impl Figures {
    fn measure(mtu: PathMtu) -> Self {
        let mut pair = Pair::connected(mtu, 1, MESSAGE);
        let pattern: Vec<u8> = (0..MESSAGE).map(|index| (index % 251) as u8).collect();
        pair.client.regions[0].0.write(0, &pattern);
        let (mut target, mut packet) = (vec![0; MESSAGE], vec![0; mtu.bytes()]);
        write_all(&mut pair);
        assert_eq!(pair.server.regions[0].0.to_vec(), pattern);

        let mut figures = Self {
            sending: Vec::new(),
            receiving: Vec::new(),
            together: Vec::new(),
            copy_once: Vec::new(),
            copy_twice: Vec::new(),
        };
        for _ in 0..ROUNDS {
            pair.time_spent = TimeSpent::default();
            let together = timed(|| write_all(&mut pair));
            figures.together.push(rate(together));
            figures.sending.push(rate(pair.time_spent.sending));
            figures.receiving.push(rate(pair.time_spent.receiving));
            let once = timed(|| copy_once(&pattern, &mut target, mtu.bytes()));
            figures.copy_once.push(rate(once));
            let twice = timed(|| copy_twice(&pattern, &mut packet, &mut target));
            figures.copy_twice.push(rate(twice));
        }
        figures
    }
}

fn print(mtu: PathMtu, figures: &Figures) {
    let spread = |samples: &Vec<f64>| Spread::of(samples.clone());
    let (once, twice) = (spread(&figures.copy_once), spread(&figures.copy_twice));
    println!("path MTU {}", mtu.bytes());
    println!("  one end:   copy + CRC     {once}");
    for (name, samples) in [
        ("sending", &figures.sending),
        ("receiving", &figures.receiving),
    ] {
        let end = spread(samples);
        println!(
            "             {name:<14} {end}   {:.2}",
            end.median / once.median
        );
    }
    let together = spread(&figures.together);
    println!("  both ends: copy + CRC     {twice}");
    println!(
        "             engine         {together}   {:.2}",
        together.median / twice.median
    );
}

fn timed(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Gigabytes per second of all messages in this time.
fn rate(elapsed: Duration) -> f64 {
    (MESSAGES * MESSAGE) as f64 / elapsed.as_secs_f64() / GIGA
}

fn write_all(pair: &mut Pair) {
    let now = Instant::now();
    for _ in 0..MESSAGES {
        pair.post_write(0, MESSAGE as u32);
        pair.transfer_all(now);
    }
    assert_eq!(pair.drain_completions(), MESSAGES);
}

/// The minimum work of one device: copy the data of each packet and compute its CRC.
fn copy_once(source: &[u8], target: &mut [u8], piece: usize) {
    for _ in 0..MESSAGES {
        for (from, to) in source.chunks(piece).zip(target.chunks_mut(piece)) {
            to.copy_from_slice(from);
            black_box(crc32fast::hash(to));
        }
    }
}

/// The minimum work of both devices: copy into the packet and out of it, with a CRC on each side.
fn copy_twice(source: &[u8], packet: &mut [u8], target: &mut [u8]) {
    let piece = packet.len();
    for _ in 0..MESSAGES {
        for (from, to) in source.chunks(piece).zip(target.chunks_mut(piece)) {
            packet.copy_from_slice(from);
            black_box(crc32fast::hash(packet));
            black_box(crc32fast::hash(black_box(packet)));
            to.copy_from_slice(packet);
        }
    }
}

//! Runs the fuzz targets with a given number of packets, on a stable compiler and without
//! instrumentation: faster than libFuzzer, but without coverage. Inputs are the corpus of libFuzzer
//! (`--corpus`) and the seeds of the repository, with random damage.
//!
//! `cargo run --release -p sim --example bulk_fuzz -- --packets 1000000000`
#![forbid(unsafe_code)]

#[path = "../../../fuzz/src/entry_points.rs"]
pub mod entry_points;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use sim::rng::Rng;

/// Runs the fuzz targets one after the other.
#[derive(Parser)]
struct Arguments {
    /// Number of packets in total.
    #[arg(long, default_value_t = 10_000_000)]
    packets: u64,
    /// A directory with a directory of inputs for each target.
    #[arg(long, default_value = "fuzz/corpus")]
    corpus: PathBuf,
    /// Number of threads.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Seed of the random damage.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Runs a target with an input; returns the number of packets in it.
type Feed = fn(&[u8]) -> u64;

/// Each target and its share of the packets, in percent. A packet to a device takes a hundred times as
/// long as a parsed packet.
const TARGETS: [(&str, Feed, u64); 7] = [
    ("parse", |bytes| one(entry_points::parse, bytes), 24),
    ("roundtrip", |bytes| one(entry_points::roundtrip, bytes), 24),
    ("frame", |bytes| one(entry_points::frame, bytes), 24),
    (
        "cm_message",
        |bytes| one(entry_points::cm_message, bytes),
        14,
    ),
    ("engine_hostile", sim::fuzz_device::feed, 2),
    ("host", sim::fuzz_host::feed, 2),
    ("cm_manager", sim::fuzz_manager::feed, 10),
];

fn one(feed: fn(&[u8]), bytes: &[u8]) -> u64 {
    feed(bytes);
    1
}

/// The maximum length of an input.
const MAX_LENGTH: usize = 4096;

thread_local! {
    /// The current input. It is saved if the target panics.
    static CURRENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn main() {
    let arguments = Arguments::parse();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let path = format!("broken-{}", std::process::id());
        CURRENT
            .with_borrow(|bytes| fs::write(&path, bytes))
            .expect("the input can be written");
        eprintln!("the input is in {path}");
        default(info);
    }));
    for (name, feed, percent) in TARGETS {
        let inputs = inputs(name, &arguments.corpus);
        campaign(
            name,
            feed,
            arguments.packets * percent / 100,
            &inputs,
            &arguments,
        );
    }
}

fn inputs(target: &str, corpus: &Path) -> Vec<Vec<u8>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut inputs = Vec::new();
    for directory in [seeds.join(target), corpus.join(target)] {
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        inputs.extend(files.filter_map(|file| fs::read(file.path()).ok()));
    }
    inputs.sort();
    inputs.push(Vec::new());
    inputs
}

/// Runs one target until it has received its packets.
fn campaign(name: &str, feed: Feed, packets: u64, inputs: &[Vec<u8>], of: &Arguments) {
    let fed = AtomicU64::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for thread in 0..of.threads {
            let (fed, mut rng) = (&fed, Rng::new(of.seed << 8 | thread));
            scope.spawn(move || {
                while fed.load(Ordering::Relaxed) < packets {
                    let input = damaged(inputs, &mut rng);
                    CURRENT.with_borrow_mut(|current| current.clone_from(&input));
                    let taken = feed(&input).max(1);
                    entry_points::count(taken);
                    fed.fetch_add(taken, Ordering::Relaxed);
                }
            });
        }
    });
    let fed = fed.load(Ordering::Relaxed);
    let rate = fed as f64 / begin.elapsed().as_secs_f64() / 1e6;
    println!(
        "{name:>16} {fed:>12} packets, {rate:.3} million a second, {} inputs",
        inputs.len()
    );
}

/// An input with some bytes changed, moved, repeated or removed.
fn damaged(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = inputs[rng.below(inputs.len())].clone();
    for _ in 0..rng.below(8) {
        let position = rng.below(bytes.len() + 1);
        let length = rng.below(64).min(bytes.len() - position);
        match rng.below(6) {
            0 | 1 if position < bytes.len() => bytes[position] ^= 1 << rng.below(8),
            2 if position < bytes.len() => bytes[position] = rng.below(256) as u8,
            3 => drop(bytes.drain(position..position + length)),
            4 => {
                let other = &inputs[rng.below(inputs.len())];
                let from = rng.below(other.len() + 1);
                let taken = other[from..].iter().copied().take(64);
                bytes.splice(position..position, taken);
            }
            _ => {
                let noise: Vec<u8> = (0..1 + rng.below(32))
                    .map(|_| rng.below(256) as u8)
                    .collect();
                bytes.splice(position..position, noise);
            }
        }
    }
    bytes.truncate(MAX_LENGTH);
    bytes
}

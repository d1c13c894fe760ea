//! Two queue pairs of one process, beside a copy of the same bytes.

use std::hint::black_box;
use std::time::Instant;

use rocinante::{Access, Context, MemoryRegion, OpenOptions, QueuePair, Request, Shortcut, Status};

use crate::spread::{Goal, in_turn, take_turns};

const ROUNDS: usize = 9;
const LARGE: usize = 64 << 10;
const LARGE_WRITES: usize = 2_000;
const SMALL: usize = 8;
const SMALL_WRITES: usize = 20_000;

/// A connection of a device with itself.
struct Loop {
    completions: rocinante::CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    left: QueuePair,
    _right: QueuePair,
}

impl Loop {
    fn open(address: &str, in_memory: bool) -> Self {
        let options = OpenOptions {
            shortcut: if in_memory {
                Shortcut::Auto
            } else {
                Shortcut::Never
            },
            ..OpenOptions::default()
        };
        let context = Context::open_with(address, &options).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(16).expect("room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let allocate = || domain.allocate_memory(LARGE, access).expect("room");
        let (source, target) = (allocate(), allocate());
        let make = || {
            domain
                .queue_pair_builder(&completions)
                .depth(4, 4)
                .create_reliable()
                .expect("room")
        };
        let (left, right) = (make(), make());
        let (here, there) = (left.endpoint(), right.endpoint());
        Self {
            completions,
            source,
            target,
            left: left.connect(there).expect("a peer"),
            _right: right.connect(here).expect("a peer"),
        }
    }

    /// Writes one after the other, each from post to completion. Returns the seconds for one.
    fn write(&self, length: usize, times: usize) -> f64 {
        let start = Instant::now();
        for _ in 0..times {
            let request = Request::write(self.target.remote(0)).data(self.source.slice(..length));
            self.left.post_send(request).expect("room");
            let done = loop {
                if let Some(done) = self.completions.poll() {
                    break done;
                }
            };
            assert_eq!(done.status, Status::Success);
        }
        start.elapsed().as_secs_f64() / times as f64
    }
}

pub(crate) fn run() {
    let by_memory = Loop::open("127.61.0.4", true);
    let by_sockets = Loop::open("127.61.0.5", false);
    println!("two queue pairs of one process, WRITE from post to completion: median (min-max)");
    println!(
        "{:>18}  {:>25}  {:>25}  {:>25}",
        "", "in memory", "sockets", "a copy"
    );
    let gigabytes = |seconds: f64| LARGE as f64 / seconds / 1e9;
    let [ours, sockets, copied] = take_turns(
        ROUNDS,
        [
            &mut || gigabytes(by_memory.write(LARGE, LARGE_WRITES)),
            &mut || gigabytes(by_sockets.write(LARGE, LARGE_WRITES)),
            &mut || gigabytes(copy()),
        ],
    );
    let ratio = ours.median / copied.median;
    // Either is enough.
    let goal = if ours.median >= 8.0 {
        Goal::AtLeast(8.0).for_figure(ours.median)
    } else {
        format!(
            "8 GB/s, or of a copy: {}",
            Goal::AtLeast(0.3).for_figure(ratio)
        )
    };
    println!(
        "{:>18}  {ours}  {sockets}  {copied}  ratio {ratio:.2}  goal {goal}",
        "64 KiB, GB/s"
    );
    let (ours, sockets) = in_turn(
        ROUNDS,
        || by_memory.write(SMALL, SMALL_WRITES) * 1e6,
        || by_sockets.write(SMALL, SMALL_WRITES) * 1e6,
    );
    println!(
        "{:>18}  {ours}  {sockets}  goal {}\n",
        "8 bytes, µs",
        Goal::AtMost(0.6).for_figure(ours.median)
    );
}

/// Copies the same bytes. Returns the seconds for one copy.
fn copy() -> f64 {
    let (source, mut target) = (vec![1_u8; LARGE], vec![0_u8; LARGE]);
    let start = Instant::now();
    for _ in 0..LARGE_WRITES {
        black_box(&mut target).copy_from_slice(black_box(&source));
    }
    start.elapsed().as_secs_f64() / LARGE_WRITES as f64
}

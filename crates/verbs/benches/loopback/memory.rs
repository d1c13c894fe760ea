//! What a connection costs in memory.

use rocinante::{Access, Context, Request, Status};

use crate::spread::Goal;

const PAIRS: usize = 500;
const DEPTH: u32 = 16;

/// Makes a thousand connected queue pairs in this process, and uses each once to its full depth.
pub(crate) fn run() {
    let context = Context::open("127.61.0.3").expect("a loopback address");
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(1 << 16).expect("room");
    let memory = domain
        .allocate_memory(4096, Access::LOCAL_WRITE)
        .expect("room");
    let before = resident_kib();
    let mut kept = Vec::new();
    for _ in 0..PAIRS {
        let make = || {
            domain
                .queue_pair_builder(&completions)
                .depth(DEPTH, DEPTH)
                .may_overrun()
                .create_reliable()
        };
        let (one, two) = (make().expect("room"), make().expect("room"));
        let (first, second) = (one.endpoint(), two.endpoint());
        let pair = (
            one.connect(second).expect("a peer"),
            two.connect(first).expect("a peer"),
        );
        for _ in 0..DEPTH {
            pair.1.post_receive(0, [memory.all()]).expect("room");
        }
        for _ in 0..DEPTH {
            pair.0
                .post_send(Request::send().inline(&[1; 64]))
                .expect("room");
        }
        for _ in 0..2 * DEPTH {
            assert_eq!(completions.wait().status, Status::Success);
        }
        kept.push(pair);
    }
    let each = (resident_kib() - before) as f64 / (2 * PAIRS) as f64;
    println!(
        "memory: {each:.2} KiB for each of {} queue pairs of depth 16 and 16, once used",
        2 * PAIRS
    );
    println!("        goal {}\n", Goal::AtMost(3.0).for_figure(each));
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.expect("Linux has it").split_whitespace();
    words
        .skip(1)
        .find_map(|word| word.parse().ok())
        .expect("a number")
}

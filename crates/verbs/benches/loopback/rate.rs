//! Messages in a second, of one queue pair and of many, beside TCP.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::Instant;

use rocinante::{QueuePair, Request, Status};

use crate::peer::{Peer, Way};
use crate::spread::{Goal, take_turns};

const ROUNDS: usize = 7;
const SIZE: usize = 4 << 10;
const MESSAGES: usize = 100_000;
const DEPTH: usize = 16;
const MANY: usize = 1_000;

pub(crate) fn run(peer: &mut Peer, way: Way) {
    println!("WRITEs of 4 KiB {way}: million/s, median (min-max)");
    let one = peer.connect_more(1);
    let many = peer.connect_more(MANY);
    let peer = RefCell::new(peer);
    let [single, spread, each, tcp] = take_turns(
        ROUNDS,
        [
            &mut || write(&mut peer.borrow_mut(), &one, DEPTH),
            &mut || write(&mut peer.borrow_mut(), &many, DEPTH),
            &mut || write(&mut peer.borrow_mut(), &many, MANY),
            &mut || tcp(&mut peer.borrow_mut()),
        ],
    );
    let goal = match way {
        Way::Sockets => Goal::None,
        Way::Shortcut => Goal::AtLeast(1.0),
    };
    let goal = goal.for_figure(single.median);
    println!("{:>40}  {single}  {goal}", "1 queue pair, 16 outstanding");
    for (name, figure) in [
        ("1,000 queue pairs, 16 outstanding in all", spread),
        ("1,000 queue pairs, 1 outstanding each", each),
    ] {
        let ratio = figure.median / single.median;
        let goal = Goal::AtLeast(0.7).for_figure(ratio);
        println!("{name:>40}  {figure}  {ratio:.2} of one  {goal}");
    }
    println!("{:>40}  {tcp}\n", "TCP, writes of 4 KiB");
}

/// Posts to the queue pairs in turn. A queue pair gets its next request when an earlier one has completed.
fn write(peer: &mut Peer, queue_pairs: &[QueuePair], outstanding: usize) -> f64 {
    peer.be("target");
    let each = outstanding.div_ceil(queue_pairs.len());
    let numbers = (0..each).flat_map(|_| 0..queue_pairs.len());
    let mut ready: VecDeque<usize> = numbers.collect();
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < MESSAGES {
        while posted < MESSAGES
            && posted - done < outstanding
            && let Some(number) = ready.pop_front()
        {
            let request = Request::write(peer.remote).data(peer.end.memory.slice(0..SIZE));
            let posting = queue_pairs[number].post_send(request.id(number as u64));
            posting.expect("room");
            posted += 1;
        }
        while let Some(completion) = peer.end.completions.poll() {
            assert_eq!(completion.status, Status::Success);
            ready.push_back(completion.id as usize);
            done += 1;
        }
    }
    MESSAGES as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn tcp(peer: &mut Peer) -> f64 {
    peer.be(&format!("sink {}", MESSAGES * SIZE));
    let buffer = [1; SIZE];
    let start = Instant::now();
    for _ in 0..MESSAGES {
        peer.tcp.write_all(&buffer).expect("it listens");
    }
    peer.tcp.read_exact(&mut [0]).expect("it answers");
    MESSAGES as f64 / start.elapsed().as_secs_f64() / 1e6
}

//! Requests to the same remote memory.

use rocinante::Request;

use crate::{Make, Program, connect, pair, read_from, write_to};

pub(crate) const PROGRAMS: &[(&str, Program)] = &[
    ("two writes", two_writes),
    ("write and read", write_and_read),
    ("read and write", read_and_write),
    ("write and atomic", write_and_atomic),
    ("one byte", one_byte),
    ("write after read", write_after_read),
    ("atomic after read", atomic_after_read),
];

/// Posts two requests to different queue pairs. The right program waits for the first.
fn by_two_queue_pairs(wrong: bool, make: [Make; 2]) {
    let pair = pair();
    let (second, _there) = connect(&pair.left, &pair.right);
    let [one, two] = make;
    let remote = pair.right.memory.remote(0);
    let data = |start: usize| pair.left.memory.slice(start..start + 8);
    pair.from_left
        .post_send(one(remote, data(0)))
        .expect("room");
    if !wrong {
        pair.left.success();
    }
    second.post_send(two(remote, data(16))).expect("room");
    if wrong {
        pair.left.success();
    }
    pair.left.success();
}

fn two_writes(wrong: bool) {
    by_two_queue_pairs(wrong, [write_to, write_to]);
}

fn write_and_read(wrong: bool) {
    by_two_queue_pairs(wrong, [write_to, read_from]);
}

fn read_and_write(wrong: bool) {
    by_two_queue_pairs(wrong, [read_from, write_to]);
}

fn write_and_atomic(wrong: bool) {
    by_two_queue_pairs(
        wrong,
        [write_to, |remote, data| {
            Request::fetch_add(remote, 1).data(data)
        }],
    );
}

fn one_byte(wrong: bool) {
    let pair = pair();
    let (second, _there) = connect(&pair.left, &pair.right);
    let starts = [0, if wrong { 99 } else { 100 }];
    for (queue_pair, start) in [&pair.from_left, &second].into_iter().zip(starts) {
        let request = Request::write(pair.right.memory.remote(start));
        let data = pair.left.memory.slice(0..100);
        queue_pair.post_send(request.data(data)).expect("room");
    }
    pair.left.success();
    pair.left.success();
}

fn write_after_read(wrong: bool) {
    after_read(wrong, write_to);
}

fn atomic_after_read(wrong: bool) {
    after_read(wrong, |remote, data| {
        Request::compare_swap(remote, 0, 1).data(data)
    });
}

fn after_read(wrong: bool, change: Make) {
    let pair = pair();
    let remote = pair.right.memory.remote(0);
    let read = Request::read(remote).data(pair.left.memory.slice(0..8));
    let change = change(remote, pair.left.memory.slice(8..16));
    let change = if wrong { change } else { change.fenced() };
    pair.from_left.post_send_many([read, change]).expect("room");
    pair.left.success();
    pair.left.success();
}

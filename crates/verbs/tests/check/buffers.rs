//! Memory of outstanding requests.

use rocinante::Request;

use crate::{Program, connect, exchange, finish_send, pair, send_outstanding};

pub(crate) const PROGRAMS: &[(&str, Program)] = &[
    ("send changed", send_changed),
    ("write changed", write_changed),
    ("end changed", end_changed),
    ("segment changed", segment_changed),
    ("read into send", read_into_send),
    ("atomic into send", atomic_into_send),
    ("send of read", send_of_read),
    ("receive into send", receive_into_send),
    ("two receives", two_receives),
    ("two shared receives", two_shared_receives),
    ("receive changed", receive_changed),
    ("two reads", two_reads),
    ("peer writes send", peer_writes_send),
    ("peer reads result", peer_reads_result),
    ("changed at once", changed_at_once),
    ("changed before reply", changed_before_reply),
    ("unsignaled changed", unsignaled_changed),
    ("polled at once", polled_at_once),
    ("receive posted again", receive_posted_again),
    ("send of unpolled read", send_of_unpolled_read),
    ("message over write", message_over_write),
    (
        "immediate for receive of send",
        immediate_for_receive_of_send,
    ),
    ("read into unpolled write", read_into_unpolled_write),
];

fn send_changed(wrong: bool) {
    let pair = pair();
    send_outstanding(&pair, 0..100);
    if wrong {
        pair.left.memory.write(0, &[1]);
    }
    finish_send(&pair);
    pair.left.memory.write(0, &[1]);
}

fn write_changed(wrong: bool) {
    let pair = pair();
    // The WRITE waits behind the SEND.
    send_outstanding(&pair, 0..100);
    let request = Request::write(pair.right.memory.remote(0));
    let data = pair.left.memory.slice(200..300);
    pair.from_left.post_send(request.data(data)).expect("room");
    if wrong {
        pair.left.memory.write(299, &[1]);
    }
    finish_send(&pair);
    pair.left.success();
    pair.left.memory.write(299, &[1]);
}

fn end_changed(wrong: bool) {
    let pair = pair();
    send_outstanding(&pair, 0..100_000);
    if wrong {
        pair.left.memory.write(99_999, &[1]);
    }
    finish_send(&pair);
}

fn segment_changed(wrong: bool) {
    let pair = pair();
    let memory = &pair.left.memory;
    let parts = [memory.slice(0..10), memory.slice(20..30)];
    let request = Request::send().segments(parts);
    pair.from_left.post_send(request).expect("room");
    // Between the segments, or in the second one.
    memory.write(if wrong { 25 } else { 15 }, &[1]);
    finish_send(&pair);
}

fn read_into_send(wrong: bool) {
    let pair = pair();
    let (here, _there) = connect(&pair.left, &pair.right);
    send_outstanding(&pair, 0..100);
    let start = if wrong { 50 } else { 100 };
    let request = Request::read(pair.right.memory.remote(0));
    let target = pair.left.memory.slice(start..start + 100);
    here.post_send(request.data(target)).expect("room");
    pair.left.success();
    finish_send(&pair);
}

fn atomic_into_send(wrong: bool) {
    let pair = pair();
    let (here, _there) = connect(&pair.left, &pair.right);
    send_outstanding(&pair, 0..100);
    let start = if wrong { 96 } else { 104 };
    let request = Request::fetch_add(pair.right.memory.remote(0), 0);
    let target = pair.left.memory.slice(start..start + 8);
    here.post_send(request.data(target)).expect("room");
    pair.left.success();
    finish_send(&pair);
}

fn send_of_read(wrong: bool) {
    let pair = pair();
    let room = pair.right.memory.slice(1 << 19..1 << 20);
    pair.from_right.post_receive(1, [room]).expect("room");
    let read = Request::read(pair.right.memory.remote(0));
    let memory = pair.left.memory.slice(0..100_000);
    let send = Request::send().data(memory);
    let send = if wrong { send } else { send.fenced() };
    let requests = [read.data(memory), send];
    pair.from_left.post_send_many(requests).expect("room");
    pair.left.success();
    pair.left.success();
    pair.right.success();
}

fn receive_into_send(wrong: bool) {
    let pair = pair();
    let (here, there) = connect(&pair.left, &pair.right);
    exchange(&there, &pair.right, &here, &pair.left);
    send_outstanding(&pair, 0..100);
    let start = if wrong { 0 } else { 100 };
    let room = pair.left.memory.slice(start..start + 100);
    here.post_receive(2, [room]).expect("room");
    // A copy of what is there, so that the message is not changed.
    let data = pair.right.memory.slice(300..400);
    there.post_send(Request::send().data(data)).expect("room");
    pair.right.success();
    pair.left.success();
    finish_send(&pair);
}

fn two_receives(wrong: bool) {
    let pair = pair();
    for start in [0, if wrong { 50 } else { 100 }] {
        let room = pair.right.memory.slice(start..start + 100);
        pair.from_right.post_receive(0, [room]).expect("room");
    }
}

fn receive_changed(wrong: bool) {
    let pair = pair();
    let change = || pair.right.memory.write(200, &[1]);
    if !wrong {
        change();
    }
    let room = pair.right.memory.slice(200..300);
    pair.from_right.post_receive(0, [room]).expect("room");
    if wrong {
        change();
    }
    send_outstanding(&pair, 0..100);
    pair.left.success();
    pair.right.success();
}

fn two_shared_receives(wrong: bool) {
    let pair = pair();
    let shared = pair.right.domain.create_shared_receive_queue(2, 1);
    let shared = shared.expect("room");
    for start in [0, if wrong { 50 } else { 100 }] {
        let room = pair.right.memory.slice(start..start + 100);
        shared.post_receive(0, [room]).expect("room");
    }
    // A call of the device ends what is observed before.
    pair.right.context.create_completion_queue(1).expect("room");
}

fn two_reads(wrong: bool) {
    let pair = pair();
    let read = |start| {
        let target = pair.left.memory.slice(start..start + 100);
        Request::read(pair.right.memory.remote(0)).data(target)
    };
    let reads = [read(0), read(if wrong { 0 } else { 100 })];
    pair.from_left.post_send_many(reads).expect("room");
    pair.left.success();
    pair.left.success();
}

fn peer_writes_send(wrong: bool) {
    let pair = pair();
    let (_here, there) = connect(&pair.left, &pair.right);
    send_outstanding(&pair, 0..100);
    let request = Request::write(pair.left.memory.remote(if wrong { 99 } else { 100 }));
    let data = pair.right.memory.slice(300..310);
    there.post_send(request.data(data)).expect("room");
    pair.right.success();
    finish_send(&pair);
}

fn peer_reads_result(wrong: bool) {
    let pair = pair();
    let (_here, there) = connect(&pair.left, &pair.right);
    // The READ waits behind the SEND.
    send_outstanding(&pair, 0..100);
    let request = Request::read(pair.right.memory.remote(0));
    let target = pair.left.memory.slice(200..300);
    pair.from_left
        .post_send(request.data(target))
        .expect("room");
    let request = Request::read(pair.left.memory.remote(if wrong { 250 } else { 300 }));
    let target = pair.right.memory.slice(1000..1010);
    there.post_send(request.data(target)).expect("room");
    pair.right.success();
    finish_send(&pair);
    pair.left.success();
}

/// The WRITE ends within the post, but the program cannot know that.
fn changed_at_once(wrong: bool) {
    let pair = pair();
    let request = Request::write(pair.right.memory.remote(0));
    let data = pair.left.memory.slice(0..100);
    pair.from_left.post_send(request.data(data)).expect("room");
    if wrong {
        pair.left.memory.write(0, &[1]);
    }
    pair.left.success();
    pair.left.memory.write(0, &[1]);
}

/// The reply says that the unsignaled request has been executed.
fn changed_before_reply(wrong: bool) {
    let pair = pair();
    let (left, right) = (&pair.left, &pair.right);
    let room = right.memory.slice(0..100);
    pair.from_right.post_receive(1, [room]).expect("room");
    let room = left.memory.slice(200..300);
    pair.from_left.post_receive(2, [room]).expect("room");
    let request = Request::send().data(left.memory.slice(0..100));
    pair.from_left
        .post_send(request.unsignaled())
        .expect("room");
    right.success();
    let reply = Request::send().data(right.memory.slice(200..300));
    pair.from_right.post_send(reply).expect("room");
    right.success();
    if wrong {
        left.memory.write(0, &[1]);
    }
    left.success();
    left.memory.write(0, &[1]);
}

/// The completion of the second WRITE covers the first.
fn unsignaled_changed(wrong: bool) {
    let pair = pair();
    let write = |start: usize| {
        let request = Request::write(pair.right.memory.remote(start));
        request.data(pair.left.memory.slice(start..start + 100))
    };
    let first = write(0).unsignaled();
    pair.from_left.post_send(first).expect("room");
    pair.from_left.post_send(write(100)).expect("room");
    if wrong {
        pair.left.memory.write(0, &[1]);
    }
    pair.left.success();
    pair.left.memory.write(0, &[1]);
}

/// The completions of all WRITEs are polled by one call. Only the last one is changed; the others have the same memory, or
/// begin at the same place.
fn polled_at_once(wrong: bool) {
    let pair = pair();
    for (index, range) in [0..100, 0..100, 0..50, 200..300].into_iter().enumerate() {
        let request = Request::write(pair.right.memory.remote(1000 * index));
        let data = pair.left.memory.slice(range);
        pair.from_left.post_send(request.data(data)).expect("room");
    }
    if wrong {
        pair.left.memory.write(299, &[1]);
    }
    let mut completions = Vec::new();
    while completions.len() < 4 {
        let left = 4 - completions.len();
        pair.left.completions.poll_many(&mut completions, left);
    }
    pair.left.memory.write(299, &[1]);
}

fn receive_posted_again(wrong: bool) {
    let pair = pair();
    let room = pair.right.memory.slice(0..100);
    let receive = || pair.from_right.post_receive(1, [room]).expect("room");
    receive();
    send_outstanding(&pair, 0..100);
    pair.left.success();
    if wrong {
        receive();
    }
    pair.right.success();
    if !wrong {
        receive();
    }
}

fn send_of_unpolled_read(wrong: bool) {
    let pair = pair();
    let (here, _there) = connect(&pair.left, &pair.right);
    let read = Request::read(pair.right.memory.remote(0));
    let memory = pair.left.memory.slice(0..100);
    pair.from_left.post_send(read.data(memory)).expect("room");
    if !wrong {
        pair.left.success();
    }
    let write = Request::write(pair.right.memory.remote(200));
    here.post_send(write.data(memory)).expect("room");
    if wrong {
        pair.left.success();
    }
    pair.left.success();
}

fn read_into_unpolled_write(wrong: bool) {
    let pair = pair();
    let (here, _there) = connect(&pair.left, &pair.right);
    let write = Request::write(pair.right.memory.remote(0));
    let memory = pair.left.memory.slice(0..100);
    pair.from_left.post_send(write.data(memory)).expect("room");
    if !wrong {
        pair.left.success();
    }
    let read = Request::read(pair.right.memory.remote(200));
    here.post_send(read.data(memory)).expect("room");
    if wrong {
        pair.left.success();
    }
    pair.left.success();
}

/// A peer writes into memory that waits for a message. The right program waits for it elsewhere.
fn message_over_write(wrong: bool) {
    let pair = pair();
    let room = pair
        .right
        .memory
        .slice(if wrong { 0..100 } else { 200..300 });
    pair.from_right.post_receive(1, [room]).expect("room");
    let request = Request::write(pair.right.memory.remote(50));
    let data = pair.left.memory.slice(0..100);
    pair.from_left.post_send(request.data(data)).expect("room");
    pair.left.success();
    send_outstanding(&pair, 0..100);
    pair.left.success();
    pair.right.success();
}

/// A message for a receive stores into the memory of a SEND; a WRITE with immediate data consumes the receive only.
fn immediate_for_receive_of_send(wrong: bool) {
    let pair = pair();
    let (here, there) = connect(&pair.left, &pair.right);
    exchange(&there, &pair.right, &here, &pair.left);
    send_outstanding(&pair, 0..100);
    let room = pair.left.memory.slice(0..100);
    here.post_receive(2, [room]).expect("room");
    let data = pair.right.memory.slice(300..400);
    let request = if wrong {
        Request::send()
    } else {
        Request::write_with_immediate(pair.left.memory.remote(500), [0; 4])
    };
    there.post_send(request.data(data)).expect("room");
    pair.right.success();
    pair.left.success();
    finish_send(&pair);
}

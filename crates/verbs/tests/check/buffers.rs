//! Memory of requests that are under way.

use rocinante::Request;

use crate::{Program, connect, couple, exchange, finish_send, send_under_way};

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
    ("two reads", two_reads),
    ("peer writes send", peer_writes_send),
    ("peer reads result", peer_reads_result),
    ("changed at once", changed_at_once),
    ("changed before reply", changed_before_reply),
    ("unsignaled changed", unsignaled_changed),
    ("receive posted again", receive_posted_again),
    ("send of unpolled read", send_of_unpolled_read),
    ("read into unpolled write", read_into_unpolled_write),
];

fn send_changed(wrong: bool) {
    let couple = couple();
    send_under_way(&couple, 0..100);
    if wrong {
        couple.left.memory.write(0, &[1]);
    }
    finish_send(&couple);
    couple.left.memory.write(0, &[1]);
}

fn write_changed(wrong: bool) {
    let couple = couple();
    // The WRITE waits behind the SEND.
    send_under_way(&couple, 0..100);
    let request = Request::write(couple.right.memory.remote(0));
    let data = couple.left.memory.slice(200..300);
    couple.from_left.post(request.data(data)).expect("room");
    if wrong {
        couple.left.memory.write(299, &[1]);
    }
    finish_send(&couple);
    couple.left.success();
    couple.left.memory.write(299, &[1]);
}

fn end_changed(wrong: bool) {
    let couple = couple();
    send_under_way(&couple, 0..100_000);
    if wrong {
        couple.left.memory.write(99_999, &[1]);
    }
    finish_send(&couple);
}

fn segment_changed(wrong: bool) {
    let couple = couple();
    let memory = &couple.left.memory;
    let request = Request::send()
        .data(memory.slice(0..10))
        .data(memory.slice(20..30));
    couple.from_left.post(request).expect("room");
    // Between the segments, or in the second one.
    memory.write(if wrong { 25 } else { 15 }, &[1]);
    finish_send(&couple);
}

fn read_into_send(wrong: bool) {
    let couple = couple();
    let (here, _there) = connect(&couple.left, &couple.right);
    send_under_way(&couple, 0..100);
    let start = if wrong { 50 } else { 100 };
    let request = Request::read(couple.right.memory.remote(0));
    let target = couple.left.memory.slice(start..start + 100);
    here.post(request.data(target)).expect("room");
    couple.left.success();
    finish_send(&couple);
}

fn atomic_into_send(wrong: bool) {
    let couple = couple();
    let (here, _there) = connect(&couple.left, &couple.right);
    send_under_way(&couple, 0..100);
    let start = if wrong { 96 } else { 104 };
    let request = Request::fetch_add(couple.right.memory.remote(0), 0);
    let target = couple.left.memory.slice(start..start + 8);
    here.post(request.data(target)).expect("room");
    couple.left.success();
    finish_send(&couple);
}

fn send_of_read(wrong: bool) {
    let couple = couple();
    let room = couple.right.memory.slice(1 << 19..1 << 20);
    couple.from_right.post_receive(1, [room]).expect("room");
    let read = Request::read(couple.right.memory.remote(0));
    let memory = couple.left.memory.slice(0..100_000);
    let send = Request::send().data(memory);
    let send = if wrong { send } else { send.fenced() };
    let requests = [read.data(memory), send];
    couple.from_left.post_many(requests).expect("room");
    couple.left.success();
    couple.left.success();
    couple.right.success();
}

fn receive_into_send(wrong: bool) {
    let couple = couple();
    let (here, there) = connect(&couple.left, &couple.right);
    exchange(&there, &couple.right, &here, &couple.left);
    send_under_way(&couple, 0..100);
    let start = if wrong { 0 } else { 100 };
    let room = couple.left.memory.slice(start..start + 100);
    here.post_receive(2, [room]).expect("room");
    // A copy of what is there, so that the message is not changed.
    let data = couple.right.memory.slice(300..400);
    there.post(Request::send().data(data)).expect("room");
    couple.right.success();
    couple.left.success();
    finish_send(&couple);
}

fn two_receives(wrong: bool) {
    let couple = couple();
    for start in [0, if wrong { 50 } else { 100 }] {
        let room = couple.right.memory.slice(start..start + 100);
        couple.from_right.post_receive(0, [room]).expect("room");
    }
}

fn two_reads(wrong: bool) {
    let couple = couple();
    let read = |start| {
        let target = couple.left.memory.slice(start..start + 100);
        Request::read(couple.right.memory.remote(0)).data(target)
    };
    let reads = [read(0), read(if wrong { 0 } else { 100 })];
    couple.from_left.post_many(reads).expect("room");
    couple.left.success();
    couple.left.success();
}

fn peer_writes_send(wrong: bool) {
    let couple = couple();
    let (_here, there) = connect(&couple.left, &couple.right);
    send_under_way(&couple, 0..100);
    let request = Request::write(couple.left.memory.remote(if wrong { 99 } else { 100 }));
    let data = couple.right.memory.slice(300..310);
    there.post(request.data(data)).expect("room");
    couple.right.success();
    finish_send(&couple);
}

fn peer_reads_result(wrong: bool) {
    let couple = couple();
    let (_here, there) = connect(&couple.left, &couple.right);
    // The READ waits behind the SEND.
    send_under_way(&couple, 0..100);
    let request = Request::read(couple.right.memory.remote(0));
    let target = couple.left.memory.slice(200..300);
    couple.from_left.post(request.data(target)).expect("room");
    let request = Request::read(couple.left.memory.remote(if wrong { 250 } else { 300 }));
    let target = couple.right.memory.slice(1000..1010);
    there.post(request.data(target)).expect("room");
    couple.right.success();
    finish_send(&couple);
    couple.left.success();
}

/// The WRITE ends within the post, but the program cannot know that.
fn changed_at_once(wrong: bool) {
    let couple = couple();
    let request = Request::write(couple.right.memory.remote(0));
    let data = couple.left.memory.slice(0..100);
    couple.from_left.post(request.data(data)).expect("room");
    if wrong {
        couple.left.memory.write(0, &[1]);
    }
    couple.left.success();
    couple.left.memory.write(0, &[1]);
}

/// The reply says that the unsignaled request has been executed.
fn changed_before_reply(wrong: bool) {
    let couple = couple();
    let (left, right) = (&couple.left, &couple.right);
    let room = right.memory.slice(0..100);
    couple.from_right.post_receive(1, [room]).expect("room");
    let room = left.memory.slice(200..300);
    couple.from_left.post_receive(2, [room]).expect("room");
    let request = Request::send().data(left.memory.slice(0..100));
    couple.from_left.post(request.unsignaled()).expect("room");
    right.success();
    let reply = Request::send().data(right.memory.slice(200..300));
    couple.from_right.post(reply).expect("room");
    right.success();
    if wrong {
        left.memory.write(0, &[1]);
    }
    left.success();
    left.memory.write(0, &[1]);
}

/// The completion of the second WRITE covers the first.
fn unsignaled_changed(wrong: bool) {
    let couple = couple();
    let write = |start: usize| {
        let request = Request::write(couple.right.memory.remote(start));
        request.data(couple.left.memory.slice(start..start + 100))
    };
    let first = write(0).unsignaled();
    couple.from_left.post(first).expect("room");
    couple.from_left.post(write(100)).expect("room");
    if wrong {
        couple.left.memory.write(0, &[1]);
    }
    couple.left.success();
    couple.left.memory.write(0, &[1]);
}

fn receive_posted_again(wrong: bool) {
    let couple = couple();
    let room = couple.right.memory.slice(0..100);
    let receive = || couple.from_right.post_receive(1, [room]).expect("room");
    receive();
    send_under_way(&couple, 0..100);
    couple.left.success();
    if wrong {
        receive();
    }
    couple.right.success();
    if !wrong {
        receive();
    }
}

fn send_of_unpolled_read(wrong: bool) {
    let couple = couple();
    let (here, _there) = connect(&couple.left, &couple.right);
    let read = Request::read(couple.right.memory.remote(0));
    let memory = couple.left.memory.slice(0..100);
    couple.from_left.post(read.data(memory)).expect("room");
    if !wrong {
        couple.left.success();
    }
    let write = Request::write(couple.right.memory.remote(200));
    here.post(write.data(memory)).expect("room");
    if wrong {
        couple.left.success();
    }
    couple.left.success();
}

fn read_into_unpolled_write(wrong: bool) {
    let couple = couple();
    let (here, _there) = connect(&couple.left, &couple.right);
    let write = Request::write(couple.right.memory.remote(0));
    let memory = couple.left.memory.slice(0..100);
    couple.from_left.post(write.data(memory)).expect("room");
    if !wrong {
        couple.left.success();
    }
    let read = Request::read(couple.right.memory.remote(200));
    here.post(read.data(memory)).expect("room");
    if wrong {
        couple.left.success();
    }
    couple.left.success();
}

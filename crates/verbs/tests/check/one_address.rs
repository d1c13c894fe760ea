//! Both ends belong to one device, so each WRITE and each message comes from an address at which the program also has
//! requests. Most of the connections are unreliable.

use rocinante::{OpenOptions, QueuePair, Request};

use crate::support::{ALL, End};
use crate::{Make, Program, connect, read_from, write_to};

pub(crate) const PROGRAMS: &[(&str, Program)] = &[
    ("unreliable write changed", write_changed),
    ("unreliable first write changed", first_write_changed),
    ("unreliable send changed", send_changed),
    ("unreliable writes", two_writes),
    ("unreliable write and read", write_and_read),
    ("read into unreliable write", read_into_write),
    ("unreliable write deregistered", deregistered),
    (
        "reliable write changed at one address",
        reliable_write_changed,
    ),
    ("send changed at one address", reliable_send_changed),
    ("sends changed with one queue", sends_changed_with_one_queue),
    ("send changed with two contexts", send_changed_with_contexts),
];

fn own_address() -> String {
    let number = std::process::id() % 50_000;
    format!("127.63.{}.{}", number / 250 + 1, number % 250 + 1)
}

/// Two ends of one device.
fn ends() -> (End, End) {
    let left = End::at(&own_address(), &OpenOptions::from_env());
    let context = left.context.clone();
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(1024).expect("room");
    let memory = domain.allocate_memory(1 << 20, ALL).expect("room");
    let right = End {
        context,
        domain,
        completions,
        memory,
    };
    (left, right)
}

/// Two queue pairs of these ends, connected unreliably.
fn connect_unreliably(left: &End, right: &End) -> (QueuePair, QueuePair) {
    let prepare = |end: &End| {
        let builder = end.domain.queue_pair_builder(&end.completions);
        let prepared = builder.depth(256, 256).create_unreliable();
        prepared.expect("room")
    };
    let (here, there) = (prepare(left), prepare(right));
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    let here = here.connect(their_end).expect("a peer");
    (here, there.connect(our_end).expect("a peer"))
}

fn write(left: &End, right: &End, start: usize) -> Request {
    let request = Request::write(right.memory.remote(start));
    request.data(left.memory.slice(start..start + 100))
}

fn changed(wrong: bool, connect: fn(&End, &End) -> (QueuePair, QueuePair)) {
    let (left, right) = ends();
    let (here, _there) = connect(&left, &right);
    here.post_send(write(&left, &right, 0)).expect("room");
    if wrong {
        left.memory.write(0, &[1]);
    }
    left.success();
    left.memory.write(0, &[1]);
}

fn write_changed(wrong: bool) {
    changed(wrong, connect_unreliably);
}

fn reliable_write_changed(wrong: bool) {
    changed(wrong, connect);
}

/// The WRITE of another queue pair arrives before the change.
fn first_write_changed(wrong: bool) {
    let (left, right) = ends();
    let (here, _there) = connect_unreliably(&left, &right);
    let (second, _its_peer) = connect_unreliably(&left, &right);
    here.post_send(write(&left, &right, 0)).expect("room");
    second.post_send(write(&left, &right, 100)).expect("room");
    if wrong {
        left.memory.write(0, &[1]);
    }
    left.success();
    left.success();
    left.memory.write(0, &[1]);
}

fn send_changed(wrong: bool) {
    let (left, right) = ends();
    let (here, there) = connect_unreliably(&left, &right);
    let room = right.memory.slice(0..100);
    there.post_receive(1, [room]).expect("room");
    let data = left.memory.slice(0..100);
    here.post_send(Request::send().data(data)).expect("room");
    if wrong {
        left.memory.write(99, &[1]);
    }
    left.success();
    right.success();
    left.memory.write(99, &[1]);
}

/// Posts a receive and the SEND for it, and takes the message before the completion of the SEND.
fn send_and_receive_first(wrong: bool, left: &End, right: &End) {
    let (here, there) = connect(left, right);
    let room = right.memory.slice(0..100);
    there.post_receive(1, [room]).expect("room");
    let data = left.memory.slice(0..100);
    here.post_send(Request::send().data(data)).expect("room");
    if wrong {
        left.memory.write(99, &[1]);
    }
    right.success();
    left.success();
    left.memory.write(99, &[1]);
}

fn reliable_send_changed(wrong: bool) {
    let (left, right) = ends();
    send_and_receive_first(wrong, &left, &right);
}

/// The device is opened twice.
fn send_changed_with_contexts(wrong: bool) {
    let (left, _) = ends();
    let right = End::at(&own_address(), &OpenOptions::from_env());
    send_and_receive_first(wrong, &left, &right);
}

/// All completions go to one queue, and each message arrives before the completions of the SENDs.
fn sends_changed_with_one_queue(wrong: bool) {
    let (left, right) = ends();
    let right = End {
        completions: left.completions.clone(),
        ..right
    };
    let pairs = [connect(&left, &right), connect(&left, &right)];
    for (index, (here, there)) in pairs.iter().enumerate() {
        let range = 200 * index..200 * index + 100;
        let room = right.memory.slice(range.clone());
        there.post_receive(1, [room]).expect("room");
        let data = left.memory.slice(range);
        here.post_send(Request::send().data(data)).expect("room");
    }
    if wrong {
        left.memory.write(0, &[1]);
        left.memory.write(200, &[1]);
    }
    for _ in 0..4 {
        left.success();
    }
    left.memory.write(0, &[1]);
}

fn race(wrong: bool, second: Make) {
    let (left, right) = ends();
    let (here, _there) = connect_unreliably(&left, &right);
    let (other, _its_peer) = connect(&left, &right);
    here.post_send(write(&left, &right, 0)).expect("room");
    if !wrong {
        left.success();
    }
    let data = left.memory.slice(500..600);
    let request = second(right.memory.remote(50), data);
    other.post_send(request).expect("room");
    if wrong {
        left.success();
    }
    left.success();
}

fn two_writes(wrong: bool) {
    race(wrong, write_to);
}

fn write_and_read(wrong: bool) {
    race(wrong, read_from);
}

fn read_into_write(wrong: bool) {
    let (left, right) = ends();
    let (here, _there) = connect_unreliably(&left, &right);
    let (other, _its_peer) = connect(&left, &right);
    here.post_send(write(&left, &right, 0)).expect("room");
    if !wrong {
        left.success();
    }
    let request = Request::read(right.memory.remote(500));
    let target = left.memory.slice(50..150);
    other.post_send(request.data(target)).expect("room");
    if wrong {
        left.success();
    }
    left.success();
}

fn deregistered(wrong: bool) {
    let (left, right) = ends();
    let (here, _there) = connect_unreliably(&left, &right);
    let memory = left.domain.allocate_memory(64, ALL);
    let memory = memory.expect("room");
    let request = Request::write(right.memory.remote(0)).data(memory.slice(..));
    here.post_send(request).expect("room");
    if wrong {
        drop(memory);
        left.success();
    } else {
        left.success();
        drop(memory);
    }
}

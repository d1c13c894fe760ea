//! The lifetimes of objects.

use rocinante::{Access, Attributes, Request, State, Status};

use crate::support::TIMEOUT;
use crate::{Make, Program, finish_send, pair, read_from, send_outstanding, write_to};

pub(crate) const PROGRAMS: &[(&str, Program)] = &[
    ("destroyed", destroyed),
    ("reset", reset),
    ("failure", failure),
    ("write late", write_late),
    ("read late", read_late),
    ("leak", leak),
    ("deregistered", deregistered),
    ("target deregistered", target_deregistered),
    ("last request", last_request),
    ("event", event),
];

fn destroyed(wrong: bool) {
    let pair = pair();
    send_outstanding(&pair, 0..100);
    if !wrong {
        finish_send(&pair);
    }
    drop(pair.from_left);
}

fn reset(wrong: bool) {
    let pair = pair();
    send_outstanding(&pair, 0..100);
    if !wrong {
        finish_send(&pair);
    }
    let reset = Attributes {
        state: Some(State::Reset),
        ..Attributes::default()
    };
    pair.from_left
        .modify(&reset)
        .expect("a change from any state");
}

fn failure(wrong: bool) {
    let pair = pair();
    let memory = pair
        .right
        .domain
        .allocate_memory(8, Access::empty())
        .expect("room");
    let request = Request::write(memory.remote(0));
    let data = pair.left.memory.slice(0..8);
    pair.from_left.post_send(request.data(data)).expect("room");
    if wrong {
        while pair.from_left.state() != State::Error {
            std::thread::yield_now();
        }
    } else {
        let completion = pair.left.completions.wait_for(TIMEOUT);
        let completion = completion.expect("it completes");
        assert_eq!(completion.status, Status::RemoteAccess);
    }
    let event = pair.right.context.wait_event(TIMEOUT);
    event.expect("the target learns of the violation");
}

fn write_late(wrong: bool) {
    late(wrong, write_to);
}

fn read_late(wrong: bool) {
    late(wrong, read_from);
}

fn late(wrong: bool, make: Make) {
    let pair = pair();
    let memory = pair.right.domain.allocate_memory(64, crate::support::ALL);
    let memory = memory.expect("room");
    let request = make(memory.remote(0), pair.left.memory.slice(0..8));
    let memory = (!wrong).then_some(memory);
    pair.from_left.post_send(request).expect("room");
    let completion = pair.left.completions.wait_for(TIMEOUT);
    let expected = if wrong {
        Status::RemoteAccess
    } else {
        Status::Success
    };
    assert_eq!(completion.expect("it completes").status, expected);
    if wrong {
        let event = pair.right.context.wait_event(TIMEOUT);
        event.expect("the target learns of the violation");
    }
    drop(memory);
}

fn leak(wrong: bool) {
    let pair = pair();
    if wrong {
        std::mem::forget(pair);
    }
}

fn deregistered(wrong: bool) {
    deregister(wrong, write_to);
}

fn target_deregistered(wrong: bool) {
    deregister(wrong, read_from);
}

fn deregister(wrong: bool, make: Make) {
    let pair = pair();
    let memory = pair.left.domain.allocate_memory(64, crate::support::ALL);
    let memory = memory.expect("room");
    let request = make(pair.right.memory.remote(0), memory.slice(0..64));
    pair.from_left.post_send(request).expect("room");
    if wrong {
        drop(memory);
        pair.left.success();
    } else {
        pair.left.success();
        drop(memory);
    }
}

fn last_request(wrong: bool) {
    let pair = pair();
    let request = Request::write(pair.right.memory.remote(0));
    let data = pair.left.memory.slice(0..8);
    pair.from_left.post_send(request.data(data)).expect("room");
    // It has ended when the queue is drained.
    let drain = Attributes {
        state: Some(State::SendQueueDrain),
        drain_event: Some(true),
        ..Attributes::default()
    };
    pair.from_left.modify(&drain).expect("a connected state");
    let event = pair.left.context.wait_event(TIMEOUT);
    event.expect("the queue is drained");
    if !wrong {
        pair.left.success();
    }
    drop(pair.from_left);
}

/// The peer writes memory that it must not write. The program learns of it only by the event.
fn event(wrong: bool) {
    let pair = pair();
    let memory = pair.right.domain.allocate_memory(8, Access::empty());
    let memory = memory.expect("room");
    let request = Request::write(memory.remote(0));
    let data = pair.left.memory.slice(0..8);
    pair.from_left.post_send(request.data(data)).expect("room");
    let completion = pair.left.completions.wait_for(TIMEOUT);
    assert_eq!(
        completion.expect("it completes").status,
        Status::RemoteAccess
    );
    if !wrong {
        let event = pair.right.context.wait_event(TIMEOUT);
        event.expect("the target learns of the violation");
    }
}

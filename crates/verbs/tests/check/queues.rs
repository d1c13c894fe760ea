//! Queues that can overrun or stay full.

use rocinante::{ConnectOptions, PostError, Request, RnrTimer};

use crate::support::TIMEOUT;
use crate::{Program, pair};

pub(crate) const PROGRAMS: &[(&str, Program)] = &[
    ("never signaled", never_signaled),
    ("sends", sends),
    ("receives", receives),
    ("early", early),
    ("send queue", send_queue),
    ("longest timer", longest_timer),
    ("not portable", not_portable),
];

/// The queue has room for 256. Here the entries of acknowledged requests become free without a completion.
fn never_signaled(wrong: bool) {
    let pair = pair();
    for number in 1..=512 {
        let is_signaled = number % if wrong { 512 } else { 128 } == 0;
        let request = || {
            let request = Request::write(pair.right.memory.remote(0));
            let request = request.data(pair.left.memory.slice(0..8));
            if is_signaled {
                request
            } else {
                request.unsignaled()
            }
        };
        while let Err(error) = pair.from_left.post_send(request()) {
            assert_eq!(error, PostError::QueueFull);
            assert_eq!(pair.left.completions.poll(), None);
        }
        if is_signaled {
            pair.left.success();
        }
    }
}

/// The completion queue has room for four. With a mistake, five SENDs are outstanding.
fn sends(wrong: bool) {
    let pair = pair();
    let small = pair.left.context.create_completion_queue(4).expect("room");
    let builder = pair.left.domain.queue_pair_builder(&small).depth(8, 0);
    let here = builder.may_overrun().create_reliable().expect("room");
    let there = pair.right.prepare(ConnectOptions::default());
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    // Only one receive is there, so the others wait.
    let receive = |queue_pair: &rocinante::QueuePair| {
        let room = pair.right.memory.slice(0..8);
        queue_pair.post_receive(0, [room]).expect("room");
    };
    let there = there.connect(our_end).expect("a peer");
    receive(&there);
    let here = here.connect(their_end).expect("a peer");
    let mut posted = 0;
    let mut post = |count| {
        for _ in 0..count {
            let request = Request::send().data(pair.left.memory.slice(0..8));
            here.post_send(request).expect("room");
            posted += 1;
        }
        posted
    };
    let mut posted = post(if wrong { 5 } else { 4 });
    for number in 0..5 {
        small.wait_for(TIMEOUT).expect("it completes");
        pair.right.success();
        if posted == 4 {
            posted = post(1);
        }
        if number < 4 {
            receive(&there);
        }
    }
}

fn receives(wrong: bool) {
    let pair = pair();
    let small = pair.left.context.create_completion_queue(4).expect("room");
    let builder = pair.left.domain.queue_pair_builder(&small).depth(1, 8);
    let here = builder.may_overrun().create_reliable().expect("room");
    for number in 0..if wrong { 5 } else { 4 } {
        let room = pair.left.memory.slice(number * 8..number * 8 + 8);
        here.post_receive(0, [room]).expect("room");
    }
}

/// The first receive is posted when the message has already been rejected.
fn early(wrong: bool) {
    let pair = pair();
    let (here, there) = crate::connect(&pair.left, &pair.right);
    let receive = || {
        let room = pair.right.memory.slice(0..8);
        there.post_receive(0, [room]).expect("room");
    };
    if !wrong {
        receive();
    }
    let request = Request::send().data(pair.left.memory.slice(0..8));
    here.post_send(request).expect("room");
    if wrong {
        while pair.right.context.counters().expect("ours").rnr_naks_sent == 0 {
            std::thread::yield_now();
        }
        receive();
    }
    pair.left.success();
    pair.right.success();
}

/// The send queue has room for four. Here the entries of acknowledged requests become free before a poll.
fn send_queue(wrong: bool) {
    let pair = pair();
    let builder = pair.left.domain.queue_pair_builder(&pair.left.completions);
    let here = builder.depth(4, 1).create_reliable().expect("room");
    let there = pair.right.prepare(ConnectOptions::default());
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    let _there = there.connect(our_end).expect("a peer");
    let here = here.connect(their_end).expect("a peer");
    for number in 0..5 {
        let start = number * 8;
        let request = || {
            let request = Request::write(pair.right.memory.remote(start));
            request.data(pair.left.memory.slice(start..start + 8))
        };
        while let Err(error) = here.post_send(request()) {
            assert_eq!(error, PostError::QueueFull);
        }
        if !wrong {
            pair.left.success();
        }
    }
    for _ in 0..if wrong { 5 } else { 0 } {
        pair.left.success();
    }
}

/// The second message finds no receive.
fn longest_timer(wrong: bool) {
    let pair = pair();
    let timer = RnrTimer::new(if wrong { 0 } else { 1 });
    let options = ConnectOptions {
        rnr_timer: timer.expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let (here, there) = (
        pair.left.prepare(ConnectOptions::default()),
        pair.right.prepare(options),
    );
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    let there = there.connect(our_end).expect("a peer");
    let here = here.connect(their_end).expect("a peer");
    crate::exchange(&here, &pair.left, &there, &pair.right);
    let request = Request::send().data(pair.left.memory.slice(0..8));
    here.post_send(request).expect("room");
    while pair.right.context.counters().expect("ours").rnr_naks_sent == 0 {
        std::thread::yield_now();
    }
    let room = pair.right.memory.slice(0..8);
    there.post_receive(0, [room]).expect("room");
    pair.left.success();
    pair.right.success();
}

/// The chosen device has room for 32,767 completions.
fn not_portable(wrong: bool) {
    let pair = pair();
    let capacity = if wrong { 32_768 } else { 32_767 };
    let queue = pair.left.context.create_completion_queue(capacity);
    queue.expect("room");
}

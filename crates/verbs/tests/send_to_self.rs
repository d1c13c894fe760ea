//! A device that sends to itself.

mod support;

use std::time::Instant;

use rocinante::{
    AckTimeout, CompletionQueue, ConnectOptions, OpenOptions, QueuePair, Request, Shortcut, Status,
};
use support::End;
use support::packet_socket::{NOTICED, capture, captured};

/// Two connected queue pairs of one device, each with a completion queue of its own.
fn pairs(end: &End, queues: [&CompletionQueue; 2]) -> [QueuePair; 2] {
    pairs_with(end, queues, ConnectOptions::default())
}

fn pairs_with(end: &End, queues: [&CompletionQueue; 2], options: ConnectOptions) -> [QueuePair; 2] {
    let prepare = |queue| {
        let builder = end
            .domain
            .queue_pair_builder(queue)
            .connect_options(options);
        builder.create_reliable().expect("room")
    };
    let [left, right] = queues.map(prepare);
    let (left_end, right_end) = (left.endpoint(), right.endpoint());
    [
        left.connect(right_end).expect("a peer"),
        right.connect(left_end).expect("a peer"),
    ]
}

#[test]
fn a_post_to_the_own_device_is_complete_when_it_returns() {
    let end = End::at("127.55.2.1", &OpenOptions::default());
    let queues = [(); 2].map(|()| end.context.create_completion_queue(64).expect("room"));
    let [left, right] = pairs(&end, [&queues[0], &queues[1]]);
    let mut missed = 0;
    for round in 0..1000 {
        let room = end.memory.slice(0..64);
        right.post_receive(round, [room]).expect("room");
        let send = Request::send().inline(b"to myself").id(round);
        left.post_send(send).expect("room");
        for queue in &queues {
            // A program that polls once.
            let first = queue.poll();
            missed += u32::from(first.is_none());
            let completion = first.unwrap_or_else(|| queue.wait());
            assert_eq!((completion.id, completion.status), (round, Status::Success));
        }
    }
    assert_eq!(missed, 0, "polls that found nothing");
}

/// Sends one message from the left queue pair to the right one.
fn send_one(end: &End, queues: &[CompletionQueue; 2], [left, right]: &[QueuePair; 2]) {
    let room = end.memory.slice(0..64);
    right.post_receive(1, [room]).expect("room");
    left.post_send(Request::send().inline(b"to myself"))
        .expect("room");
    for queue in queues {
        assert_eq!(queue.wait().status, Status::Success);
    }
}

#[test]
fn packets_to_the_own_device_use_loopback_while_it_is_captured() {
    const MESSAGES: usize = 10;
    let address = [127, 55, 2, 3];
    let end = End::at("127.55.2.3", &OpenOptions::default());
    let queues = [(); 2].map(|()| end.context.create_completion_queue(64).expect("room"));
    let pairs = pairs(&end, [&queues[0], &queues[1]]);
    let in_memory = || end.context.counters().expect("ours").delivered_to_self;

    let Some(socket) = capture(address) else {
        eprintln!("left out: only root may open a packet socket");
        return;
    };
    std::thread::sleep(NOTICED);
    for _ in 0..MESSAGES {
        send_one(&end, &queues, &pairs);
    }
    assert_eq!(in_memory(), 0, "loopback is captured");
    assert!(captured(&socket, address) >= 2 * MESSAGES);
    drop(socket);

    // Others may capture at the same time. Without them, a pause is enough.
    if net::socket::interface::loopback_use().is_none() {
        std::thread::sleep(NOTICED);
        send_one(&end, &queues, &pairs);
        send_one(&end, &queues, &pairs);
        assert!(in_memory() > 0, "loopback is not captured any more");
    }
}

#[test]
fn without_the_option_packets_to_the_own_device_are_sent() {
    let options = OpenOptions {
        shortcut: Shortcut::Never,
        ..OpenOptions::default()
    };
    let end = End::at("127.55.2.4", &options);
    let queues = [(); 2].map(|()| end.context.create_completion_queue(64).expect("room"));
    let pairs = pairs(&end, [&queues[0], &queues[1]]);
    for _ in 0..10 {
        send_one(&end, &queues, &pairs);
    }
    assert_eq!(end.context.counters().expect("ours").delivered_to_self, 0);
}

#[test]
fn a_long_message_to_the_own_device_arrives() {
    const LENGTH: usize = 500_000;
    let end = End::at("127.55.2.2", &OpenOptions::default());
    let queues = [(); 2].map(|()| end.context.create_completion_queue(64).expect("room"));
    let [left, _right] = pairs(&end, [&queues[0], &queues[1]]);
    let pattern: Vec<u8> = (0..LENGTH).map(|index| (index % 251) as u8).collect();
    end.memory.write(0, &pattern);
    let request = Request::write(end.memory.remote(LENGTH)).data(end.memory.slice(0..LENGTH));
    left.post_send(request).expect("room");
    assert_eq!(queues[0].wait().status, Status::Success);
    assert!(end.memory.to_vec(LENGTH..2 * LENGTH) == pattern);
}

/// One call delivers only a part of it. The device's thread delivers the rest, although the program does not poll. The
/// ACK timeout is off; the few other timers that wake the thread would take longer than the test may.
#[test]
fn the_rest_of_a_long_message_to_the_own_device_needs_no_poll() {
    const LENGTH: usize = 128 << 20;
    let end = End::at("127.55.2.5", &OpenOptions::default());
    let queues = [(); 2].map(|()| end.context.create_completion_queue(64).expect("room"));
    let options = ConnectOptions {
        ack_timeout: AckTimeout::new(0).expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let pairs = pairs_with(&end, [&queues[0], &queues[1]], options);
    // The first packets go through a socket.
    send_one(&end, &queues, &pairs);
    let allocate = || {
        end.domain
            .allocate_memory(LENGTH, support::ALL)
            .expect("room")
    };
    let (source, target) = (allocate(), allocate());
    source.write(LENGTH - 4, b"last");
    let request = Request::write(target.remote(0)).data(source.all());
    pairs[0].post_send(request).expect("room");
    let start = Instant::now();
    while target.to_vec(LENGTH - 4..) != b"last" {
        assert!(start.elapsed() < support::TIMEOUT, "it is not delivered");
        std::thread::yield_now();
    }
}

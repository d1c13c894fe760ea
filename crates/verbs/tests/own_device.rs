//! A device that sends to itself.

mod support;

use rocinante::{CompletionQueue, ConnectOptions, Options, QueuePair, Request, Status};
use support::End;

/// Two connected queue pairs of one device, each with a completion queue of its own.
fn pairs(end: &End, queues: [&CompletionQueue; 2]) -> [QueuePair; 2] {
    let prepare = |queue| {
        let builder = end
            .domain
            .queue_pair(queue)
            .connect_options(ConnectOptions::default());
        builder.reliable().expect("room")
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
    let end = End::at("127.55.2.1", &Options::default());
    let queues = [(); 2].map(|()| end.context.completion_queue(16).expect("room"));
    let [left, right] = pairs(&end, [&queues[0], &queues[1]]);
    let mut missed = 0;
    for round in 0..1000 {
        let room = end.memory.slice(0..64);
        right.post_receive(round, [room]).expect("room");
        let send = Request::send().inline(b"to myself").id(round);
        left.post(send).expect("room");
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

#[test]
fn a_long_message_to_the_own_device_arrives() {
    const LENGTH: usize = 500_000;
    let end = End::at("127.55.2.2", &Options::default());
    let queues = [(); 2].map(|()| end.context.completion_queue(16).expect("room"));
    let [left, _right] = pairs(&end, [&queues[0], &queues[1]]);
    let pattern: Vec<u8> = (0..LENGTH).map(|index| (index % 251) as u8).collect();
    end.memory.write(0, &pattern);
    let request = Request::write(end.memory.remote(LENGTH)).data(end.memory.slice(0..LENGTH));
    left.post(request).expect("room");
    assert_eq!(queues[0].wait().status, Status::Success);
    assert!(end.memory.to_vec(LENGTH..2 * LENGTH) == pattern);
}

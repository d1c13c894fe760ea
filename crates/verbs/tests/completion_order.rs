//! The order of completions: the acknowledgement of a message comes before the reply to it.

mod support;

use std::ops::Range;

use rocinante::{
    AckTimeout, CompletedWork, Completion, ConnectOptions, OpenOptions, Request, Shortcut,
};
use support::{ConnectedPair, End};

const ROUNDS: usize = 50;

/// Lengths of replies: without data, shorter and longer than the packets that are built in shared memory, one packet and
/// several, one send and several.
const REPLIES: [usize; 6] = [0, 8, 3000, 4096, 10_000, 200_000];

/// Two connected ends. A lost packet is retransmitted late, so that a busy machine does not look like a loss.
fn pair(left: &str, right: &str, shortcut: Shortcut) -> ConnectedPair {
    let options = OpenOptions {
        shortcut,
        ..OpenOptions::default()
    };
    let connect_options = ConnectOptions {
        ack_timeout: AckTimeout::new(20).expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let [left, right] = [left, right].map(|address| End::at(address, &options));
    let [here, there] = [&left, &right].map(|end| end.prepare(connect_options));
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    ConnectedPair {
        from_left: here.connect(their_end).expect("a peer"),
        from_right: there.connect(our_end).expect("a peer"),
        left,
        right,
    }
}

/// Sends a message from left to right, and a reply as soon as it is there. Returns the completions of the left end.
fn request_and_reply(pair: &ConnectedPair, reply: Range<usize>) -> [Completion; 2] {
    let room = |end: &End| end.memory.slice(0..1 << 20);
    let left = room(&pair.left);
    pair.from_left.post_receive(1, [left]).expect("room");
    let right = room(&pair.right);
    pair.from_right.post_receive(1, [right]).expect("room");
    let request = Request::send().inline(b"request");
    pair.from_left.post_send(request).expect("room");
    assert_eq!(pair.right.success().work, CompletedWork::Receive);
    let data = pair.right.memory.slice(reply);
    let reply = Request::send().data(data);
    pair.from_right.post_send(reply).expect("room");
    let completions = [(); 2].map(|()| pair.left.success());
    assert_eq!(pair.right.success().work, CompletedWork::Send);
    completions
}

fn the_request_completes_before_the_reply_arrives(pair: &ConnectedPair) {
    for length in REPLIES {
        for round in 0..ROUNDS {
            let completions = request_and_reply(pair, 0..length);
            assert_eq!(
                completions.map(|it| it.work),
                [CompletedWork::Send, CompletedWork::Receive],
                "{length} bytes, round {round}"
            );
        }
    }
}

#[test]
fn a_request_completes_before_its_reply_arrives_through_sockets() {
    let pair = pair("127.55.4.1", "127.55.4.2", Shortcut::Never);
    the_request_completes_before_the_reply_arrives(&pair);
}

#[test]
fn a_request_completes_before_its_reply_arrives_through_memory() {
    let pair = pair("127.55.4.3", "127.55.4.4", Shortcut::Always);
    the_request_completes_before_the_reply_arrives(&pair);
}

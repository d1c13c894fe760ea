//! Scenarios in which a thread waits for long.

use std::time::Duration;

use rocinante::Request;

use crate::connected_pair::{ConnectedPair, Scenario};

/// Long enough for a report after two seconds, also on a busy machine.
const LONG_WAIT: Duration = Duration::from_secs(8);

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("unpolled completion", || {
        wait("127.57.31.1", "127.57.31.2", true);
    }),
    ("idle channel", || wait("127.57.32.1", "127.57.32.2", false)),
];

/// Waits at a channel whose queue is not armed, with a completion in it or without.
fn wait(left: &str, right: &str, completes: bool) {
    let pair = ConnectedPair::new(left, right);
    let context = &pair.left.context;
    let channel = context.create_completion_channel().expect("room");
    let queue = channel.create_completion_queue(16).expect("room");
    let builder = pair.left.domain.queue_pair_builder(&queue);
    let here = builder.create_reliable().expect("room");
    let there = pair.right.prepare(crate::connected_pair::connect_options());
    let (ours, theirs) = (here.endpoint(), there.endpoint());
    let (here, _there) = (
        here.connect(theirs).expect("a peer"),
        there.connect(ours).expect("a peer"),
    );
    if completes {
        let write = Request::write(pair.right.memory.remote(0));
        let data = pair.left.memory.slice(0..8);
        here.post_send(write.data(data)).expect("room");
    }
    assert_eq!(channel.wait_for(LONG_WAIT), None);
    assert_eq!(queue.poll().is_some(), completes);
}

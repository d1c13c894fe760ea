//! Packets between two devices of this machine, which go through memory while loopback is not captured.

mod support;

use std::thread::sleep;
use std::time::Instant;

use rocinante::{AckTimeout, ConnectOptions, OpenOptions, Request, Shortcut};
use support::packet_socket::{NOTICED, capture, captured};
use support::rings::rings;
use support::{ConnectedPair, TIMEOUT};

/// Two connected ends. A lost packet is retransmitted late, so that a busy machine does not look like a loss.
fn pair(left: &str, right: &str, options: &OpenOptions) -> ConnectedPair {
    let connect_options = ConnectOptions {
        ack_timeout: AckTimeout::new(20).expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    ConnectedPair::with(left, right, options, connect_options)
}

/// Sends this many messages of several packets from left to right, and checks their data.
fn send(pair: &ConnectedPair, messages: u8) {
    const LENGTH: usize = 10_000;
    for number in 0..messages {
        pair.left.memory.write(0, &[number; LENGTH]);
        let room = pair.right.memory.slice(0..LENGTH);
        pair.from_right.post_receive(1, [room]).expect("room");
        let data = pair.left.memory.slice(0..LENGTH);
        pair.from_left
            .post_send(Request::send().data(data))
            .expect("room");
        pair.left.success();
        pair.right.success();
        let received = pair.right.memory.to_vec(0..LENGTH);
        assert!(received == [number; LENGTH]);
    }
}

/// Asserts that no packet was lost, reordered or damaged. On a busy machine an acknowledgement comes late, and a packet is sent
/// again; then it arrives twice.
fn nothing_was_lost(pair: &ConnectedPair) {
    let begin = Instant::now();
    loop {
        let counters = [&pair.left, &pair.right].map(|end| end.context.counters().expect("ours"));
        for counters in &counters {
            let wrong = counters.out_of_sequence + counters.bad_checksum;
            assert_eq!(wrong, 0, "{counters:?}");
        }
        let [sent_again, arrived_again] = [
            counters.iter().map(|it| it.retransmitted).sum::<u64>(),
            counters.iter().map(|it| it.duplicate_requests).sum(),
        ];
        if sent_again <= arrived_again {
            return;
        }
        assert!(begin.elapsed() < TIMEOUT, "{counters:?}");
        std::thread::yield_now();
    }
}

#[test]
fn packets_use_memory_unless_loopback_is_captured() {
    const MESSAGES: u8 = 20;
    let address = [127, 55, 3, 2];
    let pair = pair("127.55.3.1", "127.55.3.2", &OpenOptions::default());
    for _ in 0..3 {
        let Some(socket) = capture(address) else {
            eprintln!("left out: only root may open a packet socket");
            return;
        };
        sleep(NOTICED);
        for _ in 0..MESSAGES {
            send(&pair, 1);
            assert!(captured(&socket, address) > 0, "a message is not captured");
        }
        drop(socket);
        // Other tests may capture for a while, too.
        let earlier_rings = rings();
        let begin = Instant::now();
        while rings().is_subset(&earlier_rings) {
            assert!(begin.elapsed() < TIMEOUT, "no packet goes through memory");
            send(&pair, MESSAGES);
        }
    }
    nothing_was_lost(&pair);
}

#[test]
fn stream_switches_between_memory_and_sockets_without_loss() {
    let pair = pair("127.55.3.3", "127.55.3.4", &OpenOptions::default());
    let socket = capture([127, 55, 3, 4]);
    if socket.is_none() {
        eprintln!("left out: only root may open a packet socket");
        return;
    }
    std::thread::scope(|scope| {
        let toggle = scope.spawn(|| {
            drop(socket);
            for _ in 0..4 {
                sleep(NOTICED);
                let socket = capture([127, 55, 3, 4]);
                sleep(NOTICED);
                drop(socket);
            }
        });
        while !toggle.is_finished() {
            send(&pair, 50);
        }
    });
    nothing_was_lost(&pair);
}

#[test]
fn shortcut_always_uses_memory_while_loopback_is_captured() {
    let always = OpenOptions {
        shortcut: Shortcut::Always,
        ..OpenOptions::default()
    };
    let _socket = capture([127, 55, 3, 8]);
    let pair = pair("127.55.3.7", "127.55.3.8", &always);
    send(&pair, 20);
    assert!(!rings().is_empty());
    nothing_was_lost(&pair);
}

//! Acknowledgement timeouts: waiting, retransmitting, and the end of the retries.

use std::time::Duration;

use engine::{Config, SendFlags, SendRequest, State, Status, Work};

use crate::conversation::*;

/// 4.096 µs · 2^14.
const INTERVAL: u64 = 67_108_864;

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

fn retrying(retry_count: u8) -> Conversation {
    Conversation::with(Setup {
        retry_count,
        ..Setup::default()
    })
}

// C9-139, C9-140
#[test]
fn retransmission_starts_exactly_after_the_timeout() {
    for code in 1..=20_u8 {
        let interval = 4096 << code;
        let mut peer = Conversation::with(Setup {
            ack_timeout: code,
            ..Setup::default()
        });
        peer.wait_until(at_nanos(5));
        peer.posts(hello(1));
        peer.receives(at_nanos(5), ["send Only +0 5B ackreq"]);
        peer.receives_nothing(at_nanos(5 + interval - 1));
        peer.receives(at_nanos(5 + interval), ["send Only +0 5B ackreq"]);
        assert_eq!(peer.counters().timeouts, 1);
    }
}

// C9-140
#[test]
fn timeout_of_zero_never_expires() {
    let mut peer = Conversation::with(Setup {
        ack_timeout: 0,
        ..Setup::default()
    });
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    assert_eq!(peer.device.poll_timeout(), None);
    peer.receives_nothing(at(1 << 40));
    peer.completes([]);
}

#[test]
fn timeout_is_at_least_the_minimum_of_the_device() {
    let setup = Setup::default();
    let mut peer = Conversation::with(Setup {
        ack_timeout: 1,
        config: Config {
            min_ack_timeout: Duration::from_millis(10),
            ..setup.config.clone()
        },
        ..setup
    });
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.receives_nothing(at(9));
    peer.receives(at(10), ["send Only +0 5B ackreq"]);
}

// 7 means seven times. With rxe it has no limit.
#[test]
fn retries_end_after_the_configured_count() {
    for retry_count in [0, 1, 3, 7] {
        let mut peer = retrying(retry_count);
        peer.posts(hello(1));
        let sent = peer.received(at(10_000)).len();
        assert_eq!(sent, 1 + usize::from(retry_count));
        peer.completes([(1, Status::RetriesExhausted)]);
        assert_eq!(peer.state(), State::Error);
        assert_eq!(peer.counters().timeouts, u64::from(retry_count) + 1);
        assert_eq!(peer.device.poll_timeout(), None);
    }
}

// C9-140
#[test]
fn timeout_doubles_up_to_four_intervals() {
    let mut peer = retrying(4);
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    for intervals in [1, 3, 7, 11] {
        peer.receives_nothing(at_nanos(intervals * INTERVAL - 1));
        peer.receives(at_nanos(intervals * INTERVAL), ["send Only +0 5B ackreq"]);
    }
    peer.wait_until(at_nanos(15 * INTERVAL - 1));
    peer.completes([]);
    peer.wait_until(at_nanos(15 * INTERVAL));
    peer.completes([(1, Status::RetriesExhausted)]);
}

#[test]
fn timeout_of_more_than_a_second_is_not_doubled() {
    // 4.096 µs · 2^19 is the timeout that the connection manager chooses.
    let interval = 4096 << 19;
    let mut peer = Conversation::with(Setup {
        ack_timeout: 19,
        ..Setup::default()
    });
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    for intervals in 1..4 {
        peer.receives(at_nanos(intervals * interval), ["send Only +0 5B ackreq"]);
    }
}

#[test]
fn progress_resets_the_doubled_timeout() {
    let mut peer = retrying(7);
    peer.posts(hello(1));
    peer.posts(hello(2));
    assert_eq!(peer.received(at_nanos(3 * INTERVAL)).len(), 6);
    peer.sends(at_nanos(4 * INTERVAL), ack(PSN));
    peer.receives_nothing(at_nanos(5 * INTERVAL - 1));
    peer.receives(at_nanos(5 * INTERVAL), ["send Only +1 5B ackreq"]);
}

#[test]
fn end_of_retries_flushes_later_requests_in_order_even_unsignaled() {
    let mut peer = retrying(0);
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(hello(1).flags(SendFlags::empty()));
    peer.posts(hello(2).flags(SendFlags::empty()));
    peer.posts(SendRequest::new(3, Work::Read(remote(0x9000))).with([memory.all()]));
    peer.posts(hello(4));
    peer.posts(hello(5).flags(SendFlags::empty()));
    peer.posts_receive(6, &memory);
    assert_eq!(peer.received(at(1000)).len(), 5);
    peer.completes([
        (1, Status::RetriesExhausted),
        (2, Status::Flushed),
        (3, Status::Flushed),
        (4, Status::Flushed),
        (5, Status::Flushed),
        (6, Status::Flushed),
    ]);
}

#[test]
fn timeout_retransmits_all_unacknowledged_packets() {
    let mut peer = retrying(3);
    for id in 1..=3 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.received(at(0)).len(), 3);
    peer.receives(
        at_nanos(INTERVAL),
        [
            "send Only +0 5B ackreq",
            "send Only +1 5B ackreq",
            "send Only +2 5B ackreq",
        ],
    );
    peer.sends(at(100), ack(PSN + 2));
    assert_eq!(peer.completions().len(), 3);
}

#[test]
fn progress_restarts_the_timer() {
    let mut peer = retrying(1);
    peer.posts(hello(1));
    peer.posts(hello(2));
    assert_eq!(peer.received(at(0)).len(), 2);
    peer.sends(at(50), ack(PSN));
    peer.receives_nothing(at_nanos(50_000_000 + INTERVAL - 1));
    peer.receives(at_nanos(50_000_000 + INTERVAL), ["send Only +1 5B ackreq"]);
}

#[test]
fn progress_renews_the_retries() {
    let mut peer = retrying(1);
    for id in 1..=4 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.received(at(0)).len(), 4);
    for round in 0..3_u32 {
        // Each time the only retry is consumed, and then a packet is acknowledged after all.
        let now = at(100 * u64::from(round + 1));
        assert_eq!(peer.received(now).len(), 4 - round as usize);
        peer.sends(now, ack(PSN + round));
        assert_eq!(peer.completion().id, u64::from(round) + 1);
    }
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn sequence_nak_consumes_a_retry() {
    let mut peer = retrying(0);
    peer.posts(hello(1));
    peer.posts(hello(2));
    assert_eq!(peer.received(at(0)).len(), 2);
    peer.sends(at(1), nak_sequence(PSN));
    peer.completes([(1, Status::RetriesExhausted), (2, Status::Flushed)]);
}

#[test]
fn unanswered_read_is_retransmitted() {
    let mut peer = retrying(2);
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(SendRequest::new(1, Work::Read(remote(0x9000))).with([memory.all()]));
    let received = peer.received(at(10_000));
    assert_eq!(received.len(), 3);
    for one in &received {
        assert_eq!(one.text(), "read-request +0 va=0x9000 len=64");
    }
    peer.completes([(1, Status::RetriesExhausted)]);
}

// C9-139
#[test]
fn no_timer_runs_when_nothing_is_in_flight() {
    let mut peer = retrying(0);
    peer.posts(hello(1));
    assert_eq!(peer.received(at(0)).len(), 1);
    peer.sends(at(1), ack(PSN));
    peer.receives_nothing(at(100_000));
    peer.completes([(1, Status::Success)]);
    assert_eq!(peer.counters().timeouts, 0);
}

#[test]
fn early_or_repeated_handle_timeout_has_no_effect() {
    let mut peer = retrying(0);
    peer.posts(hello(1));
    assert_eq!(peer.received(at(0)).len(), 1);
    for millis in [0, 1, 1, 50, 67] {
        peer.device.handle_timeout(at(millis));
    }
    peer.completes([]);
    for _ in 0..3 {
        peer.device.handle_timeout(at(68));
    }
    peer.completes([(1, Status::RetriesExhausted)]);
}

#[test]
fn late_acknowledgement_ends_the_retries() {
    let mut peer = retrying(3);
    peer.posts(hello(1));
    assert_eq!(peer.received(at(250)).len(), 3);
    peer.sends(at(250), ack(PSN));
    peer.completes([(1, Status::Success)]);
    peer.receives_nothing(at(100_000));
}

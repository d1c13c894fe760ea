//! Duplicate requests: answered again, never executed again.

use engine::{State, Status};
use wire::{FlushPlacement, FlushRange, Reth};

use crate::conversation::*;

fn with_memory() -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &pattern(8192));
    (peer, memory)
}

// C9-105
#[test]
fn duplicate_send_is_acknowledged_not_executed() {
    let (mut peer, memory) = with_memory();
    peer.posts_receive(1, &memory);
    peer.posts_receive(2, &memory);
    peer.sends(at(1), send_only(PSN, b"once").ackreq());
    peer.receives(at(1), ["ack +0"]);
    peer.sends(at(2), send_only(PSN, b"ONCE").ackreq());
    peer.receives(at(2), ["ack +0"]);
    peer.completes([(1, Status::Success)]);
    assert_eq!(memory.first(4), b"once");
    assert_eq!(peer.counters().duplicate_requests, 1);
}

/// A read that ends where the first one ended, but whose start contradicts its PSN.
#[test]
fn duplicate_read_of_another_range_is_not_answered() {
    let (mut peer, memory) = with_memory();
    let first = Reth::new(memory.address(0), memory.key(), 16);
    peer.sends(at(1), read_request(PSN, first));
    peer.receives(at(1), ["read-response Only +0 16B"]);
    let other = Reth::new(memory.address(4), memory.key(), 12);
    peer.sends(at(2), read_request(PSN, other));
    peer.receives_nothing(at(2));
    peer.sends(at(3), read_request(PSN, first));
    peer.receives(at(3), ["read-response Only +0 16B"]);
}

// C9-105: even without AckReq.
#[test]
fn duplicate_without_ackreq_is_acknowledged() {
    let (mut peer, memory) = with_memory();
    peer.posts_receive(1, &memory);
    peer.sends(at(1), send_only(PSN, b"once"));
    peer.receives_nothing(at(1));
    peer.sends(at(2), send_only(PSN, b"once"));
    peer.receives(at(2), ["ack +0"]);
}

// C9-105
#[test]
fn duplicate_is_acknowledged_with_the_newest_psn() {
    let (mut peer, memory) = with_memory();
    peer.posts_receive(1, &memory);
    peer.sends(at(1), send_first(PSN, &pattern(1024)));
    peer.sends(at(1), send_middle(PSN + 1, &pattern(1024)));
    peer.sends(at(1), send_last(PSN + 2, b"end"));
    peer.sends(at(2), send_first(PSN, &pattern(1024)));
    let received = peer.received(at(2));
    assert_eq!(received[0].text(), "ack +2");
    assert_eq!(received[0].messages(), Some(1));
    peer.completes([(1, Status::Success)]);
}

// C9-105
#[test]
fn duplicate_write_is_acknowledged_not_executed() {
    let (mut peer, memory) = with_memory();
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"peer").ackreq());
    peer.receives(at(1), ["ack +0"]);
    memory.buffer.write(0, b"mine");
    peer.sends(at(2), write_only(PSN, reth, b"peer").ackreq());
    peer.receives(at(2), ["ack +0"]);
    assert_eq!(memory.first(4), b"mine");
}

#[test]
fn duplicate_inside_a_message_does_not_change_the_message() {
    let (mut peer, memory) = with_memory();
    peer.posts_receive(1, &memory);
    let (first, middle) = (pattern(1024), vec![7; 1024]);
    peer.sends(at(1), send_first(PSN, &first));
    peer.sends(at(1), send_middle(PSN + 1, &middle));
    peer.sends(at(2), send_first(PSN, &first));
    peer.sends(at(2), send_middle(PSN + 1, &middle));
    peer.sends(at(3), send_last(PSN + 2, b"end").ackreq());
    peer.receives(at(3), ["ack +2"]);
    assert_eq!(peer.completion().length, 2051);
    assert_eq!(memory.first(2051), [&first[..], &middle, b"end"].concat());
}

#[test]
fn duplicate_after_a_sequence_nak_is_acknowledged() {
    let (mut peer, memory) = with_memory();
    peer.posts_receive(1, &memory);
    peer.sends(at(1), send_only(PSN, b"one"));
    peer.sends(at(1), send_only(PSN + 2, b"three").ackreq());
    peer.receives(at(1), ["nak sequence +1"]);
    peer.sends(at(2), send_only(PSN, b"one").ackreq());
    peer.receives(at(2), ["ack +0"]);
    // Acknowledging a duplicate does not permit another NAK for the gap.
    peer.sends(at(3), send_only(PSN + 2, b"three").ackreq());
    peer.receives_nothing(at(3));
}

#[test]
fn duplicate_read_reads_the_memory_again() {
    let (mut peer, memory) = with_memory();
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), read_request(PSN, reth));
    peer.receives(at(1), ["read-response Only +0 4B"]);
    memory.buffer.write(0, b"new!");
    peer.sends(at(2), read_request(PSN, reth));
    let received = peer.received(at(2));
    assert_eq!(received[0].text(), "read-response Only +0 4B");
    assert_eq!(received[0].payload(), b"new!");
}

#[test]
fn duplicate_read_may_request_the_rest_of_a_read() {
    let (mut peer, memory) = with_memory();
    let whole = Reth::new(memory.address(0), memory.key(), 3500);
    peer.sends(at(1), read_request(PSN, whole));
    peer.receives(
        at(1),
        [
            "read-response First +0 1024B",
            "read-response Middle +1 1024B",
            "read-response Middle +2 1024B",
            "read-response Last +3 428B",
        ],
    );
    let tail = Reth::new(memory.address(2048), memory.key(), 3500 - 2048);
    peer.sends(at(2), read_request(PSN + 2, tail));
    let received = peer.received(at(2));
    let words: Vec<&str> = received.iter().map(DevicePacket::text).collect();
    assert_eq!(
        words,
        ["read-response First +2 1024B", "read-response Last +3 428B"]
    );
    assert_eq!(received[0].payload(), &pattern(8192)[2048..3072]);
    assert_eq!(received[1].payload(), &pattern(8192)[3072..3500]);
    // The sequence continues after the whole read.
    peer.sends(at(3), read_request(PSN + 4, whole));
    assert_eq!(
        peer.received(at(3))[0].text(),
        "read-response First +4 1024B"
    );
}

#[test]
fn duplicate_read_may_request_the_last_packet_only() {
    let (mut peer, memory) = with_memory();
    let whole = Reth::new(memory.address(0), memory.key(), 2048);
    peer.sends(at(1), read_request(PSN, whole));
    peer.received(at(1));
    let tail = Reth::new(memory.address(1024), memory.key(), 1024);
    peer.sends(at(2), read_request(PSN + 1, tail));
    peer.receives(at(2), ["read-response Only +1 1024B"]);
}

#[test]
fn duplicate_of_a_queued_read_is_not_answered_twice() {
    let (mut peer, memory) = with_memory();
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), read_request(PSN, reth));
    peer.sends(at(1), read_request(PSN, reth));
    peer.receives(at(1), ["read-response Only +0 4B"]);
}

#[test]
fn duplicate_read_with_another_range_is_ignored() {
    let (mut peer, memory) = with_memory();
    let read = Reth::new(memory.address(0), memory.key(), 100);
    peer.sends(at(1), read_request(PSN, read));
    peer.received(at(1));
    for (address, length) in [(0, 101), (0, 99_999), (4, 100), (4096, 100)] {
        let other = Reth::new(memory.address(address), memory.key(), length);
        peer.sends(at(2), read_request(PSN, other));
        peer.receives_nothing(at(2));
    }
    peer.sends(at(3), read_request(PSN - 1, read));
    peer.receives_nothing(at(3));
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn duplicate_atomic_is_answered_from_the_saved_result() {
    let (mut peer, memory) = with_memory();
    memory.buffer.write(8, &40_u64.to_ne_bytes());
    let (address, key) = (memory.address(8), memory.key());
    peer.sends(at(1), fetch_add(PSN, address, key, 2));
    peer.receives(at(1), ["atomic-ack +0 was=40"]);
    peer.sends(at(2), compare_swap(PSN + 1, address, key, 42, 7));
    peer.receives(at(2), ["atomic-ack +1 was=42"]);
    peer.sends(at(3), fetch_add(PSN, address, key, 2));
    peer.sends(at(3), compare_swap(PSN + 1, address, key, 42, 7));
    peer.receives(at(3), ["atomic-ack +0 was=40", "atomic-ack +1 was=42"]);
    assert_eq!(memory.word(8), 7);
}

#[test]
fn responses_to_duplicates_are_in_sequence() {
    let (mut peer, memory) = with_memory();
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    let (address, key) = (memory.address(8), memory.key());
    memory.buffer.write(8, &0_u64.to_ne_bytes());
    peer.sends(at(1), fetch_add(PSN, address, key, 1));
    peer.sends(at(1), read_request(PSN + 1, reth));
    peer.receives(at(1), ["atomic-ack +0 was=0", "read-response Only +1 4B"]);
    peer.sends(at(2), read_request(PSN + 1, reth));
    peer.sends(at(2), fetch_add(PSN, address, key, 1));
    peer.receives(at(2), ["atomic-ack +0 was=0", "read-response Only +1 4B"]);
}

#[test]
fn results_are_saved_for_as_many_requests_as_agreed() {
    let (mut peer, memory) = with_memory();
    memory.buffer.write(0, &0_u64.to_ne_bytes());
    let (address, key) = (memory.address(0), memory.key());
    for step in 0..5 {
        peer.sends(at(1), fetch_add(PSN + step, address, key, 1));
        peer.received(at(1));
    }
    // Four results are saved, so the first of five is lost and its duplicate is not answered.
    peer.sends(at(2), fetch_add(PSN, address, key, 1));
    peer.receives_nothing(at(2));
    peer.sends(at(3), fetch_add(PSN + 1, address, key, 1));
    peer.receives(at(3), ["atomic-ack +1 was=1"]);
    assert_eq!(memory.word(0), 5);
}

#[test]
fn duplicate_atomic_write_or_flush_is_answered_not_executed() {
    let (mut peer, memory) = with_memory();
    let (address, key) = (memory.address(0), memory.key());
    let range = Reth::new(address, key, 8);
    let visible = |psn| flush(psn, FlushPlacement::GLOBAL, FlushRange::Range, range);
    peer.sends(at(1), atomic_write(PSN, address, key, b"8 bytes!"));
    peer.sends(at(1), visible(PSN + 1));
    peer.receives(
        at(1),
        ["read-response Only +0 0B", "read-response Only +1 0B"],
    );
    memory.buffer.write(0, b"mine now");
    peer.sends(at(2), atomic_write(PSN, address, key, b"8 bytes!"));
    peer.sends(at(2), visible(PSN + 1));
    peer.receives(
        at(2),
        ["read-response Only +0 0B", "read-response Only +1 0B"],
    );
    assert_eq!(memory.first(8), b"mine now");
}

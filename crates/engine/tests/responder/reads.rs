//! Reads: divided into packets, read while they are sent, and ended when memory is deregistered.

use engine::{AsyncEvent, State};
use wire::{PathMtu, Reth};

use crate::conversation::*;

fn with_memory(length: usize) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &pattern(length));
    (peer, memory)
}

#[test]
fn short_read_is_answered_by_one_packet() {
    let (mut peer, memory) = with_memory(100);
    let reth = Reth::new(memory.address(10), memory.key(), 33);
    peer.sends(at(1), read_request(PSN, reth));
    let received = peer.received(at(1));
    assert_eq!(received[0].text(), "read-response Only +0 33B");
    assert_eq!(received[0].payload(), &pattern(100)[10..43]);
    assert_eq!(received[0].packet().destination, PEER);
}

#[test]
fn long_read_is_answered_by_first_middles_and_last() {
    let (mut peer, memory) = with_memory(8192);
    let reth = Reth::new(memory.address(1), memory.key(), 3073);
    peer.sends(at(1), read_request(PSN, reth));
    let received = peer.received(at(1));
    let words: Vec<&str> = received.iter().map(DevicePacket::text).collect();
    assert_eq!(
        words,
        [
            "read-response First +0 1024B",
            "read-response Middle +1 1024B",
            "read-response Middle +2 1024B",
            "read-response Last +3 1B",
        ]
    );
    let data: Vec<u8> = received
        .iter()
        .flat_map(|one| one.payload().to_vec())
        .collect();
    assert_eq!(data, pattern(8192)[1..3074]);
    // First and last packet carry an AETH, middle packets do not.
    let counts: Vec<Option<u32>> = received.iter().map(DevicePacket::messages).collect();
    assert_eq!(counts, [Some(1), None, None, Some(1)]);
}

#[test]
fn read_takes_one_packet_per_path_mtu() {
    for (length, packets) in [
        (0, 1),
        (1, 1),
        (255, 1),
        (256, 1),
        (257, 2),
        (512, 2),
        (513, 3),
    ] {
        let mut peer = Conversation::with(Setup {
            path_mtu: PathMtu::Mtu256,
            ..Setup::default()
        });
        let memory = peer.registers(0x1000, &pattern(1024));
        let reth = Reth::new(memory.address(0), memory.key(), length);
        peer.sends(at(1), read_request(PSN, reth));
        let received = peer.received(at(1));
        assert_eq!(received.len(), packets, "{length} bytes");
        let data: Vec<u8> = received
            .iter()
            .flat_map(|one| one.payload().to_vec())
            .collect();
        assert_eq!(data, pattern(1024)[..length as usize]);
        // The read takes as many PSNs as it has response packets.
        peer.sends(at(2), read_request(PSN + packets as u32, reth));
        assert_eq!(peer.received(at(2)).len(), packets);
    }
}

#[test]
fn read_is_answered_without_a_separate_acknowledgement() {
    let (mut peer, memory) = with_memory(100);
    let reth = Reth::new(memory.address(0), memory.key(), 100);
    peer.sends(at(1), read_request(PSN, reth).ackreq());
    peer.receives(at(1), ["read-response Only +0 100B"]);
}

#[test]
fn responses_keep_the_order_of_the_requests() {
    let (mut peer, memory) = with_memory(4096);
    let reth = Reth::new(memory.address(0), memory.key(), 1500);
    peer.posts_receive(1, &memory);
    peer.sends_all(
        at(1),
        [
            read_request(PSN, reth),
            send_only(PSN + 2, b"between").ackreq(),
            read_request(PSN + 3, reth),
        ],
    );
    peer.receives(
        at(1),
        [
            "read-response First +0 1024B",
            "read-response Last +1 476B",
            "ack +2",
            "read-response First +3 1024B",
            "read-response Last +4 476B",
        ],
    );
}

#[test]
fn psn_after_a_long_read_follows_its_last_response() {
    let (mut peer, memory) = with_memory(4096);
    let reth = Reth::new(memory.address(0), memory.key(), 3000);
    peer.posts_receive(1, &memory);
    peer.sends(at(1), read_request(PSN, reth));
    peer.sends(at(1), send_only(PSN + 4, b"one too far").ackreq());
    let received = peer.received(at(1));
    assert_eq!(received[3].text(), "nak sequence +3");
}

#[test]
fn deregistering_in_the_middle_of_a_read_ends_it_with_a_nak() {
    let (mut peer, memory) = with_memory(65536);
    let reth = Reth::new(memory.address(0), memory.key(), 65536);
    peer.sends(at(1), read_request(PSN, reth));
    let begun = peer.received_batch(at(1)).expect("the first packets");
    peer.deregisters(&memory);
    let nak = format!("nak access +{}", begun.len());
    peer.receives(at(1), [&*nak]);
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
    assert_eq!(peer.state(), State::Error);
    peer.receives_nothing(at(2));
}

#[test]
fn very_long_read_is_answered_in_batches() {
    let (mut peer, memory) = with_memory(1 << 20);
    let reth = Reth::new(memory.address(0), memory.key(), 1 << 20);
    peer.sends(at(1), read_request(PSN, reth));
    let received = peer.received(at(1));
    assert_eq!(received.len(), 1024);
    let data: Vec<u8> = received
        .iter()
        .flat_map(|one| one.payload().to_vec())
        .collect();
    assert_eq!(data, pattern(1 << 20));
}

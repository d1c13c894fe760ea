//! Access errors: NAK 2 (remote access error), an event, and the error state.

use std::sync::Arc;

use engine::{Access, AsyncEvent, Buffer, State, Status};
use wire::{FlushPlacement, FlushRange, Key, Reth};

use crate::conversation::*;

const ADDRESS: u64 = 0x1000;
const SIZE: usize = 64;

/// The last aligned word of the address space.
const LAST_WORD: u64 = !7;

fn ready(access: Access) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers_for(ADDRESS, &[0; SIZE], access);
    (peer, memory)
}

/// All requests that access a range of eight bytes, with the access rights they need.
fn all_requests(address: u64, key: Key) -> Vec<(PeerPacket, Access)> {
    let reth = Reth::new(address, key, 8);
    let word = b"8 bytes!";
    let flushes = |placement| flush(PSN, placement, FlushRange::Range, reth);
    vec![
        (write_only(PSN, reth, word), Access::REMOTE_WRITE),
        (atomic_write(PSN, address, key, word), Access::REMOTE_WRITE),
        (read_request(PSN, reth), Access::REMOTE_READ),
        (fetch_add(PSN, address, key, 1), Access::REMOTE_ATOMIC),
        (compare_swap(PSN, address, key, 0, 1), Access::REMOTE_ATOMIC),
        (flushes(FlushPlacement::GLOBAL), Access::FLUSH_GLOBAL),
        (
            flushes(FlushPlacement::PERSISTENT),
            Access::FLUSH_PERSISTENT,
        ),
    ]
}

/// C9-222.1.1: an R_Key violation gets a NAK, raises an affiliated event and moves the queue pair
/// to the error state.
#[track_caller]
fn assert_rejected(mut peer: Conversation, sent: PeerPacket) {
    let inbox = peer.registers(0x9000, &[0; 8]);
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    peer.sends(at(1), sent);
    peer.receives(at(1), ["nak access +0"]);
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
    assert_eq!(peer.state(), State::Error);
    peer.completes([(1, Status::Flushed), (2, Status::Flushed)]);
}

#[test]
fn write_with_immediate_and_a_wrong_key_fails_its_receive() {
    let (mut peer, memory) = ready(all_access());
    let inbox = peer.registers(0x9000, &[0; 8]);
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    let reth = Reth::new(ADDRESS, Key::new(memory.key().value() ^ 1), 8);
    peer.sends(at(1), write_immediate(PSN, reth, b"8 bytes!", *b"imm!"));
    peer.receives(at(1), ["nak access +0"]);
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
    peer.completes([(1, Status::LocalAccess), (2, Status::Flushed)]);
    assert_eq!(memory.bytes(), [0; SIZE]);
}

/// The first packet has no immediate data, and consumes no receive.
#[test]
fn long_write_with_immediate_and_a_wrong_key_leaves_the_receives() {
    let (mut peer, memory) = ready(all_access());
    let inbox = peer.registers(0x9000, &[0; 8]);
    peer.posts_receive(1, &inbox);
    let reth = Reth::new(ADDRESS, Key::new(memory.key().value() ^ 1), 1500);
    peer.sends(at(1), write_first(PSN, reth, &pattern(1024)));
    peer.receives(at(1), ["nak access +0"]);
    peer.completes([(1, Status::Flushed)]);
}

/// The memory is deregistered between two packets.
#[test]
fn last_packet_with_immediate_to_memory_that_is_gone_fails_its_receive() {
    let (mut peer, _) = ready(all_access());
    let memory = peer.registers(0x2_0000, &[0; 2048]);
    let inbox = peer.registers(0x9000, &[0; 8]);
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    let reth = Reth::new(memory.address(0), memory.key(), 1500);
    peer.sends(at(1), write_first(PSN, reth, &pattern(1024)));
    peer.deregisters(&memory);
    peer.sends(
        at(2),
        write_last_immediate(PSN + 1, &pattern(476), *b"gone"),
    );
    peer.receives(at(2), ["nak access +1"]);
    peer.completes([(1, Status::LocalAccess), (2, Status::Flushed)]);
}

#[test]
fn unknown_key_is_rejected() {
    let (_, memory) = ready(all_access());
    for key in [0, 1, memory.key().value() ^ 1, 0xffff_ffff] {
        for (sent, _) in all_requests(ADDRESS, Key::new(key)) {
            let (peer, memory) = ready(all_access());
            assert_rejected(peer, sent);
            assert_eq!(memory.bytes(), [0; SIZE]);
        }
    }
}

#[test]
fn range_outside_the_region_is_rejected() {
    let end = ADDRESS + SIZE as u64;
    for address in [ADDRESS - 8, end, end + 8, 0, LAST_WORD] {
        for index in 0..7 {
            let (peer, memory) = ready(all_access());
            let (sent, _) = all_requests(address, memory.key()).remove(index);
            assert_rejected(peer, sent);
            assert_eq!(memory.bytes(), [0; SIZE]);
        }
    }
}

// IBA 9.7.4.1
#[test]
fn range_that_ends_outside_the_region_is_rejected() {
    let (peer, memory) = ready(all_access());
    let reth = Reth::new(memory.address(60), memory.key(), 5);
    assert_rejected(peer, write_only(PSN, reth, b"five!"));
    assert_eq!(memory.bytes(), [0; SIZE]);
    let (peer, memory) = ready(all_access());
    let reth = Reth::new(memory.address(1), memory.key(), 64);
    assert_rejected(peer, read_request(PSN, reth));
    // The range of the whole message is checked with its first packet.
    let (peer, memory) = ready(all_access());
    let reth = Reth::new(memory.address(0), memory.key(), 1025);
    assert_rejected(peer, write_first(PSN, reth, &pattern(1024)));
    assert_eq!(memory.bytes(), [0; SIZE]);
}

// Annex A19.4.1.1
#[test]
fn missing_access_right_of_the_region_is_rejected() {
    for index in 0..7 {
        let (_, right) = all_requests(0, Key::new(0)).remove(index);
        let (peer, memory) = ready(all_access().difference(right));
        let (sent, _) = all_requests(ADDRESS, memory.key()).remove(index);
        assert_rejected(peer, sent);
        assert_eq!(memory.bytes(), [0; SIZE]);
    }
}

#[test]
fn granted_access_right_of_the_region_is_sufficient() {
    for index in 0..7 {
        let (_, right) = all_requests(0, Key::new(0)).remove(index);
        let (mut peer, memory) = ready(right | Access::LOCAL_WRITE);
        let (sent, _) = all_requests(ADDRESS, memory.key()).remove(index);
        peer.sends(at(1), sent.ackreq());
        assert!(!peer.received(at(1))[0].text().starts_with("nak"));
        assert_eq!(peer.state(), State::ReadyToSend);
    }
}

#[test]
fn key_of_deregistered_memory_is_rejected() {
    let (_, memory) = ready(all_access());
    for (sent, _) in all_requests(ADDRESS, memory.key()) {
        let (mut peer, memory) = ready(all_access());
        peer.deregisters(&memory);
        assert_rejected(peer, sent);
        assert_eq!(memory.bytes(), [0; SIZE]);
    }
}

#[test]
fn old_key_of_memory_registered_again_is_rejected() {
    let (mut peer, memory) = ready(all_access());
    peer.deregisters(&memory);
    let again = peer.registers(ADDRESS, &[0; SIZE]);
    assert_ne!(again.key(), memory.key());
    let reth = Reth::new(ADDRESS, memory.key(), 4);
    assert_rejected(peer, write_only(PSN, reth, b"late"));
    assert_eq!(again.bytes(), [0; SIZE]);
}

#[test]
fn memory_of_another_protection_domain_is_rejected() {
    let (mut peer, _) = ready(all_access());
    let other = peer.device.allocate_domain().expect("a domain");
    let buffer = Buffer::zeroed(SIZE);
    let registration = peer
        .device
        .register(other, Arc::clone(&buffer), ADDRESS, all_access())
        .expect("the memory is registered");
    let reth = Reth::new(ADDRESS, registration.remote_key, 4);
    assert_rejected(peer, write_only(PSN, reth, b"nope"));
    assert_eq!(buffer.to_vec(), [0; SIZE]);
}

#[test]
fn deregistering_in_the_middle_of_a_write_ends_it_with_a_nak() {
    let mut peer = Conversation::new();
    let memory = peer.registers(ADDRESS, &[0; 4096]);
    let reth = Reth::new(ADDRESS, memory.key(), 2000);
    peer.sends(at(1), write_first(PSN, reth, &pattern(1024)));
    peer.deregisters(&memory);
    peer.sends(at(2), write_last(PSN + 1, &pattern(976)));
    peer.receives(at(2), ["nak access +1"]);
    assert_eq!(memory.bytes()[1024..], [0; 3072]);
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
}

// C9-88: the key of a zero-length request is not checked.
#[test]
fn zero_length_read_or_write_needs_no_valid_key() {
    let mut peer = Conversation::new();
    let nothing = Reth::new(0xdead_beef, Key::new(0x1234_5678), 0);
    peer.sends(at(1), write_only(PSN, nothing, b"").ackreq());
    peer.receives(at(1), ["ack +0"]);
    peer.sends(at(2), read_request(PSN + 1, nothing));
    peer.receives(at(2), ["read-response Only +1 0B"]);
    assert_eq!(peer.state(), State::ReadyToSend);
}

// C9-88, but the rights of the queue pair still apply.
#[test]
fn zero_length_read_or_write_needs_the_right_of_the_queue_pair() {
    let nothing = Reth::new(0, Key::new(0), 0);
    for sent in [write_only(PSN, nothing, b""), read_request(PSN, nothing)] {
        let mut peer = Conversation::with(Setup {
            access: Access::empty(),
            ..Setup::default()
        });
        peer.sends(at(1), sent);
        peer.receives(at(1), ["nak invalid +0"]);
    }
}

#[test]
fn earlier_requests_are_answered_before_the_nak() {
    let (mut peer, memory) = ready(all_access());
    let good = Reth::new(ADDRESS, memory.key(), 4);
    let bad = Reth::new(ADDRESS, Key::new(0), 4);
    peer.sends(at(1), read_request(PSN, good));
    peer.sends(at(1), write_only(PSN + 1, good, b"good").ackreq());
    peer.sends(at(1), write_only(PSN + 2, bad, b"bad!").ackreq());
    peer.sends(at(1), write_only(PSN + 3, good, b"late").ackreq());
    peer.receives(
        at(1),
        ["read-response Only +0 4B", "ack +1", "nak access +2"],
    );
    assert_eq!(memory.first(4), b"good");
    assert_eq!(peer.counters().wrong_state, 1);
}

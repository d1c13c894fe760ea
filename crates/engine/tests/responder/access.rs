//! Memory that the peer may not touch: NAK 2, an event, and the connection ends.

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

/// Everything that a peer can do with a range of memory, as many bytes as an atomic takes.
fn all_requests(address: u64, key: Key) -> Vec<(Said, Access)> {
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

/// C9-222.1.1: an R_Key violation gets a NAK, raises an affiliated event and breaks the queue pair.
#[track_caller]
fn refused(mut peer: Conversation, said: Said) {
    let inbox = peer.registers(0x9000, &[0; 8]);
    peer.receives(1, &inbox);
    peer.receives(2, &inbox);
    peer.says(at(1), said);
    peer.hears(at(1), ["nak access +0"]);
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
    assert_eq!(peer.state(), State::Error);
    peer.completes([(1, Status::Flushed), (2, Status::Flushed)]);
}

#[test]
fn a_key_that_was_never_given_out() {
    let (_, memory) = ready(everything());
    for key in [0, 1, memory.key().value() ^ 1, 0xffff_ffff] {
        for (said, _) in all_requests(ADDRESS, Key::new(key)) {
            let (peer, memory) = ready(everything());
            refused(peer, said);
            assert_eq!(memory.bytes(), [0; SIZE]);
        }
    }
}

#[test]
fn a_range_outside_of_the_region() {
    let end = ADDRESS + SIZE as u64;
    for address in [ADDRESS - 8, end, end + 8, 0, LAST_WORD] {
        for index in 0..7 {
            let (peer, memory) = ready(everything());
            let (said, _) = all_requests(address, memory.key()).remove(index);
            refused(peer, said);
            assert_eq!(memory.bytes(), [0; SIZE]);
        }
    }
}

#[test]
fn a_range_that_begins_inside_and_ends_outside_of_the_region() {
    let (peer, memory) = ready(everything());
    let reth = Reth::new(memory.address(60), memory.key(), 5);
    refused(peer, write_only(PSN, reth, b"five!"));
    assert_eq!(memory.bytes(), [0; SIZE]);
    let (peer, memory) = ready(everything());
    let reth = Reth::new(memory.address(1), memory.key(), 64);
    refused(peer, read_request(PSN, reth));
    // The whole message is looked at when its first packet comes.
    let (peer, memory) = ready(everything());
    let reth = Reth::new(memory.address(0), memory.key(), 1025);
    refused(peer, write_first(PSN, reth, &pattern(1024)));
    assert_eq!(memory.bytes(), [0; SIZE]);
}

#[test]
fn a_right_that_the_region_was_not_registered_with() {
    for index in 0..7 {
        let (_, right) = all_requests(0, Key::new(0)).remove(index);
        let (peer, memory) = ready(everything().difference(right));
        let (said, _) = all_requests(ADDRESS, memory.key()).remove(index);
        refused(peer, said);
        assert_eq!(memory.bytes(), [0; SIZE]);
    }
}

#[test]
fn a_right_that_the_region_was_registered_with_is_enough() {
    for index in 0..7 {
        let (_, right) = all_requests(0, Key::new(0)).remove(index);
        let (mut peer, memory) = ready(right | Access::LOCAL_WRITE);
        let (said, _) = all_requests(ADDRESS, memory.key()).remove(index);
        peer.says(at(1), said.ask());
        assert!(!peer.listens(at(1))[0].words().starts_with("nak"));
        assert_eq!(peer.state(), State::ReadyToSend);
    }
}

#[test]
fn the_key_of_memory_that_was_deregistered() {
    let (_, memory) = ready(everything());
    for (said, _) in all_requests(ADDRESS, memory.key()) {
        let (mut peer, memory) = ready(everything());
        peer.deregisters(&memory);
        refused(peer, said);
        assert_eq!(memory.bytes(), [0; SIZE]);
    }
}

#[test]
fn the_old_key_of_memory_that_was_registered_again() {
    let (mut peer, memory) = ready(everything());
    peer.deregisters(&memory);
    let again = peer.registers(ADDRESS, &[0; SIZE]);
    assert_ne!(again.key(), memory.key());
    let reth = Reth::new(ADDRESS, memory.key(), 4);
    refused(peer, write_only(PSN, reth, b"late"));
    assert_eq!(again.bytes(), [0; SIZE]);
}

#[test]
fn memory_of_another_protection_domain() {
    let (mut peer, _) = ready(everything());
    let other = peer.device.allocate_domain().expect("a domain");
    let buffer = Buffer::zeroed(SIZE);
    let registration = peer
        .device
        .register(other, Arc::clone(&buffer), ADDRESS, everything())
        .expect("the memory is registered");
    let reth = Reth::new(ADDRESS, registration.remote_key, 4);
    refused(peer, write_only(PSN, reth, b"nope"));
    assert_eq!(buffer.to_vec(), [0; SIZE]);
}

#[test]
fn memory_that_was_deregistered_in_the_middle_of_a_write() {
    let mut peer = Conversation::new();
    let memory = peer.registers(ADDRESS, &[0; 4096]);
    let reth = Reth::new(ADDRESS, memory.key(), 2000);
    peer.says(at(1), write_first(PSN, reth, &pattern(1024)));
    peer.deregisters(&memory);
    peer.says(at(2), write_last(PSN + 1, &pattern(976)));
    peer.hears(at(2), ["nak access +1"]);
    assert_eq!(memory.bytes()[1024..], [0; 3072]);
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
}

// C9-88: no bytes, no key check.
#[test]
fn a_zero_length_read_or_write_needs_no_valid_key() {
    let mut peer = Conversation::new();
    let nothing = Reth::new(0xdead_beef, Key::new(0x1234_5678), 0);
    peer.says(at(1), write_only(PSN, nothing, b"").ask());
    peer.hears(at(1), ["ack +0"]);
    peer.says(at(2), read_request(PSN + 1, nothing));
    peer.hears(at(2), ["read-response Only +1 0B"]);
    assert_eq!(peer.state(), State::ReadyToSend);
}

// C9-88, but the queue pair's own rights still hold.
#[test]
fn a_zero_length_read_or_write_still_needs_the_right_of_the_queue_pair() {
    let nothing = Reth::new(0, Key::new(0), 0);
    for said in [write_only(PSN, nothing, b""), read_request(PSN, nothing)] {
        let mut peer = Conversation::with(Setup {
            access: Access::empty(),
            ..Setup::default()
        });
        peer.says(at(1), said);
        peer.hears(at(1), ["nak invalid +0"]);
    }
}

#[test]
fn what_was_asked_before_is_still_answered() {
    let (mut peer, memory) = ready(everything());
    let good = Reth::new(ADDRESS, memory.key(), 4);
    let bad = Reth::new(ADDRESS, Key::new(0), 4);
    peer.says(at(1), read_request(PSN, good));
    peer.says(at(1), write_only(PSN + 1, good, b"good").ask());
    peer.says(at(1), write_only(PSN + 2, bad, b"bad!").ask());
    peer.says(at(1), write_only(PSN + 3, good, b"late").ask());
    peer.hears(
        at(1),
        ["read-response Only +0 4B", "ack +1", "nak access +2"],
    );
    assert_eq!(memory.first(4), b"good");
    assert_eq!(peer.counters().wrong_state, 1);
}

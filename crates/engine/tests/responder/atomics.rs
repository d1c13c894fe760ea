//! Atomics, atomic writes and flushes.

use std::sync::Arc;

use engine::{Buffer, Extent, State};
use wire::{FlushPlacement, FlushRange, Key, Reth};

use crate::conversation::*;

fn with_word(word: u64) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &word.to_ne_bytes().repeat(4));
    (peer, memory)
}

#[test]
fn fetch_and_add_adds_and_wraps() {
    let (mut peer, memory) = with_word(u64::MAX);
    let (address, key) = (memory.address(8), memory.key());
    peer.sends(at(1), fetch_add(PSN, address, key, 3));
    peer.receives(at(1), ["atomic-ack +0 was=18446744073709551615"]);
    assert_eq!(memory.word(8), 2);
    assert_eq!((memory.word(0), memory.word(16)), (u64::MAX, u64::MAX));
}

#[test]
fn compare_and_swap_replaces_only_an_equal_value() {
    let (mut peer, memory) = with_word(5);
    let (address, key) = (memory.address(0), memory.key());
    peer.sends(at(1), compare_swap(PSN, address, key, 6, 9));
    peer.receives(at(1), ["atomic-ack +0 was=5"]);
    assert_eq!(memory.word(0), 5);
    peer.sends(at(2), compare_swap(PSN + 1, address, key, 5, 9));
    peer.receives(at(2), ["atomic-ack +1 was=5"]);
    assert_eq!(memory.word(0), 9);
}

#[test]
fn atomic_counts_as_a_message() {
    let (mut peer, memory) = with_word(0);
    peer.sends(at(1), fetch_add(PSN, memory.address(0), memory.key(), 1));
    assert_eq!(peer.received(at(1))[0].messages(), Some(1));
}

// The memory must be aligned too: an aligned address can name unaligned memory.
#[test]
fn atomic_on_unaligned_memory_is_rejected_and_changes_nothing() {
    let mut peer = Conversation::new();
    let buffer = Buffer::zeroed(64);
    let whole = Extent::from(Arc::clone(&buffer));
    let extent = whole.part(4, 32).expect("the part is inside");
    let registration = peer
        .device
        .register(peer.domain, extent, 0x1000, all_access())
        .expect("the memory is registered");
    peer.sends(at(1), fetch_add(PSN, 0x1000, registration.remote_key, 1));
    peer.receives(at(1), ["nak operational +0"]);
    assert_eq!(peer.state(), State::Error);
    assert_eq!(buffer.to_vec(), [0; 64]);
}

// oA19-28
#[test]
fn atomic_write_writes_eight_bytes_and_is_answered_by_an_empty_read_response() {
    let (mut peer, memory) = with_word(0);
    let sent = atomic_write(PSN, memory.address(8), memory.key(), b"8 bytes!");
    peer.sends(at(1), sent);
    peer.receives(at(1), ["read-response Only +0 0B"]);
    assert_eq!(memory.bytes()[8..16], *b"8 bytes!");
    assert_eq!((memory.word(0), memory.word(16)), (0, 0));
}

// Annex A19.4.2
// The address counts, even if the memory is aligned.
#[test]
fn atomic_write_to_an_unaligned_address_is_rejected() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1004, &[0; 32]);
    let sent = atomic_write(PSN, 0x1004, memory.key(), b"8 bytes!");
    peer.sends(at(1), sent);
    peer.receives(at(1), ["nak invalid +0"]);
    assert_eq!(memory.bytes(), [0; 32]);
}

#[test]
fn flush_is_answered_by_an_empty_read_response() {
    let (mut peer, memory) = with_word(0);
    let reth = Reth::new(memory.address(0), memory.key(), 32);
    let both = FlushPlacement::new(3);
    peer.sends(at(1), flush(PSN, both, FlushRange::Range, reth));
    peer.receives(at(1), ["read-response Only +0 0B"]);
}

// Annex A19.4.1.2
#[test]
fn flush_of_a_whole_region_needs_a_key_but_no_range() {
    let (mut peer, memory) = with_word(0);
    let reth = Reth::new(0, memory.key(), 0);
    let sent = flush(PSN, FlushPlacement::GLOBAL, FlushRange::Region, reth);
    peer.sends(at(1), sent);
    peer.receives(at(1), ["read-response Only +0 0B"]);
    let reth = Reth::new(memory.address(0), Key::new(0), 8);
    let sent = flush(PSN + 1, FlushPlacement::GLOBAL, FlushRange::Region, reth);
    peer.sends(at(2), sent);
    peer.receives(at(2), ["nak access +1"]);
}

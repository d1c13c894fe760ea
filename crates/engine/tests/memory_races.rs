//! Threads and the device access the same bytes of a buffer at the same time. Miri reports a data
//! race here if an access is not atomic or not of a whole word.

#![expect(clippy::disallowed_methods, reason = "these tests need threads")]

mod conversation;

use std::sync::Arc;
use std::thread;

use conversation::*;
use engine::Buffer;
use wire::Reth;

const SIZE: usize = 8 * 20;
const ROUNDS: usize = if cfg!(miri) { 5 } else { 20_000 };

/// Asserts that every word in the middle has the value of one writer.
fn assert_whole_words(buffer: &Buffer) {
    let mut read = [0; SIZE];
    buffer.read(0, &mut read);
    for word in read[8..SIZE - 8].chunks(8) {
        assert!(
            word.iter().all(|byte| *byte == word[0]),
            "the word mixes two writes: {word:x?}"
        );
    }
}

#[test]
fn concurrent_copies_write_whole_words() {
    let buffer = Buffer::zeroed(SIZE);
    thread::scope(|scope| {
        for value in [0x11, 0x22] {
            let buffer = &buffer;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    buffer.write(0, &[value; SIZE]);
                    // A part of the first and of the last word, which the other threads write as a
                    // whole.
                    buffer.write(5, &[value; SIZE - 5 - 3]);
                }
            });
        }
        for _ in 0..ROUNDS {
            assert_whole_words(&buffer);
        }
    });
}

#[test]
fn concurrent_partial_writes_of_one_word_keep_both_parts() {
    let buffer = Buffer::zeroed(8);
    thread::scope(|scope| {
        for offset in [0, 3] {
            let buffer = &buffer;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bytes = [round as u8; 3];
                    let mut read = [0; 3];
                    buffer.write(offset, &bytes);
                    buffer.read(offset, &mut read);
                    assert_eq!(read, bytes, "the other thread must not change these bytes");
                }
            });
        }
    });
}

#[test]
fn peer_and_thread_access_the_same_buffer_without_a_race() {
    let mut peer = Conversation::new();
    let buffer = Buffer::zeroed(SIZE);
    let memory = Arc::clone(&buffer);
    let registration = peer
        .device
        .register(peer.domain, memory, 0x1000, all_access())
        .expect("the memory is registered");
    let key = registration.remote_key;
    let rounds = ROUNDS as u32 / 5;
    thread::scope(|scope| {
        let buffer = &buffer;
        scope.spawn(move || {
            for _ in 0..rounds {
                buffer.write(0, &[0x11; SIZE]);
                assert_whole_words(buffer);
            }
        });
        for round in 0..rounds {
            let psn = PSN + 3 * round;
            let whole = Reth::new(0x1000, key, SIZE as u32);
            peer.sends(at(1), write_only(psn, whole, &[0x22; SIZE]));
            // The peer writes the first word partially, so no check for whole words covers it.
            peer.sends(at(1), fetch_add(psn + 1, 0x1000, key, 1));
            peer.sends(at(1), read_request(psn + 2, whole));
            let received = peer.received(at(1));
            let read = received.last().expect("the response to the read");
            let words = read.payload()[8..].chunks(8);
            let mut torn = words.filter(|word| word.iter().any(|byte| *byte != word[0]));
            assert_eq!(torn.next(), None);
        }
    });
}

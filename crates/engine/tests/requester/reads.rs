//! Reads: responses are accepted packet by packet, and missing ones are requested again.

use engine::{Access, Config, Segment, SendFlags, SendRequest, State, Status, WindowLimits, Work};
use wire::NakCode;

use crate::conversation::*;

const REMOTE: u64 = 0x9000;

fn read(id: u64, into: Segment) -> SendRequest {
    SendRequest::new(id, Work::Read(remote(REMOTE))).with([into])
}

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

/// A read of four packets whose request is sent.
fn reading() -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 4096]);
    peer.posts(read(1, inbox.segment(0, 3500)));
    peer.receives(at(0), ["read-request +0 va=0x9000 len=3500"]);
    (peer, inbox)
}

fn part(index: usize) -> Vec<u8> {
    let whole = pattern(3500);
    whole[index * 1024..whole.len().min((index + 1) * 1024)].to_vec()
}

#[test]
fn responses_fill_the_memory_and_the_last_completes() {
    let (mut peer, inbox) = reading();
    peer.sends(at(1), response_first(PSN, &part(0)));
    peer.sends(at(1), response_middle(PSN + 1, &part(1)));
    peer.sends(at(1), response_middle(PSN + 2, &part(2)));
    peer.completes([]);
    peer.sends(at(1), response_last(PSN + 3, &part(3)));
    let completion = peer.completion();
    assert_eq!(completion.status, Status::Success);
    assert_eq!((completion.id, completion.length), (1, 3500));
    assert_eq!(inbox.first(3500), pattern(3500));
    assert_eq!(inbox.bytes()[3500..], [0; 596]);
    peer.receives_nothing(at(1000));
}

#[test]
fn read_is_scattered_over_its_segments() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    let segments = [inbox.segment(0, 2), inbox.segment(10, 3)];
    peer.posts(SendRequest::new(1, Work::Read(remote(REMOTE))).with(segments));
    peer.receives(at(0), ["read-request +0 va=0x9000 len=5"]);
    peer.sends(at(1), response_only(PSN, b"abcde"));
    peer.completes([(1, Status::Success)]);
    assert_eq!(inbox.first(13), b"ab\0\0\0\0\0\0\0\0cde");
}

#[test]
fn later_response_is_an_implied_nak_and_only_the_missing_part_is_requested_again() {
    let (mut peer, inbox) = reading();
    peer.posts(hello(2));
    peer.receives(at(0), ["send Only +4 5B ackreq"]);
    peer.sends(at(1), response_first(PSN, &part(0)));
    // Response 1 is late, or lost.
    peer.sends(at(1), response_middle(PSN + 2, &part(2)));
    peer.receives_nothing(at(1));
    peer.sends(at(1), response_last(PSN + 3, &part(3)));
    peer.receives(at(1), ["read-request +1 va=0x9400 len=2476"]);
    // Responses that are still in flight arrive, and do not count as another loss.
    peer.sends(at(2), ack(PSN + 4));
    peer.receives_nothing(at(2));
    peer.completes([]);
    // With the missing one, all are there.
    peer.sends(at(3), response_first(PSN + 1, &part(1)));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    assert_eq!(inbox.first(3500), pattern(3500));
    peer.sends(at(3), response_middle(PSN + 2, &part(2)));
    peer.sends(at(3), response_last(PSN + 3, &part(3)));
    peer.receives_nothing(at(1000));
}

#[test]
fn late_response_is_put_in_its_place() {
    let (mut peer, inbox) = reading();
    for index in [1, 2, 0] {
        let data = &part(index);
        peer.sends(at(1), response_middle(PSN + index as u32, data));
    }
    peer.sends(at(1), response_last(PSN + 3, &part(3)));
    peer.completes([(1, Status::Success)]);
    assert_eq!(inbox.first(3500), pattern(3500));
    peer.receives_nothing(at(1000));
    assert_eq!(peer.counters().implied_naks, 0);
}

/// Three reads, of which each is answered by one packet.
#[test]
fn lost_responses_of_several_reads_are_requested_one_after_another() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    for id in 0..4 {
        peer.posts(read(id, inbox.segment(8 * id, 8)));
    }
    assert_eq!(peer.received(at(0)).len(), 4);
    peer.sends(at(1), response_only(PSN + 1, &[1; 8]));
    peer.receives(at(1), ["read-request +0 va=0x9000 len=8"]);
    peer.sends(at(1), response_only(PSN + 3, &[3; 8]));
    peer.receives_nothing(at(1));
    peer.sends(at(2), response_only(PSN, &[7; 8]));
    peer.completes([(0, Status::Success), (1, Status::Success)]);
    peer.receives(at(2), ["read-request +2 va=0x9000 len=8"]);
    peer.sends(at(3), response_only(PSN + 2, &[2; 8]));
    peer.completes([(2, Status::Success), (3, Status::Success)]);
    peer.receives_nothing(at(1000));
}

#[test]
fn response_that_is_requested_again_already_takes_no_retry() {
    let mut peer = Conversation::with(Setup {
        retry_count: 1,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 4096]);
    peer.posts(read(1, inbox.segment(0, 3500)));
    assert_eq!(peer.received(at(0)).len(), 1);
    peer.sends(at(1), response_middle(PSN + 1, &part(1)));
    peer.sends(at(1), response_last(PSN + 3, &part(3)));
    peer.receives(at(1), ["read-request +0 va=0x9000 len=3500"]);
    // Another one is missing, and comes with the rest.
    peer.sends(at(2), response_first(PSN, &part(0)));
    peer.receives_nothing(at(2));
    peer.receives(at(70), ["read-request +2 va=0x9800 len=1452"]);
    peer.completes([]);
}

/// All of it is requested again, so another gap among what was kept would be none.
#[test]
fn timeout_forgets_what_was_kept() {
    let (mut peer, _) = reading();
    for index in 1..3 {
        let data = &part(index);
        peer.sends(at(1), response_middle(PSN + index as u32, data));
    }
    peer.receives(at(70), ["read-request +0 va=0x9000 len=3500"]);
    peer.sends(at(71), response_first(PSN, &part(0)));
    peer.sends(at(71), response_last(PSN + 3, &part(3)));
    peer.completes([]);
}

#[test]
fn acknowledgement_that_was_kept_does_not_wait_for_a_read_behind_it() {
    let (mut peer, inbox) = reading();
    let outbox = peer.registers(0x9000, &pattern(3000));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.all()]));
    let fences = read(3, inbox.segment(4000, 8));
    peer.posts(fences.flags(SendFlags::SIGNALED | SendFlags::FENCE));
    assert_eq!(peer.received(at(0)).len(), 3);
    for index in 1..4 {
        let data = &part(index);
        peer.sends(at(1), response_middle(PSN + index as u32, data));
    }
    peer.sends(at(1), ack(PSN + 6));
    peer.receives(at(1), ["read-request +0 va=0x9000 len=3500"]);
    peer.sends(at(2), response_first(PSN, &part(0)));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

/// Its place in the order of PSNs is that of a read.
#[test]
fn acknowledgement_in_place_of_a_read_response_is_not_kept_for_ever() {
    let (mut peer, _) = reading();
    peer.sends(at(1), ack(PSN + 3));
    peer.receives(at(1), ["read-request +0 va=0x9000 len=3500"]);
    for index in 0..3 {
        let data = &part(index);
        peer.sends(at(2), response_middle(PSN + index as u32, data));
    }
    peer.completes([]);
    peer.sends(at(2), response_last(PSN + 3, &part(3)));
    peer.completes([(1, Status::Success)]);
}

/// The peer acknowledges a duplicate of an earlier request: with the PSN of the last response, because it has executed the read.
#[test]
fn acknowledgement_that_was_kept_does_not_hide_the_data_with_its_psn() {
    let (mut peer, inbox) = reading();
    peer.sends(at(1), ack(PSN + 3));
    peer.receives(at(1), ["read-request +0 va=0x9000 len=3500"]);
    for index in 1..3 {
        let data = &part(index);
        peer.sends(at(2), response_middle(PSN + index as u32, data));
    }
    peer.sends(at(2), response_last(PSN + 3, &part(3)));
    peer.sends(at(2), ack(PSN + 3));
    peer.completes([]);
    peer.sends(at(3), response_first(PSN, &part(0)));
    peer.completes([(1, Status::Success)]);
    assert_eq!(inbox.first(3500), pattern(3500));
}

// IBA 9.7.5.1.2
#[test]
fn acknowledgement_of_a_request_after_a_read_is_an_implied_nak() {
    let (mut peer, _) = reading();
    peer.posts(hello(2));
    peer.receives(at(0), ["send Only +4 5B ackreq"]);
    peer.sends(at(1), ack(PSN + 4));
    peer.completes([]);
    peer.receives(at(1), ["read-request +0 va=0x9000 len=3500"]);
    assert!(peer.counters().implied_naks >= 1);
}

// IBA 9.7.5.1.2
#[test]
fn response_acknowledges_earlier_requests() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts(hello(1));
    peer.posts(read(2, inbox.segment(0, 4)));
    assert_eq!(peer.received(at(0)).len(), 2);
    peer.sends(at(1), response_only(PSN + 1, b"data"));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn later_atomic_response_is_an_implied_nak() {
    let (mut peer, inbox) = reading();
    let work = Work::FetchAdd {
        remote: remote(REMOTE),
        add: 1,
    };
    peer.posts(SendRequest::new(2, work).with([inbox.segment(4088, 8)]));
    peer.receives(at(0), ["fetch-add +4 va=0x9000 add=1"]);
    peer.sends(at(1), atomic_ack(PSN + 4, 7));
    peer.completes([]);
    peer.receives(at(1), ["read-request +0 va=0x9000 len=3500"]);
    assert_eq!(inbox.word(4088), 0);
    for index in 0..4 {
        let data = &part(index);
        peer.sends(at(2), response_middle(PSN + index as u32, data));
    }
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    assert_eq!(inbox.word(4088), 7);
}

#[test]
fn timeout_requests_only_the_missing_part() {
    let (mut peer, _) = reading();
    peer.sends(at(1), response_first(PSN, &part(0)));
    peer.sends(at(1), response_middle(PSN + 1, &part(1)));
    peer.receives(at(10), ["read-request +2 va=0x9800 len=1452"]);
}

#[test]
fn duplicate_response_is_dropped() {
    let (mut peer, inbox) = reading();
    peer.sends(at(1), response_first(PSN, &part(0)));
    peer.sends(at(1), response_middle(PSN + 1, &part(1)));
    peer.sends(at(1), response_first(PSN, &[0xff; 1024]));
    assert_eq!(inbox.first(1024), part(0));
    assert_eq!(peer.counters().unexpected_responses, 1);
    peer.receives_nothing(at(1));
}

#[test]
fn response_of_the_wrong_length_is_a_bad_response() {
    for (index, length) in [(0, 1023), (0, 0), (0, 1028), (3, 427), (3, 429), (3, 1024)] {
        let (mut peer, _) = reading();
        peer.posts(hello(2));
        for before in 0..index {
            peer.sends(at(1), response_middle(PSN + before, &part(0)));
        }
        peer.sends(at(1), response_middle(PSN + index, &pattern(length)));
        peer.completes([(1, Status::BadResponse), (2, Status::Flushed)]);
        assert_eq!(peer.state(), State::Error);
    }
}

#[test]
fn response_of_the_wrong_kind_is_a_bad_response() {
    let (mut peer, _) = reading();
    peer.sends(at(1), atomic_ack(PSN, 1));
    peer.completes([(1, Status::BadResponse)]);
}

#[test]
fn rejected_read_completes_with_the_status_of_the_nak() {
    let (mut peer, _) = reading();
    peer.sends(at(1), response_first(PSN, &part(0)));
    peer.sends(at(1), nak(PSN + 1, NakCode::RemoteAccess));
    peer.completes([(1, Status::RemoteAccess)]);
}

#[test]
fn read_into_read_only_memory_is_a_local_protection_error() {
    let mut peer = Conversation::new();
    let inbox = peer.registers_for(0x1000, &[0; 64], Access::REMOTE_READ);
    peer.posts(read(1, inbox.segment(0, 4)));
    peer.posts(hello(2));
    peer.received(at(0));
    peer.sends(at(1), response_only(PSN, b"data"));
    peer.completes([(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(inbox.bytes(), [0; 64]);
}

#[test]
fn empty_read_completes_with_an_empty_response() {
    let mut peer = Conversation::new();
    peer.posts(SendRequest::new(1, Work::Read(remote(REMOTE))));
    peer.receives(at(0), ["read-request +0 va=0x9000 len=0"]);
    peer.sends(at(1), response_only(PSN, b""));
    peer.completes([(1, Status::Success)]);
}

/// With a window of eight packets, a long read is requested in parts of half a window.
fn reading_in_parts() -> (Conversation, Region) {
    let setup = Setup::default();
    let window = WindowLimits {
        min: 8192,
        initial: 8192,
        max: 8192,
    };
    let mut peer = Conversation::with(Setup {
        config: Config {
            window,
            ..setup.config.clone()
        },
        ..setup
    });
    let inbox = peer.registers(0x1000, &[0; 10240]);
    peer.posts(read(1, inbox.segment(0, 10240)));
    peer.receives(
        at(0),
        [
            "read-request +0 va=0x9000 len=4096",
            "read-request +4 va=0xa000 len=4096",
        ],
    );
    (peer, inbox)
}

#[test]
fn large_read_is_requested_in_parts() {
    let (mut peer, inbox) = reading_in_parts();
    let data = pattern(10240);
    for index in 0..10_u32 {
        let start = index as usize * 1024;
        let sent = response_middle(PSN + index, &data[start..start + 1024]);
        peer.sends(at(1), sent);
        match index {
            // Two packets fit the window again: the last part.
            1 => peer.receives(at(1), ["read-request +8 va=0xb000 len=2048"]),
            _ => peer.receives_nothing(at(1)),
        }
    }
    peer.completes([(1, Status::Success)]);
    assert_eq!(inbox.bytes(), data);
}

#[test]
fn part_that_lost_a_response_is_requested_again_to_its_end() {
    let (mut peer, _) = reading_in_parts();
    let data = pattern(1024);
    peer.sends(at(1), response_first(PSN, &data));
    peer.sends(at(1), response_last(PSN + 3, &data));
    // Meanwhile the next part begins.
    peer.receives(
        at(1),
        [
            "read-request +1 va=0x9400 len=3072",
            "read-request +8 va=0xb000 len=2048",
        ],
    );
}

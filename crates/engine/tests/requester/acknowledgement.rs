//! Effects of acknowledgements and NAKs.

use engine::{SendRequest, State, Status, Work};
use wire::NakCode;

use crate::conversation::*;

/// Three messages of one packet each are sent.
fn with_three_sends() -> Conversation {
    let mut peer = Conversation::new();
    for id in 1..=3 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
    }
    peer.receives(
        at(0),
        [
            "send Only +0 5B ackreq",
            "send Only +1 5B ackreq",
            "send Only +2 5B ackreq",
        ],
    );
    peer
}

#[test]
fn acknowledgement_completes_its_message() {
    let mut peer = with_three_sends();
    peer.completes([]);
    peer.sends(at(1), ack(PSN));
    peer.completes([(1, Status::Success)]);
    peer.sends(at(1), ack(PSN + 1));
    peer.completes([(2, Status::Success)]);
}

// IBA 9.7.5.1.2
#[test]
fn cumulative_acknowledgement_completes_several_messages() {
    let mut peer = with_three_sends();
    peer.sends(at(1), ack(PSN + 2));
    peer.completes([
        (1, Status::Success),
        (2, Status::Success),
        (3, Status::Success),
    ]);
    peer.receives_nothing(at(1000));
}

#[test]
fn acknowledgement_inside_a_message_completes_nothing() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(4096));
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 2500)]));
    assert_eq!(peer.received(at(0)).len(), 3);
    peer.sends(at(1), ack(PSN + 1));
    peer.completes([]);
    peer.sends(at(2), ack(PSN + 2));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn acknowledgements_outside_the_outstanding_range_are_dropped() {
    let mut peer = with_three_sends();
    // For packets that were never sent.
    for psn in [PSN + 3, PSN + 4, PSN + 1000] {
        peer.sends(at(1), ack(psn));
        peer.sends(at(1), nak(psn, NakCode::RemoteAccess));
    }
    peer.completes([]);
    peer.sends(at(2), ack(PSN + 1));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    // For packets that were acknowledged before.
    peer.sends(at(3), ack(PSN));
    peer.sends(at(3), nak(PSN, NakCode::InvalidRequest));
    peer.sends(at(3), nak_sequence(PSN + 1));
    peer.sends(at(3), rnr_nak(PSN, 12));
    peer.completes([]);
    peer.receives_nothing(at(3));
    assert_eq!(peer.state(), State::ReadyToSend);
    assert!(peer.counters().unexpected_responses >= 8);
}

#[test]
fn sequence_nak_acknowledges_earlier_packets_and_retransmits_the_missing_one() {
    let mut peer = with_three_sends();
    peer.sends(at(1), nak_sequence(PSN + 1));
    peer.completes([(1, Status::Success)]);
    peer.receives(at(1), ["send Only +1 5B ackreq"]);
    peer.sends(at(2), ack(PSN + 2));
    peer.completes([(2, Status::Success), (3, Status::Success)]);
    peer.receives_nothing(at(3));
    assert_eq!(peer.counters().retransmitted, 1);
}

#[test]
fn peer_that_discards_packets_behind_a_gap_gets_them_in_rounds_of_double_size() {
    let mut peer = Conversation::new();
    for id in 0..9 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
    }
    assert_eq!(peer.received(at(0)).len(), 9);
    peer.sends(at(1), nak_sequence(PSN));
    peer.receives(at(1), ["send Only +0 5B ackreq"]);
    peer.sends(at(2), ack(PSN));
    peer.receives(at(2), ["send Only +1 5B ackreq", "send Only +2 5B ackreq"]);
    peer.sends(at(3), ack(PSN + 1));
    peer.receives_nothing(at(3));
    peer.sends(at(3), ack(PSN + 2));
    let received = peer.received(at(3));
    assert_eq!(received.len(), 4);
    peer.sends(at(4), ack(PSN + 6));
    peer.receives(at(4), ["send Only +7 5B ackreq", "send Only +8 5B ackreq"]);
    peer.sends(at(5), ack(PSN + 8));
    assert_eq!(peer.completions().len(), 9);
    peer.receives_nothing(at(60));
}

#[test]
fn packets_that_an_acknowledgement_covers_are_not_retransmitted() {
    let mut peer = Conversation::new();
    for id in 0..9 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
    }
    assert_eq!(peer.received(at(0)).len(), 9);
    peer.sends(at(1), nak_sequence(PSN + 1));
    peer.receives(at(1), ["send Only +1 5B ackreq"]);
    peer.sends(at(2), nak_sequence(PSN + 6));
    peer.receives(at(2), ["send Only +6 5B ackreq"]);
    peer.sends(at(3), ack(PSN + 8));
    assert_eq!(peer.completions().len(), 9);
    assert_eq!(peer.counters().retransmitted, 2);
}

#[test]
fn packet_is_retransmitted_when_its_response_is_overdue_without_a_retry() {
    let mut peer = Conversation::with(Setup {
        retry_count: 0,
        ..Setup::default()
    });
    for id in 1..=3 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
        assert_eq!(peer.received(at(id)).len(), 1);
        if id < 3 {
            peer.sends(at(id), ack(PSN + (id as u32 - 1)));
        }
    }
    // Round trips of a millisecond: the third response is overdue after the minimum, and then after twice as long.
    peer.receives_nothing(at(6));
    peer.receives(at(8), ["send Only +2 5B ackreq"]);
    peer.receives_nothing(at(16));
    peer.receives(at(18), ["send Only +2 5B ackreq"]);
    assert_eq!(peer.counters().timeouts, 0);
    peer.sends(at(19), ack(PSN + 2));
    assert_eq!(peer.completions().len(), 3);
    peer.receives_nothing(at(1000));
}

#[test]
fn sequence_nak_inside_a_message_retransmits_from_its_psn() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(4096));
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    peer.posts(SendRequest::new(2, Work::Send).inline(b"behind"));
    assert_eq!(peer.received(at(0)).len(), 5);
    peer.sends(at(1), nak_sequence(PSN + 2));
    let received = peer.received(at(1));
    let words: Vec<&str> = received.iter().map(DevicePacket::text).collect();
    assert_eq!(words, ["write Middle +2 1024B ackreq",]);
    assert_eq!(received[0].payload(), &pattern(4096)[2048..3072]);
    peer.sends(at(2), ack(PSN + 4));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn second_nak_for_the_same_gap_is_ignored() {
    let mut peer = with_three_sends();
    peer.sends(at(1), nak_sequence(PSN + 1));
    assert_eq!(peer.received(at(1)).len(), 1);
    peer.sends(at(2), nak_sequence(PSN + 1));
    peer.receives_nothing(at(2));
}

#[test]
fn new_requests_are_sent_after_retransmitted_ones() {
    let mut peer = with_three_sends();
    peer.posts(SendRequest::new(4, Work::Send).inline(b"new"));
    peer.sends(at(1), nak_sequence(PSN + 2));
    peer.receives(at(1), ["send Only +2 5B ackreq", "send Only +3 3B ackreq"]);
}

#[test]
fn packet_acknowledged_before_its_retransmission_is_not_retransmitted() {
    let mut peer = with_three_sends();
    peer.sends(at(1), nak_sequence(PSN));
    peer.sends(at(1), ack(PSN + 1));
    peer.receives(at(1), ["send Only +2 5B ackreq"]);
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn other_naks_complete_the_request_in_error_with_their_status() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccess, Status::RemoteAccess),
        (NakCode::RemoteOperational, Status::RemoteOperation),
    ] {
        let mut peer = with_three_sends();
        peer.sends(at(1), nak(PSN + 1, code));
        peer.completes([(1, Status::Success), (2, status), (3, Status::Flushed)]);
        assert_eq!(peer.queue_pair().failed_sends(), 2);
        assert_eq!(peer.state(), State::Error);
        assert_eq!(peer.counters().fatal_naks_received, 1);
        peer.receives_nothing(at(1000));
    }
}

#[test]
fn statuses_have_the_values_of_ibv_wc_status() {
    assert_eq!(Status::RemoteInvalidRequest as u8, 9);
    assert_eq!(Status::RemoteAccess as u8, 10);
    assert_eq!(Status::RemoteOperation as u8, 11);
    assert_eq!(Status::RetriesExhausted as u8, 12);
    assert_eq!(Status::ReceiverNotReady as u8, 13);
}

#[test]
fn atomic_stores_the_previous_value_of_the_peer_s_memory() {
    let mut peer = Conversation::new();
    let result = peer.registers(0x1000, &[0; 8]);
    let work = Work::FetchAdd {
        remote: remote(0x9000),
        add: 1,
    };
    peer.posts(SendRequest::new(1, work).with([result.all()]));
    peer.receives(at(0), ["fetch-add +0 va=0x9000 add=1"]);
    peer.sends(at(1), atomic_ack(PSN, 41));
    let completion = peer.completion();
    assert_eq!((completion.status, completion.length), (Status::Success, 8));
    assert_eq!(result.word(0), 41);
}

#[test]
fn atomic_writes_and_flushes_complete_with_an_empty_read_response() {
    let mut peer = Conversation::new();
    let place = remote(0x9000);
    peer.posts(SendRequest::new(1, Work::AtomicWrite(place)).inline(b"8 bytes!"));
    let flush = Work::Flush {
        remote: place,
        length: 8,
        placement: wire::FlushPlacement::PERSISTENT,
        range: wire::FlushRange::Range,
    };
    peer.posts(SendRequest::new(2, flush));
    peer.receives(
        at(0),
        [
            "atomic-write +0 va=0x9000 len=8",
            "flush +1 placement=2 va=0x9000 len=8",
        ],
    );
    peer.sends(at(1), response_only(PSN, b""));
    peer.completes([(1, Status::Success)]);
    peer.sends(at(1), response_only(PSN + 1, b""));
    peer.completes([(2, Status::Success)]);
}

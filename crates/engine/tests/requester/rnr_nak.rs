//! RNR NAKs: the requester waits for the given delay and retries as often as configured.

use engine::{SendRequest, State, Status, Work};
use wire::RnrTimer;

use crate::conversation::*;

fn with_two_sends(rnr_retry: u8) -> Conversation {
    let mut peer = Conversation::with(Setup {
        rnr_retry,
        ..Setup::default()
    });
    for id in 1..=2 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
    }
    assert_eq!(peer.received(at(0)).len(), 2);
    peer
}

#[test]
fn nothing_is_sent_before_the_rnr_delay_is_over() {
    for code in 0..32 {
        let delay = RnrTimer::new(code)
            .expect("the timer code is valid")
            .delay();
        let mut peer = with_two_sends(7);
        peer.sends(at(1), rnr_nak(PSN, code));
        peer.posts(SendRequest::new(3, Work::Send).inline(b"new"));
        peer.receives_nothing(at(1) + delay - std::time::Duration::from_nanos(1));
        peer.receives(
            at(1) + delay,
            [
                "send Only +0 5B ackreq",
                "send Only +1 5B ackreq",
                "send Only +2 3B ackreq",
            ],
        );
    }
}

#[test]
fn rnr_nak_acknowledges_earlier_packets() {
    let mut peer = with_two_sends(7);
    peer.sends(at(1), rnr_nak(PSN + 1, 12));
    peer.completes([(1, Status::Success)]);
    peer.receives(at(2), ["send Only +1 5B ackreq"]);
    peer.sends(at(3), ack(PSN + 1));
    peer.completes([(2, Status::Success)]);
}

#[test]
fn second_rnr_nak_during_the_wait_is_ignored() {
    let mut peer = with_two_sends(1);
    peer.sends(at(1), rnr_nak(PSN, 14));
    peer.sends(at(2), rnr_nak(PSN, 14));
    peer.sends(at(2), rnr_nak(PSN, 31));
    peer.completes([]);
    // Code 14 is 1.28 ms.
    assert_eq!(peer.received(at_nanos(2_280_000)).len(), 2);
    assert_eq!(peer.counters().rnr_naks_received, 1);
}

#[test]
fn rnr_retries_end_after_the_configured_count() {
    for rnr_retry in [0, 1, 3, 6] {
        let mut peer = with_two_sends(rnr_retry);
        for round in 1..=u64::from(rnr_retry) {
            peer.sends(at(10 * round), rnr_nak(PSN, 12));
            peer.completes([]);
            assert_eq!(peer.received(at(10 * round + 1)).len(), 2);
        }
        peer.sends(at(100), rnr_nak(PSN, 12));
        peer.completes([(1, Status::ReceiverNotReady), (2, Status::Flushed)]);
        assert_eq!(peer.state(), State::Error);
        peer.receives_nothing(at(1000));
    }
}

#[test]
fn a_drain_gives_no_more_rnr_retries() {
    let mut peer = with_two_sends(1);
    peer.sends(at(10), rnr_nak(PSN, 12));
    assert_eq!(peer.received(at(11)).len(), 2);
    peer.goes_to(State::SendQueueDrain);
    peer.sends(at(20), rnr_nak(PSN, 12));
    peer.completes([(1, Status::ReceiverNotReady), (2, Status::Flushed)]);
}

#[test]
fn rnr_retry_count_7_has_no_limit() {
    let mut peer = with_two_sends(7);
    for round in 1..=100 {
        peer.sends(at(10 * round), rnr_nak(PSN, 12));
        assert_eq!(peer.received(at(10 * round + 1)).len(), 2);
    }
    peer.sends(at(2000), ack(PSN + 1));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn rnr_nak_consumes_no_ordinary_retry() {
    let mut peer = Conversation::with(Setup {
        retry_count: 0,
        ..Setup::default()
    });
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    assert_eq!(peer.received(at(0)).len(), 1);
    // Code 0 is 655.36 ms, much longer than the ACK timeout. An RNR NAK shows that the peer is
    // alive.
    peer.sends(at(1), rnr_nak(PSN, 0));
    peer.receives(at(657), ["send Only +0 5B ackreq"]);
    peer.completes([]);
}

#[test]
fn progress_renews_the_rnr_retries() {
    let mut peer = with_two_sends(1);
    peer.sends(at(1), rnr_nak(PSN, 12));
    assert_eq!(peer.received(at(2)).len(), 2);
    peer.sends(at(3), rnr_nak(PSN + 1, 12));
    peer.completes([(1, Status::Success)]);
    peer.receives(at(4), ["send Only +1 5B ackreq"]);
    peer.sends(at(5), ack(PSN + 1));
    peer.completes([(2, Status::Success)]);
}

#[test]
fn acknowledgement_of_all_packets_ends_the_rnr_wait() {
    let mut peer = with_two_sends(7);
    peer.sends(at(1), rnr_nak(PSN, 0));
    // The packets crossed: the peer received an earlier copy after all.
    peer.sends(at(2), ack(PSN + 1));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    peer.receives_nothing(at(1000));
}

#[test]
fn only_responses_are_sent_during_the_rnr_wait() {
    let mut peer = with_two_sends(7);
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(9, &inbox);
    peer.sends(at(1), rnr_nak(PSN, 0));
    peer.sends(at(2), send_only(PSN, b"meanwhile").ackreq());
    peer.receives(at(2), ["ack +0"]);
    peer.completes([(9, Status::Success)]);
    assert_eq!(peer.received(at(657)).len(), 2);
}

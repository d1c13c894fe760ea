//! A peer without a receive: wait as long as it says, as often as was agreed.

use engine::{SendRequest, State, Status, Work};
use wire::RnrTimer;

use crate::conversation::*;

fn patient(rnr_retry: u8) -> Conversation {
    let mut peer = Conversation::with(Setup {
        rnr_retry,
        ..Setup::default()
    });
    for id in 1..=2 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
    }
    assert_eq!(peer.listens(at(0)).len(), 2);
    peer
}

#[test]
fn nothing_is_sent_before_the_delay_that_the_peer_named() {
    for code in 0..32 {
        let delay = RnrTimer::new(code).expect("a code").delay();
        let mut peer = patient(7);
        peer.says(at(1), not_ready(PSN, code));
        peer.posts(SendRequest::new(3, Work::Send).inline(b"new"));
        peer.hears_nothing(at(1) + delay - std::time::Duration::from_nanos(1));
        peer.hears(
            at(1) + delay,
            [
                "send Only +0 5B ask",
                "send Only +1 5B ask",
                "send Only +2 3B ask",
            ],
        );
    }
}

#[test]
fn it_acknowledges_what_is_before_it() {
    let mut peer = patient(7);
    peer.says(at(1), not_ready(PSN + 1, 12));
    peer.completes([(1, Status::Success)]);
    peer.hears(at(2), ["send Only +1 5B ask"]);
    peer.says(at(3), ack(PSN + 1));
    peer.completes([(2, Status::Success)]);
}

#[test]
fn a_second_one_while_waiting_changes_nothing() {
    let mut peer = patient(1);
    peer.says(at(1), not_ready(PSN, 14));
    peer.says(at(2), not_ready(PSN, 14));
    peer.says(at(2), not_ready(PSN, 31));
    peer.completes([]);
    // Code 14 is 1.28 ms.
    assert_eq!(peer.listens(at_nanos(2_280_000)).len(), 2);
    assert_eq!(peer.counters().rnr_naks_received, 1);
}

#[test]
fn it_is_tried_again_as_often_as_was_agreed_and_then_given_up() {
    for rnr_retry in [0, 1, 3, 6] {
        let mut peer = patient(rnr_retry);
        for round in 1..=u64::from(rnr_retry) {
            peer.says(at(10 * round), not_ready(PSN, 12));
            peer.completes([]);
            assert_eq!(peer.listens(at(10 * round + 1)).len(), 2);
        }
        peer.says(at(100), not_ready(PSN, 12));
        peer.completes([(1, Status::ReceiverNotReady), (2, Status::Flushed)]);
        assert_eq!(peer.state(), State::Error);
        peer.hears_nothing(at(1000));
    }
}

#[test]
fn seven_stands_for_ever() {
    let mut peer = patient(7);
    for round in 1..=100 {
        peer.says(at(10 * round), not_ready(PSN, 12));
        assert_eq!(peer.listens(at(10 * round + 1)).len(), 2);
    }
    peer.says(at(2000), ack(PSN + 1));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn it_uses_up_no_ordinary_retry() {
    let mut peer = Conversation::with(Setup {
        retry_count: 0,
        ..Setup::default()
    });
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    assert_eq!(peer.listens(at(0)).len(), 1);
    // Code 0 is 655.36 ms, much longer than the ACK timeout: the peer is there and only not ready.
    peer.says(at(1), not_ready(PSN, 0));
    peer.hears(at(657), ["send Only +0 5B ask"]);
    peer.completes([]);
}

#[test]
fn progress_renews_the_patience() {
    let mut peer = patient(1);
    peer.says(at(1), not_ready(PSN, 12));
    assert_eq!(peer.listens(at(2)).len(), 2);
    peer.says(at(3), not_ready(PSN + 1, 12));
    peer.completes([(1, Status::Success)]);
    peer.hears(at(4), ["send Only +1 5B ask"]);
    peer.says(at(5), ack(PSN + 1));
    peer.completes([(2, Status::Success)]);
}

#[test]
fn an_acknowledgement_of_everything_while_waiting_ends_it() {
    let mut peer = patient(7);
    peer.says(at(1), not_ready(PSN, 0));
    // The packets crossed: an earlier copy was received after all.
    peer.says(at(2), ack(PSN + 1));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    peer.hears_nothing(at(1000));
}

#[test]
fn while_it_waits_the_peer_is_answered_and_nothing_else_is_sent() {
    let mut peer = patient(7);
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.receives(9, &inbox);
    peer.says(at(1), not_ready(PSN, 0));
    peer.says(at(2), send_only(PSN, b"meanwhile").ask());
    peer.hears(at(2), ["ack +0"]);
    peer.completes([(9, Status::Success)]);
    assert_eq!(peer.listens(at(657)).len(), 2);
}

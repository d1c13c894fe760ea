//! Lists of what the peer holds behind a gap: only what is missing is sent again.

use engine::{SendRequest, Status, Work};
use wire::Syndrome;

use crate::conversation::*;

/// A SEND of ten packets, which are sent.
fn sending() -> Conversation {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(10 << 10));
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 10 << 10)]));
    assert_eq!(peer.received(at(0)).len(), 10);
    peer
}

#[test]
fn each_hole_is_sent_again_once() {
    let mut peer = sending();
    peer.sends(at(1), nak_sequence(PSN).holding([(1, 3), (4, 7)]));
    peer.receives(
        at(1),
        ["send First +0 1024B", "send Middle +3 1024B ackreq"],
    );
    // The same list again, and one that shows more.
    peer.sends(at(1), nak_sequence(PSN).holding([(1, 3), (4, 7)]));
    peer.receives_nothing(at(1));
    peer.sends(at(1), ack(PSN - 1).holding([(1, 3), (4, 7), (9, 10)]));
    peer.receives(
        at(1),
        ["send Middle +7 1024B", "send Middle +8 1024B ackreq"],
    );
    peer.completes([]);
    peer.sends(at(2), ack(PSN + 9));
    peer.completes([(1, Status::Success)]);
    peer.receives_nothing(at(1000));
    assert_eq!(peer.counters().retransmitted, 4);
}

#[test]
fn hole_that_is_lost_again_is_noticed_when_a_later_packet_arrives() {
    let mut peer = sending();
    peer.sends(at(1), nak_sequence(PSN).holding([(1, 3), (4, 10)]));
    peer.receives(
        at(1),
        ["send First +0 1024B", "send Middle +3 1024B ackreq"],
    );
    peer.sends(at(2), ack(PSN - 1).holding([(1, 10)]));
    peer.receives(at(2), ["send First +0 1024B ackreq"]);
    peer.sends(at(3), ack(PSN + 9));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn hole_that_is_lost_again_and_followed_by_nothing_is_sent_again_after_the_timeout() {
    let mut peer = sending();
    peer.sends(at(1), nak_sequence(PSN).holding([(1, 10)]));
    peer.receives(at(1), ["send First +0 1024B ackreq"]);
    let again = peer.received(at(200));
    assert!(
        again
            .iter()
            .any(|it| it.text().starts_with("send First +0"))
    );
    peer.sends(at(201), ack(PSN + 9));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn peer_that_dropped_what_it_held_gets_all_of_it_again() {
    let mut peer = sending();
    peer.sends(at(1), nak_sequence(PSN).holding([(1, 10)]));
    peer.receives(at(1), ["send First +0 1024B ackreq"]);
    peer.sends(at(2), nak_sequence(PSN + 1).holding([(8, 9)]));
    let again = peer.received(at(3));
    assert_eq!(again[0].text(), "send Middle +1 1024B");
    assert_eq!(again.len(), 9);
}

#[test]
fn list_that_cannot_be_true_acknowledges_nothing() {
    let lists: [fn() -> PeerPacket; 4] = [
        // It goes beyond what was sent.
        || ack(PSN - 1).holding([(1, 11)]),
        || nak_sequence(PSN + 9).holding([(1, 2)]),
        || ack(PSN + 9).holding([(1, 60_000)]),
        // Its missing packet was never sent.
        || nak_sequence(PSN + 10).holding([(1, 2)]),
    ];
    for list in lists {
        let mut peer = sending();
        peer.sends(at(1), list());
        peer.received(at(1));
        peer.sends(at(2), nak_sequence(PSN));
        peer.sends(at(3), ack(PSN + 9));
        peer.completes([(1, Status::Success)]);
    }
}

#[test]
fn unreadable_list_is_counted_and_its_acknowledgement_ignored() {
    let mut peer = sending();
    let mut garbage = PeerPacket::new(wire::Opcode::RcAcknowledge, PSN + 9, &[0, 3, 0, 0]);
    garbage = garbage.push(&wire::Aeth::new(Syndrome::UNLIMITED, 1));
    peer.sends(at(1), garbage);
    peer.completes([]);
    assert_eq!(peer.counters().malformed, 1);
}

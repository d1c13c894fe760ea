//! What a responder holds behind a gap is listed for peers that understand it.

use engine::{Config, HeldLists, Status};
use wire::Reth;

use crate::conversation::*;

fn with_receives(held_lists: HeldLists) -> (Conversation, Region) {
    let setup = Setup::default();
    let mut peer = Conversation::with(Setup {
        config: Config {
            held_lists,
            ..setup.config.clone()
        },
        ..setup
    });
    let inbox = peer.registers(0x1000, &[0; 4096]);
    for id in 1..=16 {
        peer.posts_receive(id, &inbox);
    }
    (peer, inbox)
}

/// Two gaps: the packets 0 and 3 are missing.
fn leaves_two_gaps(peer: &mut Conversation) {
    for offset in [1, 2, 4, 5, 6] {
        peer.sends(at(1), send_only(PSN + offset, b"early"));
    }
}

#[test]
fn peer_is_asked_after_the_first_gap_and_gets_lists_when_it_has_answered() {
    let (mut peer, _) = with_receives(HeldLists::Negotiated);
    assert_eq!(peer.device.poll_question(), None);
    leaves_two_gaps(&mut peer);
    peer.receives(at(1), ["nak sequence +0"]);
    let question = peer.device.poll_question().expect("a question");
    assert_eq!(question.destination, std::net::IpAddr::from(PEER_ADDRESS));
    assert_eq!(peer.device.poll_question(), None);
    peer.sends(at(2), send_only(PSN + 7, b"early").ackreq());
    peer.receives_nothing(at(2));
    assert_eq!(peer.device.poll_question(), None, "it is asked once");

    let (address, nonce) = (question.destination, question.nonce);
    peer.device.note_answer(address, nonce, true);
    peer.sends(at(3), send_only(PSN + 9, b"early").ackreq());
    peer.receives(at(3), ["ack -1 held +1-2,+4-7,+9"]);
}

#[test]
fn peer_that_does_not_answer_or_says_no_gets_no_list() {
    for says_no in [false, true] {
        let (mut peer, _) = with_receives(HeldLists::Negotiated);
        leaves_two_gaps(&mut peer);
        peer.receives(at(1), ["nak sequence +0"]);
        let question = peer.device.poll_question().expect("a question");
        if says_no {
            let (address, nonce) = (question.destination, question.nonce);
            peer.device.note_answer(address, nonce, false);
        }
        peer.sends(at(2), send_only(PSN, b"missing"));
        peer.receives(at(2), ["nak sequence +3"]);
        assert_eq!(peer.device.poll_question(), None);
    }
}

#[test]
fn device_without_lists_asks_nobody() {
    let (mut peer, _) = with_receives(HeldLists::Never);
    leaves_two_gaps(&mut peer);
    peer.receives(at(1), ["nak sequence +0"]);
    assert_eq!(peer.device.poll_question(), None);
    assert!(!peer.device.understands_held_lists());
}

#[test]
fn list_follows_the_gap() {
    let (mut peer, _) = with_receives(HeldLists::Always);
    leaves_two_gaps(&mut peer);
    peer.receives(at(1), ["nak sequence +0 held +1-2,+4-6"]);
    peer.sends(at(2), send_only(PSN + 8, b"early").ackreq());
    peer.receives(at(2), ["ack -1 held +1-2,+4-6,+8"]);
    peer.sends(at(3), send_only(PSN, b"missing"));
    peer.receives(at(3), ["nak sequence +3 held +1-3,+5"]);
    peer.sends(at(4), send_only(PSN + 3, b"missing"));
    peer.receives(at(4), ["nak sequence +7 held +1"]);
    peer.sends(at(5), send_only(PSN + 7, b"missing").ackreq());
    peer.receives(at(5), ["ack +8"]);
    assert_eq!(peer.completions().len(), 9);
    peer.sends(at(6), send_only(PSN + 9, b"last").ackreq());
    peer.receives(at(6), ["ack +9"]);
    peer.completes([(10, Status::Success)]);
}

#[test]
fn read_behind_a_gap_is_listed_with_the_packets_of_its_responses() {
    let (mut peer, _) = with_receives(HeldLists::Always);
    let memory = peer.registers(0x9000, &[0; 4096]);
    let reth = Reth::new(memory.address(0), memory.key(), 3000);
    peer.sends(at(1), read_request(PSN + 1, reth));
    peer.sends(at(1), send_only(PSN + 4, b"behind it").ackreq());
    peer.receives(at(1), ["nak sequence +0 held +1-4"]);
}

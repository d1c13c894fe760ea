//! Order of requests, acknowledgements, message sequence numbers and credits.

use engine::{AsyncEvent, Config, Event, SharedReceiveInit, State, Status};
use wire::Reth;

use crate::conversation::*;

fn with_receives(count: u64) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 4096]);
    for id in 1..=count {
        peer.posts_receive(id, &inbox);
    }
    (peer, inbox)
}

#[test]
fn one_sequence_nak_is_sent_per_gap() {
    let (mut peer, _) = with_receives(4);
    peer.sends(at(1), send_only(PSN + 1, b"gap").ackreq());
    peer.receives(at(1), ["nak sequence +0"]);
    peer.sends(at(2), send_only(PSN + 2, b"gap").ackreq());
    peer.sends(at(2), send_only(PSN + 1, b"gap").ackreq());
    peer.receives_nothing(at(2));
    peer.sends(at(3), send_only(PSN, b"as expected").ackreq());
    peer.receives(at(3), ["ack +2"]);
    peer.sends(at(4), send_only(PSN + 4, b"another gap").ackreq());
    peer.receives(at(4), ["nak sequence +3"]);
    peer.completes([1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!(peer.counters().out_of_sequence, 4);
    assert_eq!(peer.counters().sequence_naks_sent, 2);
}

#[test]
fn packets_behind_a_gap_are_executed_in_order_when_it_closes() {
    let (mut peer, _) = with_receives(4);
    for (offset, text) in [(3, b"four"), (1, b"two "), (2, b"tri ")] {
        peer.sends(at(1), send_only(PSN + offset, text));
    }
    peer.completes([]);
    peer.sends(at(2), send_only(PSN, b"one").ackreq());
    peer.completes([1, 2, 3, 4].map(|id| (id, Status::Success)));
    peer.receives(at(2), ["ack +0"]);
    // They are duplicates now.
    peer.sends(at(3), send_only(PSN + 2, b"tri ").ackreq());
    peer.receives(at(3), ["ack +3"]);
    peer.completes([]);
}

#[test]
fn second_gap_is_reported_when_the_first_one_closes() {
    let (mut peer, _) = with_receives(4);
    peer.sends(at(1), send_only(PSN + 1, b"two"));
    peer.sends(at(1), send_only(PSN + 3, b"four").ackreq());
    peer.receives(at(1), ["nak sequence +0"]);
    peer.sends(at(2), send_only(PSN, b"one"));
    peer.receives(at(2), ["nak sequence +2"]);
    peer.sends(at(3), send_only(PSN + 2, b"three"));
    peer.receives(at(3), ["ack +3"]);
    peer.completes([1, 2, 3, 4].map(|id| (id, Status::Success)));
}

#[test]
fn packet_that_three_others_overtake_is_not_reported_as_missing() {
    let (mut peer, _) = with_receives(8);
    for offset in 1..=3 {
        peer.sends(at(1), send_only(PSN + offset, b"early"));
    }
    peer.receives_nothing(at(1));
    peer.sends(at(1), send_only(PSN + 4, b"fourth"));
    peer.receives(at(1), ["nak sequence +0"]);
    assert_eq!(peer.counters().sequence_naks_sent, 1);
}

// The peer sends all of them again after the delay.
#[test]
fn packets_behind_one_without_a_receive_are_not_kept() {
    let (mut peer, inbox) = with_receives(0);
    peer.sends(at(1), send_only(PSN, b"one").ackreq());
    peer.sends(at(1), send_only(PSN + 1, b"two").ackreq());
    assert_eq!(peer.received(at(1)).len(), 1);
    peer.posts_receive(1, &inbox);
    peer.sends(at(2), send_only(PSN, b"one").ackreq());
    peer.receives(at(2), ["ack +0"]);
    peer.completes([(1, Status::Success)]);
}

#[test]
fn packet_far_beyond_the_expected_one_is_not_kept() {
    let (mut peer, _) = with_receives(2);
    peer.sends(at(1), send_only(PSN + (1 << 20), b"far ahead"));
    peer.receives(at(1), ["nak sequence +0"]);
    peer.sends(at(2), send_only(PSN, b"one").ackreq());
    peer.receives(at(2), ["ack +0"]);
}

#[test]
fn psn_half_the_space_away_is_a_duplicate_and_the_one_before_it_a_gap() {
    let (mut peer, _) = with_receives(2);
    peer.sends(at(1), send_only(PSN + (1 << 23) - 1, b"far ahead").ackreq());
    peer.receives(at(1), ["nak sequence +0"]);
    peer.sends(at(2), send_only(PSN + (1 << 23), b"far behind").ackreq());
    peer.receives(at(2), ["ack -1"]);
    peer.completes([]);
}

#[test]
fn acknowledgement_is_sent_only_for_ackreq() {
    let (mut peer, inbox) = with_receives(3);
    peer.sends(at(1), send_only(PSN, b"quiet"));
    peer.receives_nothing(at(1));
    peer.sends(at(2), send_only(PSN + 1, b"loud").ackreq());
    peer.receives(at(2), ["ack +1"]);
    let reth = Reth::new(inbox.address(0), inbox.key(), 5);
    peer.sends(at(3), write_only(PSN + 2, reth, b"quiet"));
    peer.receives_nothing(at(3));
}

// IBA 9.7.5.1.2
#[test]
fn several_ackreqs_get_one_acknowledgement() {
    let (mut peer, inbox) = with_receives(3);
    let reth = Reth::new(inbox.address(100), inbox.key(), 4);
    peer.sends_all(
        at(1),
        [
            send_only(PSN, b"one").ackreq(),
            write_only(PSN + 1, reth, b"two!").ackreq(),
            send_only(PSN + 2, b"three").ackreq(),
        ],
    );
    peer.receives(at(1), ["ack +2"]);
}

#[test]
fn acknowledgement_before_a_gap_is_sent() {
    let (mut peer, _) = with_receives(3);
    peer.sends(at(1), send_only(PSN, b"one").ackreq());
    peer.sends(at(1), send_only(PSN + 2, b"three").ackreq());
    peer.receives(at(1), ["ack +0", "nak sequence +1"]);
}

// C9-148
#[test]
fn acknowledgement_reports_completed_messages_and_posted_receives() {
    let (mut peer, inbox) = with_receives(4);
    let reports = |peer: &mut Conversation, millis| {
        let received = peer.received(at(millis));
        let [only] = &received[..] else {
            panic!("one acknowledgement")
        };
        (only.messages(), only.credits())
    };
    peer.sends(at(1), send_only(PSN, b"one").ackreq());
    assert_eq!(reports(&mut peer, 1), (Some(1), Some(3)));
    peer.sends(at(2), send_first(PSN + 1, &pattern(1024)).ackreq());
    // The receive that is being filled belongs to a message that is not counted yet.
    assert_eq!(reports(&mut peer, 2), (Some(1), Some(3)));
    peer.sends(at(3), send_last(PSN + 2, b"two").ackreq());
    assert_eq!(reports(&mut peer, 3), (Some(2), Some(2)));
    let reth = Reth::new(inbox.address(0), inbox.key(), 5);
    peer.sends(at(4), write_only(PSN + 3, reth, b"three").ackreq());
    assert_eq!(reports(&mut peer, 4), (Some(3), Some(2)));
    peer.posts_receive(5, &inbox);
    peer.sends(at(5), read_request(PSN + 4, reth));
    assert_eq!(reports(&mut peer, 5), (Some(4), Some(3)));
}

// C9-148: not every count has a code, and more credits than receives must not be reported.
#[test]
fn reported_credits_are_rounded_down() {
    for (left, credits) in [(0, 0), (4, 4), (5, 4), (7, 6), (15, 12), (100, 96)] {
        let (mut peer, _) = with_receives(left + 1);
        peer.sends(at(1), send_only(PSN, b"one").ackreq());
        assert_eq!(peer.received(at(1))[0].credits(), Some(credits));
    }
}

#[test]
fn nak_reports_completed_messages() {
    let (mut peer, _) = with_receives(4);
    peer.sends(at(1), send_only(PSN, b"one"));
    peer.sends(at(1), send_only(PSN + 2, b"three").ackreq());
    let received = peer.received(at(1));
    assert_eq!(received[0].text(), "nak sequence +1");
    assert_eq!(received[0].messages(), Some(1));
}

// C9-148: other queue pairs may take shared receives, so they are not reported as credits.
#[test]
fn shared_receives_are_not_reported_as_credits() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    let queue = peer
        .device
        .create_shared_receive_queue(SharedReceiveInit {
            domain: peer.domain,
            capacity: 8,
            max_segments: 1,
            xrc: None,
        })
        .expect("a shared receive queue");
    let mut init = peer.init();
    init.shared_receive = Some(queue);
    let number = peer.adds(init);
    let request = engine::ReceiveRequest::new(1, [inbox.all()]);
    peer.device
        .post_shared_receive(queue, request)
        .expect("the queue has room");
    peer.sends_to(number, at(1), send_only(PSN, b"one").ackreq());
    let received = peer.received(at(1));
    assert_eq!(received[0].text(), "ack +0");
    assert_eq!(
        (received[0].messages(), received[0].credits()),
        (Some(1), None)
    );
}

#[test]
fn credits_are_not_reported_if_disabled() {
    let setup = Setup::default();
    let mut peer = Conversation::with(Setup {
        config: Config {
            advertise_credits: false,
            ..setup.config.clone()
        },
        ..setup
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), send_only(PSN, b"one").ackreq());
    assert_eq!(peer.received(at(1))[0].credits(), None);
}

// IBA 10.3.1
#[test]
fn first_packet_in_ready_to_receive_establishes_communication_once() {
    let mut peer = Conversation::with(Setup {
        state: State::ReadyToReceive,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    peer.sends(at(1), send_only(PSN, b"hello").ackreq());
    let number = peer.number;
    peer.raises([AsyncEvent::CommunicationEstablished(number)]);
    // It answers although it may not send requests yet.
    peer.receives(at(1), ["ack +0"]);
    peer.sends(at(2), send_only(PSN + 1, b"hello").ackreq());
    peer.raises([]);
}

#[test]
fn first_packet_is_reported_to_the_connection_manager_once_in_either_state() {
    for state in [State::ReadyToReceive, State::ReadyToSend] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        let inbox = peer.registers(0x1000, &[0; 64]);
        peer.posts_receive(1, &inbox);
        peer.posts_receive(2, &inbox);
        let first = Event::FirstPacket(peer.number);
        peer.sends(at(1), send_only(PSN + 5000, b"old?"));
        assert_eq!(peer.device.poll_event(), None);
        peer.sends(at(2), send_only(PSN, b"hello"));
        assert_eq!(peer.device.poll_event(), Some(first));
        peer.sends(at(3), send_only(PSN + 1, b"hello"));
        assert!(!std::iter::from_fn(|| peer.device.poll_event()).any(|event| event == first));
    }
}

#[test]
fn packet_of_an_earlier_connection_does_not_establish_communication() {
    let mut peer = Conversation::with(Setup {
        state: State::ReadyToReceive,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    // Packets of an earlier connection of this number: ahead, long ago, or responses.
    peer.sends(at(1), send_only(PSN + 5000, b"old?"));
    peer.sends(at(2), send_only(PSN - 5000, b"old?"));
    peer.raises([]);
    peer.sends(at(3), send_only(PSN, b"hello"));
    let number = peer.number;
    peer.raises([AsyncEvent::CommunicationEstablished(number)]);
}

#[test]
fn first_packet_in_ready_to_send_raises_no_event() {
    let (mut peer, _) = with_receives(1);
    peer.sends(at(1), send_only(PSN, b"hello"));
    peer.raises([]);
}

// IBA 10.3.1
#[test]
fn draining_queue_pair_still_receives() {
    let (mut peer, _) = with_receives(1);
    peer.goes_to(State::SendQueueDrain);
    peer.sends(at(1), send_only(PSN, b"hello").ackreq());
    peer.receives(at(1), ["ack +0"]);
    peer.completes([(1, Status::Success)]);
}

// IBA 10.3.1
#[test]
fn reset_queue_pair_starts_again() {
    let (mut peer, _) = with_receives(2);
    peer.sends(at(1), send_only(PSN, b"old").ackreq());
    peer.goes_to(State::Reset);
    peer.receives_nothing(at(1));
    let number = peer.number;
    peer.connects(number);
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(7, &inbox);
    peer.sends(at(2), send_only(PSN, b"new").ackreq());
    peer.receives(at(2), ["ack +0"]);
    // Receive 2 and the completion of receive 1 were discarded silently.
    peer.completes([(7, Status::Success)]);
}

#[test]
fn queue_pair_moved_to_error_sends_nothing() {
    let unsaid: [fn(&mut Conversation); 3] = [
        |peer| peer.sends(at(1), send_only(PSN, b"one").ackreq()),
        |peer| peer.sends(at(1), send_only(PSN + 1, b"gap").ackreq()),
        |peer| {
            peer.sends(at(1), send_only(PSN, b"one"));
            peer.sends(at(1), send_only(PSN + 1, b"no receive").ackreq());
        },
    ];
    for say in unsaid {
        let (mut peer, _) = with_receives(1);
        say(&mut peer);
        peer.goes_to(State::Error);
        peer.receives_nothing(at(2));
    }
}

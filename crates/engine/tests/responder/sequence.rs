//! Order, acknowledgements, and what they tell about messages and receives.

use engine::{AsyncEvent, Config, SharedReceiveInit, State, Status};
use wire::Reth;

use crate::conversation::*;

fn with_receives(count: u64) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 4096]);
    for id in 1..=count {
        peer.receives(id, &inbox);
    }
    (peer, inbox)
}

#[test]
fn one_sequence_nak_per_gap_then_silence_until_the_expected_packet() {
    let (mut peer, _) = with_receives(4);
    peer.says(at(1), send_only(PSN + 1, b"gap").ask());
    peer.hears(at(1), ["nak sequence +0"]);
    peer.says(at(2), send_only(PSN + 2, b"gap").ask());
    peer.says(at(2), send_only(PSN + 1, b"gap").ask());
    peer.hears_nothing(at(2));
    peer.says(at(3), send_only(PSN, b"as expected").ask());
    peer.hears(at(3), ["ack +0"]);
    peer.says(at(4), send_only(PSN + 3, b"another gap").ask());
    peer.hears(at(4), ["nak sequence +1"]);
    peer.completes([(1, Status::Success)]);
    assert_eq!(peer.counters().out_of_sequence, 4);
    assert_eq!(peer.counters().sequence_naks_sent, 2);
}

#[test]
fn the_packet_half_the_sequence_space_away_is_a_duplicate_and_the_one_before_it_a_gap() {
    let (mut peer, _) = with_receives(2);
    peer.says(at(1), send_only(PSN + (1 << 23) - 1, b"far ahead").ask());
    peer.hears(at(1), ["nak sequence +0"]);
    peer.says(at(2), send_only(PSN + (1 << 23), b"far behind").ask());
    peer.hears(at(2), ["ack -1"]);
    peer.completes([]);
}

#[test]
fn acknowledges_only_when_asked() {
    let (mut peer, inbox) = with_receives(3);
    peer.says(at(1), send_only(PSN, b"quiet"));
    peer.hears_nothing(at(1));
    peer.says(at(2), send_only(PSN + 1, b"loud").ask());
    peer.hears(at(2), ["ack +1"]);
    let reth = Reth::new(inbox.address(0), inbox.key(), 5);
    peer.says(at(3), write_only(PSN + 2, reth, b"quiet"));
    peer.hears_nothing(at(3));
}

#[test]
fn several_questions_get_one_answer() {
    let (mut peer, inbox) = with_receives(3);
    let reth = Reth::new(inbox.address(100), inbox.key(), 4);
    peer.says_all(
        at(1),
        [
            send_only(PSN, b"one").ask(),
            write_only(PSN + 1, reth, b"two!").ask(),
            send_only(PSN + 2, b"three").ask(),
        ],
    );
    peer.hears(at(1), ["ack +2"]);
}

#[test]
fn an_acknowledgement_before_a_gap_is_not_lost() {
    let (mut peer, _) = with_receives(3);
    peer.says(at(1), send_only(PSN, b"one").ask());
    peer.says(at(1), send_only(PSN + 2, b"three").ask());
    peer.hears(at(1), ["ack +0", "nak sequence +1"]);
}

// C9-148
#[test]
fn an_acknowledgement_tells_completed_messages_and_posted_receives() {
    let (mut peer, inbox) = with_receives(4);
    let tells = |peer: &mut Conversation, millis| {
        let heard = peer.listens(at(millis));
        let [only] = &heard[..] else {
            panic!("one acknowledgement")
        };
        (only.messages(), only.credits())
    };
    peer.says(at(1), send_only(PSN, b"one").ask());
    assert_eq!(tells(&mut peer, 1), (Some(1), Some(3)));
    peer.says(at(2), send_first(PSN + 1, &pattern(1024)).ask());
    // The receive that is being filled is for a message that is not counted yet.
    assert_eq!(tells(&mut peer, 2), (Some(1), Some(3)));
    peer.says(at(3), send_last(PSN + 2, b"two").ask());
    assert_eq!(tells(&mut peer, 3), (Some(2), Some(2)));
    let reth = Reth::new(inbox.address(0), inbox.key(), 5);
    peer.says(at(4), write_only(PSN + 3, reth, b"three").ask());
    assert_eq!(tells(&mut peer, 4), (Some(3), Some(2)));
    peer.receives(5, &inbox);
    peer.says(at(5), read_request(PSN + 4, reth));
    assert_eq!(tells(&mut peer, 5), (Some(4), Some(3)));
}

// C9-148: not every number can be said, and more than there is must not be promised.
#[test]
fn posted_receives_are_rounded_down() {
    for (left, told) in [(0, 0), (4, 4), (5, 4), (7, 6), (15, 12), (100, 96)] {
        let (mut peer, _) = with_receives(left + 1);
        peer.says(at(1), send_only(PSN, b"one").ask());
        assert_eq!(peer.listens(at(1))[0].credits(), Some(told));
    }
}

#[test]
fn a_nak_tells_completed_messages() {
    let (mut peer, _) = with_receives(4);
    peer.says(at(1), send_only(PSN, b"one"));
    peer.says(at(1), send_only(PSN + 2, b"three"));
    let heard = peer.listens(at(1));
    assert_eq!(heard[0].words(), "nak sequence +1");
    assert_eq!(heard[0].messages(), Some(1));
}

// C9-148: receives that others may take can't be promised.
#[test]
fn shared_receives_are_not_counted_for_the_peer() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    let queue = peer
        .device
        .create_shared_receive_queue(SharedReceiveInit {
            domain: peer.domain,
            capacity: 8,
            max_segments: 1,
            extended: None,
        })
        .expect("a shared receive queue");
    let mut init = peer.init();
    init.shared_receive = Some(queue);
    let number = peer.adds(init);
    let request = engine::ReceiveRequest::new(1, [inbox.all()]);
    peer.device
        .post_shared_receive(queue, request)
        .expect("there is room");
    peer.says_to(number, at(1), send_only(PSN, b"one").ask());
    let heard = peer.listens(at(1));
    assert_eq!(heard[0].words(), "ack +0");
    assert_eq!((heard[0].messages(), heard[0].credits()), (Some(1), None));
}

#[test]
fn receives_are_not_counted_when_the_device_is_told_not_to() {
    let setup = Setup::default();
    let mut peer = Conversation::with(Setup {
        config: Config {
            advertise_credits: false,
            ..setup.config.clone()
        },
        ..setup
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.receives(1, &inbox);
    peer.says(at(1), send_only(PSN, b"one").ask());
    assert_eq!(peer.listens(at(1))[0].credits(), None);
}

#[test]
fn the_first_packet_before_sending_establishes_communication_once() {
    let mut peer = Conversation::with(Setup {
        state: State::ReadyToReceive,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.receives(1, &inbox);
    peer.receives(2, &inbox);
    peer.says(at(1), send_only(PSN, b"hello").ask());
    let number = peer.number;
    peer.raises([AsyncEvent::CommunicationEstablished(number)]);
    // It answers although it may not send by itself yet.
    peer.hears(at(1), ["ack +0"]);
    peer.says(at(2), send_only(PSN + 1, b"hello").ask());
    peer.raises([]);
}

#[test]
fn a_stray_packet_establishes_nothing() {
    let mut peer = Conversation::with(Setup {
        state: State::ReadyToReceive,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.receives(1, &inbox);
    // Whoever was connected to this number before still tries: ahead, long ago, or in answer.
    peer.says(at(1), send_only(PSN + 5000, b"who?"));
    peer.says(at(2), send_only(PSN - 5000, b"who?"));
    peer.raises([]);
    peer.says(at(3), send_only(PSN, b"hello"));
    let number = peer.number;
    peer.raises([AsyncEvent::CommunicationEstablished(number)]);
}

#[test]
fn communication_is_no_news_once_the_queue_pair_sends() {
    let (mut peer, _) = with_receives(1);
    peer.says(at(1), send_only(PSN, b"hello"));
    peer.raises([]);
}

#[test]
fn a_draining_queue_pair_still_receives() {
    let (mut peer, _) = with_receives(1);
    peer.goes_to(State::SendQueueDrain);
    peer.says(at(1), send_only(PSN, b"hello").ask());
    peer.hears(at(1), ["ack +0"]);
    peer.completes([(1, Status::Success)]);
}

#[test]
fn a_queue_pair_that_was_reset_begins_anew() {
    let (mut peer, _) = with_receives(2);
    peer.says(at(1), send_only(PSN, b"old").ask());
    peer.goes_to(State::Reset);
    peer.hears_nothing(at(1));
    let number = peer.number;
    peer.connects(number);
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.receives(7, &inbox);
    peer.says(at(2), send_only(PSN, b"new").ask());
    peer.hears(at(2), ["ack +0"]);
    // The receive number 2 was forgotten without a word, and so was the completion of number 1.
    peer.completes([(7, Status::Success)]);
}

#[test]
fn a_queue_pair_that_is_told_to_break_says_nothing_more() {
    let unsaid: [fn(&mut Conversation); 3] = [
        |peer| peer.says(at(1), send_only(PSN, b"one").ask()),
        |peer| peer.says(at(1), send_only(PSN + 1, b"gap").ask()),
        |peer| {
            peer.says(at(1), send_only(PSN, b"one"));
            peer.says(at(1), send_only(PSN + 1, b"no receive").ask());
        },
    ];
    for say in unsaid {
        let (mut peer, _) = with_receives(1);
        say(&mut peer);
        peer.goes_to(State::Error);
        peer.hears_nothing(at(2));
    }
}

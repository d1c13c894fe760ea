//! Queue pairs to one peer address share a window and a pace, and take turns.

use engine::{
    Address, Config, Congestion, Device, QpnRange, SendRequest, State, Status, Work, transmit,
};
use wire::{AckTimeout, Qpn};

use crate::conversation::*;

/// The first window to another host, in packets.
const FIRST_WINDOW: usize = 32;

/// A device with as many queue pairs to the peer.
fn with_queue_pairs(count: u32) -> (Conversation, Vec<Qpn>) {
    let setup = Setup::default();
    let config = Config {
        congestion: Congestion::Model,
        ..setup.config.clone()
    };
    let mut peer = Conversation::with(Setup { config, ..setup });
    let init = *peer.queue_pair().init();
    let numbers = (0..count).map(|other| {
        let number = peer.device.create_queue_pair(init).expect("room");
        connect(&mut peer, number, Qpn::new(0x1000 + other), |step| {
            let address = Address::new(gid(PEER_ADDRESS), 0);
            step.path = step.path.as_ref().map(|_| address);
        });
        number
    });
    let numbers = numbers.collect();
    (peer, numbers)
}

/// Connects a queue pair again, with this code of the acknowledgement timeout.
fn connect_with_timeout(peer: &mut Conversation, number: Qpn, code: u8) {
    connect(peer, number, Qpn::new(0x1000), |step| {
        let address = Address::new(gid(PEER_ADDRESS), 0);
        step.path = step.path.as_ref().map(|_| address);
        step.ack_timeout = step.ack_timeout.and_then(|_| AckTimeout::new(code));
    });
}

fn post(peer: &mut Conversation, number: Qpn, id: u64) {
    let request = SendRequest::new(id, Work::Send).inline(b"hello");
    peer.device.post_send(number, request).expect("accepted");
}

/// How many packets each queue pair has sent.
fn sent(peer: &Conversation, numbers: &[Qpn]) -> Vec<u64> {
    let queue_pairs = numbers.iter().map(|it| peer.device.queue_pair(*it));
    let counters = queue_pairs.map(|it| it.expect("it exists").counters().packets_sent);
    counters.collect()
}

#[test]
fn queue_pairs_to_one_peer_share_the_first_window() {
    let (mut peer, numbers) = with_queue_pairs(5);
    for number in &numbers {
        (0..20).for_each(|id| post(&mut peer, *number, id));
    }
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    // The window is free again, and more than before: those that have waited come first.
    peer.sends_to(numbers[0], at(2), ack(PSN + 19));
    peer.received(at(12));
    let sent = sent(&peer, &numbers);
    assert!(sent[1..].iter().all(|sent| *sent >= 5), "{sent:?}");
}

#[test]
fn queue_pair_that_ends_leaves_the_window_to_others() {
    for destroys in [false, true] {
        let (mut peer, numbers) = with_queue_pairs(3);
        for number in &numbers {
            (0..40).for_each(|id| post(&mut peer, *number, id));
        }
        assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
        let [first, waits, lasts] = numbers[..] else {
            unreachable!("there are three")
        };
        // One that waits ends first, so that its place is not that of another.
        for number in [waits, first] {
            let ended = if destroys {
                peer.device.destroy_queue_pair(number).is_ok()
            } else {
                peer.device.move_to_error(number).is_ok()
            };
            assert!(ended);
        }
        peer.received(at(2));
        assert_eq!(sent(&peer, &[lasts]), [FIRST_WINDOW as u64]);
    }
}

#[test]
fn queue_pair_that_waits_can_move_to_another_device() {
    let (mut peer, numbers) = with_queue_pairs(2);
    for number in &numbers {
        (0..40).for_each(|id| post(&mut peer, *number, id));
    }
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    let objects = std::sync::Arc::clone(peer.device.objects());
    let mut other = Device::sharing(peer.setup().config.clone(), objects);
    let moving = peer.device.give(QpnRange {
        first: numbers[1].value(),
        count: 1,
    });
    other.adopt(moving);
    let mut sent = 0;
    let mut buffer = Vec::new();
    while let Some(batch) = other.poll_transmit(at(1), &mut buffer) {
        sent += transmit::packets(&batch, &buffer).count();
    }
    assert_eq!(sent, FIRST_WINDOW);
    peer.sends_to(numbers[0], at(2), ack(PSN + 31));
    assert_eq!(peer.received(at(6)).len(), 8);
}

/// One that has not had its turn, and one that waits for an acknowledgement.
#[test]
fn queue_pairs_send_first_and_again_from_the_device_that_they_move_to() {
    for has_sent in [false, true] {
        let (mut peer, numbers) = with_queue_pairs(2);
        (numbers.iter()).for_each(|number| post(&mut peer, *number, 1));
        if has_sent {
            assert_eq!(peer.received(at(1)).len(), 2);
        }
        let objects = std::sync::Arc::clone(peer.device.objects());
        let mut other = Device::sharing(peer.setup().config.clone(), objects);
        let moving = peer.device.give(QpnRange {
            first: numbers[1].value(),
            count: 1,
        });
        other.adopt(moving);
        let mut buffer = Vec::new();
        let mut sends = |device: &mut Device, millis| {
            device.handle_timeout(at(millis));
            std::iter::from_fn(|| device.poll_transmit(at(millis), &mut buffer)).count()
        };
        let first = usize::from(!has_sent);
        for device in [&mut peer.device, &mut other] {
            assert_eq!(sends(device, 1), first, "{has_sent}");
            assert_eq!(sends(device, 69), 1, "its timeout");
        }
    }
}

#[test]
fn every_queue_pair_learns_in_time_that_the_peer_is_gone() {
    let (mut peer, numbers) = with_queue_pairs(100);
    for number in &numbers {
        post(&mut peer, *number, 1);
    }
    assert!(peer.received(at(1)).len() <= FIRST_WINDOW);
    // A timeout of 67 ms, which doubles up to four times that: 67 + 134 + 268 + 268.
    peer.received(at(69));
    let sent = sent(&peer, &numbers);
    assert!(sent.iter().all(|sent| *sent >= 1), "{sent:?}");
    peer.received(at(69 + 740));
    let completions = peer.completions();
    assert_eq!(completions.len(), numbers.len());
    let failed = |status: &Status| *status == Status::RetriesExhausted;
    assert!(completions.iter().all(|it| failed(&it.status)));
}

#[test]
fn queue_pair_whose_peer_is_silent_does_not_stop_others() {
    let (mut peer, numbers) = with_queue_pairs(2);
    let [silent, answered] = numbers[..] else {
        unreachable!("there are two")
    };
    post(&mut peer, answered, 0);
    assert_eq!(peer.received(at(1)).len(), 1);
    peer.sends_to(answered, at(2), ack(PSN));
    (0..100).for_each(|id| post(&mut peer, silent, id));
    (1..100).for_each(|id| post(&mut peer, answered, id));
    let mut arrived = 1;
    // The packets of the silent one are overdue soon. Then they fill the window only for itself; its first timeout is at 69 ms.
    for millis in 2..65 {
        peer.received(at(millis));
        let now = sent(&peer, &[answered])[0] as u32;
        if now > arrived {
            arrived = now;
            peer.sends_to(answered, at(millis), ack(PSN + (arrived - 1)));
        }
    }
    assert_eq!(arrived, 100);
}

#[test]
fn queue_pair_without_a_timeout_does_not_hide_from_others_that_the_peer_is_gone() {
    let (mut peer, numbers) = with_queue_pairs(2);
    connect_with_timeout(&mut peer, numbers[0], 0);
    (0..100).for_each(|id| post(&mut peer, numbers[0], id));
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    post(&mut peer, numbers[1], 7);
    peer.received(at(1 + 67 + 740));
    let failed = peer.completions();
    let failed: Vec<_> = failed.iter().map(|it| (it.id, it.status)).collect();
    assert_eq!(failed, [(7, Status::RetriesExhausted)]);
}

/// Their retries don't wait for each other.
#[test]
fn queue_pairs_with_much_to_send_learn_in_time_that_the_peer_is_gone() {
    let (mut peer, numbers) = with_queue_pairs(60);
    for number in &numbers {
        (0..50).for_each(|id| post(&mut peer, *number, id));
    }
    // The last ones begin when the packets of the first ones are overdue.
    peer.received(at(2 * 69 + 740));
    let failed = |number: &Qpn| {
        let queue_pair = peer.device.queue_pair(*number).expect("it exists");
        queue_pair.state() == State::Error
    };
    assert!(numbers.iter().all(failed));
}

#[test]
fn device_with_a_turn_to_give_is_not_quiet() {
    let (mut peer, numbers) = with_queue_pairs(2);
    (0..32).for_each(|id| post(&mut peer, numbers[0], id));
    (0..32).for_each(|id| post(&mut peer, numbers[1], id));
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    peer.events();
    assert!(peer.device.is_quiet());
    peer.sends_to(numbers[0], at(2), ack(PSN + 31));
    peer.events();
    assert!(!peer.device.is_quiet());
}

#[test]
fn queue_pairs_that_are_reset_and_connected_anew_send_again() {
    let (mut peer, numbers) = with_queue_pairs(2);
    (0..40).for_each(|id| post(&mut peer, numbers[0], id));
    (0..40).for_each(|id| post(&mut peer, numbers[1], id));
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    for number in &numbers {
        connect_with_timeout(&mut peer, *number, 14);
    }
    (0..40).for_each(|id| post(&mut peer, numbers[1], id));
    assert_eq!(peer.received(at(2)).len(), FIRST_WINDOW);
    assert_eq!(peer.state(), State::ReadyToSend);
}

/// A timeout of 17 s would show only then that the peer is gone. The retries of the other one don't wait behind them, either.
#[test]
fn queue_pairs_with_long_timeouts_do_not_hide_from_others_that_the_peer_never_answers() {
    let (mut peer, numbers) = with_queue_pairs(8);
    let [lasting @ .., short] = &numbers[..] else {
        unreachable!("there are eight")
    };
    for number in lasting {
        connect_with_timeout(&mut peer, *number, 22);
        (0..40).for_each(|id| post(&mut peer, *number, id));
    }
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    post(&mut peer, *short, 7);
    peer.received(at(1001 + 67 + 740));
    let failed = peer.completions();
    let failed: Vec<_> = failed.iter().map(|it| (it.id, it.status)).collect();
    assert_eq!(failed, [(7, Status::RetriesExhausted)]);
}

#[test]
fn queue_pair_that_has_failed_shares_nothing_with_its_successor() {
    let (mut peer, numbers) = with_queue_pairs(2);
    post(&mut peer, numbers[0], 1);
    peer.received(at(69 + 740));
    let failed = peer.device.queue_pair(numbers[0]).expect("it exists");
    assert_eq!(failed.state(), State::Error);
    peer.goes_to(State::Error);
    connect_with_timeout(&mut peer, numbers[1], 14);
    (0..40).for_each(|id| post(&mut peer, numbers[1], id));
    assert_eq!(peer.received(at(810)).len(), FIRST_WINDOW);
}

#[test]
fn only_one_packet_is_sent_between_a_timeout_and_its_response() {
    let (mut peer, numbers) = with_queue_pairs(1);
    (0..100).for_each(|id| post(&mut peer, numbers[0], id));
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
    assert_eq!(peer.received(at(69)).len(), 1);
    peer.sends_to(numbers[0], at(70), ack(PSN));
    assert!(peer.received(at(71)).len() > 1);
}

/// Their peers don't answer, but another one at the same address does.
#[test]
fn new_packets_of_queue_pairs_with_overdue_ones_share_the_window() {
    let (mut peer, numbers) = with_queue_pairs(11);
    let [silent @ .., answered] = &numbers[..] else {
        unreachable!("there are eleven")
    };
    post(&mut peer, *answered, 0);
    assert_eq!(peer.received(at(1)).len(), 1);
    peer.sends_to(*answered, at(2), ack(PSN));
    silent.iter().for_each(|it| post(&mut peer, *it, 0));
    assert_eq!(peer.received(at(4)).len(), 10);
    // All are overdue, and sent again.
    assert_eq!(peer.received(at(9)).len(), 10);
    for number in silent {
        (0..20).for_each(|id| post(&mut peer, *number, id));
    }
    // Each of them counts half of what it sends while it repairs losses.
    let sent = peer.received(at(19)).len();
    assert!((FIRST_WINDOW..2 * FIRST_WINDOW).contains(&sent), "{sent}");
}

/// Two queue pairs that fill the first window. The second one waits first.
#[test]
fn queue_pair_that_has_its_turn_does_not_wait_for_more_requests() {
    let (mut peer, numbers) = with_queue_pairs(2);
    let [first, other] = numbers[..] else {
        unreachable!("there are two")
    };
    (0..16).for_each(|id| post(&mut peer, first, id));
    assert_eq!(peer.received(at(1)).len(), 16);
    (0..40).for_each(|id| post(&mut peer, other, id));
    assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW - 16);
    (16..19).for_each(|id| post(&mut peer, first, id));
    peer.receives_nothing(at(1));
    // There is room for the turns of both.
    peer.sends_to(other, at(2), ack(PSN + 15));
    peer.received(at(3));
    assert_eq!(sent(&peer, &[first]), [19]);
}

#[test]
fn congestion_notification_takes_no_turn() {
    for polls in 0..2 {
        let (mut peer, numbers) = with_queue_pairs(1);
        let [first, other] = [peer.number, numbers[0]];
        (0..16).for_each(|id| post(&mut peer, first, id));
        (0..16).for_each(|id| post(&mut peer, other, id));
        assert_eq!(peer.received(at(1)).len(), FIRST_WINDOW);
        (16..19).for_each(|id| post(&mut peer, first, id));
        (16..40).for_each(|id| post(&mut peer, other, id));
        peer.receives_nothing(at(1));
        let region = peer.registers(0x1000, &[0; 16]);
        peer.posts_receive(1, &region);
        // Either what is ready or the turn comes first.
        (0..polls).for_each(|_| assert!(peer.received_batch(at(1)).is_none()));
        peer.sends_marked(at(2), send_only(PSN, b"hello"));
        peer.sends_to(other, at(2), ack(PSN + 15));
        let packets = peer.received(at(2));
        let (notices, sends): (Vec<_>, Vec<_>) =
            packets.iter().partition(|packet| packet.text() == "cnp");
        assert_eq!(notices.len(), 1);
        assert_eq!(sends[0].packet().destination, PEER);
    }
}

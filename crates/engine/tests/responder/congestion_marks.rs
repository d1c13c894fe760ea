//! Packets that a congested router has marked are answered with congestion notifications.

use engine::{Config, Congestion};

use crate::conversation::*;

/// A queue pair whose congestion is controlled as that of a peer on another host.
fn controlled() -> Conversation {
    let setup = Setup::default();
    let config = Config {
        congestion: Congestion::Model,
        ..setup.config.clone()
    };
    let mut peer = Conversation::with(Setup { config, ..setup });
    let region = peer.registers(0x1000, &[0; 16]);
    (0..4).for_each(|id| peer.posts_receive(id, &region));
    peer
}

// Annex A17.9.3.
#[test]
fn notification_has_the_format_of_the_specification() {
    let mut peer = controlled();
    peer.sends_marked(at(1), send_only(PSN, b"hello").ackreq());
    let [notification, acknowledgement] = &peer.received(at(1))[..] else {
        panic!("there are two");
    };
    let head = [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 0x77, 0, 0, 0, 0];
    let (bytes, _icrc) = notification.bytes().split_at(12 + 16);
    assert_eq!(bytes, [&head[..], &[0; 16]].concat());
    assert_eq!(acknowledgement.text(), "ack +0");
    let counters = peer.counters();
    assert_eq!(counters.congestion_marks, 1);
    assert_eq!(counters.congestion_notifications_sent, 1);
}

#[test]
fn routers_may_mark_all_packets_but_notifications() {
    let mut peer = controlled();
    peer.sends_marked(at(1), send_only(PSN, b"hello").ackreq());
    let classes: Vec<u8> = (peer.received(at(1)).iter())
        .map(|it| it.route.traffic_class)
        .collect();
    assert_eq!(classes, [0, 2]);
}

#[test]
fn packets_without_control_of_congestion_are_not_to_be_marked() {
    let mut peer = Conversation::new();
    let region = peer.registers(0x1000, &[0; 16]);
    peer.posts_receive(1, &region);
    peer.sends(at(1), send_only(PSN, b"hello").ackreq());
    let packets = peer.received(at(1));
    assert_eq!(packets[0].route.traffic_class, 0);
}

#[test]
fn peer_is_notified_at_most_once_in_fifty_microseconds() {
    let mut peer = controlled();
    for (psn, micros, expected) in [
        (0, 0, &["cnp"][..]),
        (1, 49, &[]),
        (2, 50, &["cnp"]),
        (3, 99, &[]),
    ] {
        let now = at_nanos(1000 * micros);
        peer.sends_marked(now, send_only(PSN + psn, b"hello"));
        let packets = peer.received(now);
        let texts: Vec<&str> = packets.iter().map(DevicePacket::text).collect();
        assert_eq!(texts, expected, "{micros} µs");
    }
}

#[test]
fn packet_without_a_mark_is_answered_without_a_notification() {
    let mut peer = controlled();
    peer.sends(at(1), send_only(PSN, b"hello").ackreq());
    peer.receives(at(1), ["ack +0"]);
}

#[test]
fn marked_packet_that_is_not_accepted_is_no_reason_for_a_notification() {
    let mut peer = controlled();
    peer.sends_marked(at(1), send_only(PSN, b"hello").partition(0x1234));
    peer.receives_nothing(at(1));
}

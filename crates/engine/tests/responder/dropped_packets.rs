//! Packets that are not for this queue pair, and invalid packets: counted, never answered.

use engine::{Counters, State, Status};
use wire::{Opcode, PathMtu, Qpn, Reth, Srqn};

use crate::conversation::*;

fn ready() -> Conversation {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    peer
}

/// Asserts that the only effect is one count.
#[track_caller]
fn assert_only_counted(mut peer: Conversation, counter: fn(&mut Counters) -> &mut u64) {
    peer.receives_nothing(at(2));
    peer.completes([]);
    let mut expected = Counters::default();
    *counter(&mut expected) = 1;
    assert_eq!(*peer.counters(), expected);
}

// IBA 9.6.1.2.3
#[test]
fn packet_from_another_address_is_dropped() {
    let mut peer = ready();
    let mut flow = flow();
    flow.source = [10, 0, 0, 9].into();
    let datagram = send_only(PSN, b"other address")
        .ackreq()
        .sealed(peer.number, &flow);
    peer.delivers(at(1), &flow, &datagram);
    assert_only_counted(peer, |counters| &mut counters.wrong_path);
}

// IBA 9.6.1.2.3
#[test]
fn packet_to_another_local_address_is_dropped() {
    let mut peer = ready();
    let mut flow = flow();
    flow.destination = [10, 0, 0, 9].into();
    let datagram = send_only(PSN, b"wrong.")
        .ackreq()
        .sealed(peer.number, &flow);
    peer.delivers(at(1), &flow, &datagram);
    assert_only_counted(peer, |counters| &mut counters.wrong_path);
}

#[test]
fn packet_of_another_partition_is_dropped() {
    let mut peer = ready();
    peer.sends(at(1), send_only(PSN, b"other").ackreq().partition(0x8001));
    assert_only_counted(peer, |counters| &mut counters.bad_partition_key);
}

#[test]
fn packet_of_a_limited_partition_member_is_accepted() {
    let mut peer = ready();
    peer.sends(at(1), send_only(PSN, b"limited").ackreq().partition(0x7fff));
    peer.receives(at(1), ["ack +0"]);
}

#[test]
fn packet_of_another_transport_is_dropped() {
    for opcode in [Opcode::UcSendOnly, Opcode::UdSendOnly, Opcode::XrcSendOnly] {
        let mut peer = ready();
        let sent = match opcode {
            Opcode::UdSendOnly => datagram(PSN, 0x1111_1111, PEER, b"datagram"),
            Opcode::XrcSendOnly => xrc_send_only(PSN, Srqn::new(1), b"xrc"),
            _ => PeerPacket::new(opcode, PSN, b"uc"),
        };
        peer.sends(at(1), sent.ackreq());
        assert_only_counted(peer, |counters| &mut counters.wrong_service);
    }
}

// CA17-24
#[test]
fn packet_with_a_wrong_icrc_is_dropped() {
    let mut peer = ready();
    let mut datagram = send_only(PSN, b"intact")
        .ackreq()
        .sealed(peer.number, &flow());
    datagram[14] ^= 0x40;
    peer.delivers(at(1), &flow(), &datagram);
    assert_only_counted(peer, |counters| &mut counters.bad_checksum);
}

#[test]
fn packet_for_an_unknown_queue_pair_is_dropped() {
    let mut peer = ready();
    let unknown = Qpn::new(peer.number.value() + 1);
    peer.sends(at(1), send_only(PSN, b"hello").ackreq().to(unknown));
    assert_only_counted(peer, |counters| &mut counters.unknown_queue_pair);
}

#[test]
fn datagram_that_is_not_a_packet_is_dropped() {
    let whole = send_only(PSN, b"").sealed(Qpn::new(16), &flow());
    for length in [0, 1, 11, 15] {
        let mut peer = ready();
        peer.delivers(at(1), &flow(), &whole[..length]);
        assert_only_counted(peer, |counters| &mut counters.malformed);
    }
}

#[test]
fn packet_with_an_undefined_opcode_is_dropped() {
    let mut peer = ready();
    let mut datagram = send_only(PSN, b"").sealed(peer.number, &flow());
    datagram.truncate(12);
    datagram[0] = 0x1f;
    reseal(&mut datagram, &flow());
    peer.delivers(at(1), &flow(), &datagram);
    assert_only_counted(peer, |counters| &mut counters.malformed);
}

#[test]
fn congestion_notification_is_counted() {
    let mut peer = ready();
    peer.sends(
        at(1),
        PeerPacket::new(Opcode::CongestionNotification, PSN, &[0; 16]),
    );
    assert_only_counted(peer, |counters| &mut counters.congestion_notifications);
}

// IBA 10.3.1
#[test]
fn packet_before_ready_to_receive_is_dropped() {
    for state in [State::Reset, State::Initialized] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        peer.sends(at(1), send_only(PSN, b"early").ackreq());
        assert_only_counted(peer, |counters| &mut counters.wrong_state);
    }
}

// IBA 10.3.1
#[test]
fn packet_in_the_error_state_is_dropped() {
    let mut peer = ready();
    peer.goes_to(State::Error);
    peer.completes([(1, Status::Flushed)]);
    peer.sends(at(1), send_only(PSN, b"late").ackreq());
    assert_only_counted(peer, |counters| &mut counters.wrong_state);
}

#[test]
fn response_without_a_request_is_dropped() {
    let mut peer = ready();
    peer.sends(at(1), ack(PSN));
    peer.receives_nothing(at(1));
    assert_eq!(peer.counters().unexpected_responses, 1);
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn queue_pairs_keep_a_limited_amount_together_and_then_drop_all() {
    const PAGE: usize = 4096;
    // Five times as much as one queue pair keeps is more than the limit of all.
    const KEPT_BY_EACH: u32 = 4000;
    let mut peer = Conversation::with(Setup {
        path_mtu: PathMtu::Mtu4096,
        ..Setup::default()
    });
    let first = peer.number;
    let region = peer.registers(0x1000, &[0; 2 * PAGE]);
    // The first packet of a queue pair is for the first page, all others are for the second one.
    let write = |offset: u32| {
        let page = u64::from(offset.min(1)) * PAGE as u64;
        let reth = Reth::new(region.address(page), region.key(), PAGE as u32);
        write_only(PSN + offset, reth, &[7; PAGE])
    };
    for _ in 0..5 {
        for offset in 1..=KEPT_BY_EACH {
            peer.sends(at(1), write(offset));
        }
        peer.number = peer.adds(peer.init());
    }
    peer.number = first;
    peer.sends(at(2), write(0));
    assert_eq!(region.bytes()[PAGE - 1..=PAGE], [7, 0]);
    peer.sends(at(3), write(1));
    assert_eq!(region.bytes()[PAGE - 1..=PAGE], [7, 7]);
}

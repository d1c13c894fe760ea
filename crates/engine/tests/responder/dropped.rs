//! Packets that are not for this queue pair, or no packets at all: counted, never answered.

use engine::{Counters, State, Status};
use wire::{Opcode, Qpn};

use crate::conversation::*;

fn ready() -> Conversation {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.receives(1, &inbox);
    peer
}

/// Nothing came of it but one count.
#[track_caller]
fn is_only_counted(mut peer: Conversation, counter: fn(&mut Counters) -> &mut u64) {
    peer.hears_nothing(at(2));
    peer.completes([]);
    let mut expected = Counters::default();
    *counter(&mut expected) = 1;
    assert_eq!(*peer.counters(), expected);
}

#[test]
fn a_packet_from_another_address() {
    let mut peer = ready();
    let mut flow = flow();
    flow.source = [10, 0, 0, 9].into();
    let datagram = send_only(PSN, b"stranger").ask().sealed(peer.number, &flow);
    peer.delivers(at(1), &flow, &datagram);
    is_only_counted(peer, |counters| &mut counters.wrong_path);
}

#[test]
fn a_packet_to_another_of_our_addresses() {
    let mut peer = ready();
    let mut flow = flow();
    flow.destination = [10, 0, 0, 9].into();
    let datagram = send_only(PSN, b"astray").ask().sealed(peer.number, &flow);
    peer.delivers(at(1), &flow, &datagram);
    is_only_counted(peer, |counters| &mut counters.wrong_path);
}

#[test]
fn a_packet_of_another_partition() {
    let mut peer = ready();
    peer.says(at(1), send_only(PSN, b"other").ask().partition(0x8001));
    is_only_counted(peer, |counters| &mut counters.bad_partition_key);
}

#[test]
fn a_limited_member_of_our_partition_is_let_in() {
    let mut peer = ready();
    peer.says(at(1), send_only(PSN, b"limited").ask().partition(0x7fff));
    peer.hears(at(1), ["ack +0"]);
}

#[test]
fn a_packet_of_another_service() {
    for opcode in [Opcode::UcSendOnly, Opcode::UdSendOnly, Opcode::XrcSendOnly] {
        let mut peer = ready();
        let said = match opcode {
            Opcode::UdSendOnly => datagram(PSN, 0x1111_1111, PEER, b"datagram"),
            Opcode::XrcSendOnly => xrc_send_only(PSN, Qpn::new(1), b"xrc"),
            _ => Said::new(opcode, PSN, b"uc"),
        };
        peer.says(at(1), said.ask());
        is_only_counted(peer, |counters| &mut counters.wrong_service);
    }
}

#[test]
fn a_packet_that_was_changed_on_the_way() {
    let mut peer = ready();
    let mut datagram = send_only(PSN, b"intact").ask().sealed(peer.number, &flow());
    datagram[14] ^= 0x40;
    peer.delivers(at(1), &flow(), &datagram);
    is_only_counted(peer, |counters| &mut counters.bad_checksum);
}

#[test]
fn a_packet_for_a_queue_pair_that_does_not_exist() {
    let mut peer = ready();
    let nobody = Qpn::new(peer.number.value() + 1);
    peer.says(at(1), send_only(PSN, b"hello").ask().to(nobody));
    is_only_counted(peer, |counters| &mut counters.unknown_queue_pair);
}

#[test]
fn a_datagram_that_is_no_packet() {
    let whole = send_only(PSN, b"").sealed(Qpn::new(16), &flow());
    for length in [0, 1, 11, 15] {
        let mut peer = ready();
        peer.delivers(at(1), &flow(), &whole[..length]);
        is_only_counted(peer, |counters| &mut counters.malformed);
    }
}

#[test]
fn an_opcode_that_nobody_defined() {
    let mut peer = ready();
    let mut datagram = send_only(PSN, b"").sealed(peer.number, &flow());
    datagram.truncate(12);
    datagram[0] = 0x1f;
    reseal(&mut datagram, &flow());
    peer.delivers(at(1), &flow(), &datagram);
    is_only_counted(peer, |counters| &mut counters.malformed);
}

#[test]
fn a_congestion_notification() {
    let mut peer = ready();
    peer.says(
        at(1),
        Said::new(Opcode::CongestionNotification, PSN, &[0; 16]),
    );
    is_only_counted(peer, |counters| &mut counters.congestion_notifications);
}

#[test]
fn a_packet_before_the_queue_pair_is_ready() {
    for state in [State::Reset, State::Initialized] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        peer.says(at(1), send_only(PSN, b"early").ask());
        is_only_counted(peer, |counters| &mut counters.wrong_state);
    }
}

#[test]
fn a_packet_after_the_queue_pair_broke() {
    let mut peer = ready();
    peer.goes_to(State::Error);
    peer.completes([(1, Status::Flushed)]);
    peer.says(at(1), send_only(PSN, b"late").ask());
    is_only_counted(peer, |counters| &mut counters.wrong_state);
}

#[test]
fn a_response_to_nothing() {
    let mut peer = ready();
    peer.says(at(1), ack(PSN));
    peer.hears_nothing(at(1));
    assert_eq!(peer.counters().ghost_responses, 1);
    assert_eq!(peer.state(), State::ReadyToSend);
}

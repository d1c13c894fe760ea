//! Receives: filled, consumed, missing, too short, unusable, flushed.

use std::sync::Arc;

use engine::{
    Access, AsyncEvent, Buffer, CompletedWork, Notify, ReceiveRequest, Segment, State, Status,
    WindowKind,
};
use wire::{Ieth, Key, Opcode, Reth};

use crate::conversation::*;

fn with_inbox(length: usize) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &vec![0; length]);
    (peer, inbox)
}

#[test]
fn message_of_several_packets_fills_one_receive() {
    let (mut peer, inbox) = with_inbox(4096);
    peer.posts_receive(1, &inbox);
    let data = pattern(2500);
    peer.sends(at(1), send_first(PSN, &data[..1024]));
    peer.sends(at(1), send_middle(PSN + 1, &data[1024..2048]));
    peer.completes([]);
    peer.sends(at(1), send_last(PSN + 2, &data[2048..]).ackreq());
    peer.receives(at(1), ["ack +2"]);
    let completion = peer.completion();
    assert_eq!(completion.work, CompletedWork::Receive);
    assert_eq!((completion.id, completion.length), (1, 2500));
    assert_eq!(inbox.first(2500), data);
    assert_eq!(inbox.bytes()[2500..], [0; 1596]);
}

#[test]
fn message_is_scattered_over_the_segments_of_its_receive() {
    let (mut peer, inbox) = with_inbox(256);
    let segments = [
        inbox.segment(0, 3),
        inbox.segment(50, 0),
        inbox.segment(100, 5),
        inbox.segment(200, 50),
    ];
    peer.posts_receive_request(ReceiveRequest::new(1, segments));
    peer.sends(at(1), send_only(PSN, b"scattered about"));
    let bytes = inbox.bytes();
    assert_eq!(bytes[..5], *b"sca\0\0");
    assert_eq!(bytes[100..106], *b"ttere\0");
    assert_eq!(bytes[200..208], *b"d about\0");
    assert_eq!(peer.completion().length, 15);
}

#[test]
fn empty_message_consumes_a_receive() {
    let (mut peer, _) = with_inbox(8);
    peer.posts_receive_request(ReceiveRequest::new(1, []));
    peer.sends(at(1), send_only(PSN, b"").ackreq());
    peer.receives(at(1), ["ack +0"]);
    let completion = peer.completion();
    assert_eq!((completion.id, completion.length), (1, 0));
}

#[test]
fn completion_reports_immediate_data() {
    let (mut peer, inbox) = with_inbox(64);
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), send_immediate(PSN, b"data", *b"imm!"));
    let completion = peer.completion();
    assert_eq!(completion.work, CompletedWork::Receive);
    assert_eq!(completion.immediate, Some(*b"imm!"));
    assert_eq!(completion.length, 4);
}

#[test]
fn write_with_immediate_writes_memory_and_consumes_a_receive() {
    let (mut peer, inbox) = with_inbox(64);
    let memory = peer.registers(0x8000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    let reth = Reth::new(memory.address(4), memory.key(), 5);
    peer.sends(
        at(1),
        write_immediate(PSN, reth, b"there", *b"here").ackreq(),
    );
    peer.receives(at(1), ["ack +0"]);
    let completion = peer.completion();
    assert_eq!(completion.work, CompletedWork::ReceiveWriteImmediate);
    assert_eq!((completion.id, completion.length), (1, 5));
    assert_eq!(completion.immediate, Some(*b"here"));
    assert_eq!(memory.first(10), b"\0\0\0\0there\0");
    assert_eq!(inbox.bytes(), [0; 64]);
}

#[test]
fn long_write_with_immediate_completes_with_its_whole_length() {
    let (mut peer, _) = with_inbox(8);
    let memory = peer.registers(0x8000, &[0; 4096]);
    peer.posts_receive_request(ReceiveRequest::new(1, []));
    let data = pattern(1500);
    let reth = Reth::new(memory.address(0), memory.key(), 1500);
    peer.sends(at(1), write_first(PSN, reth, &data[..1024]));
    peer.sends(
        at(1),
        write_last_immediate(PSN + 1, &data[1024..], *b"done"),
    );
    assert_eq!(peer.completion().length, 1500);
    assert_eq!(memory.first(1500), data);
}

// C10-87, C9-88
#[test]
fn zero_length_write_with_immediate_consumes_a_receive_and_needs_no_key() {
    let (mut peer, inbox) = with_inbox(64);
    peer.posts_receive(1, &inbox);
    let nothing = Reth::new(0, Key::new(0), 0);
    peer.sends(at(1), write_immediate(PSN, nothing, b"", *b"ping").ackreq());
    peer.receives(at(1), ["ack +0"]);
    let completion = peer.completion();
    assert_eq!(completion.work, CompletedWork::ReceiveWriteImmediate);
    assert_eq!(completion.immediate, Some(*b"ping"));
    assert_eq!(completion.length, 0);
}

// C10-87
#[test]
fn plain_write_consumes_no_receive() {
    let (mut peer, inbox) = with_inbox(64);
    peer.posts_receive(1, &inbox);
    let reth = Reth::new(inbox.address(0), inbox.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"data").ackreq());
    peer.receives(at(1), ["ack +0"]);
    peer.completes([]);
}

// IBA "Responder Error Behavior Summary"
#[test]
fn missing_receive_causes_an_rnr_nak_and_the_retry_succeeds() {
    let (mut peer, inbox) = with_inbox(64);
    peer.sends(at(1), send_only(PSN, b"early").ackreq());
    peer.receives(at(1), ["rnr-nak +0 0.64ms"]);
    // One NAK is sent. The device drops packets until the expected one arrives.
    peer.sends(at(1), send_only(PSN + 1, b"after it.").ackreq());
    peer.receives_nothing(at(1));
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    peer.receives_nothing(at(2));
    peer.sends(at(3), send_only(PSN, b"early").ackreq());
    peer.sends(at(3), send_only(PSN + 1, b"after it.").ackreq());
    peer.receives(at(3), ["ack +1"]);
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    assert_eq!(peer.counters().rnr_naks_sent, 1);
}

#[test]
fn early_retry_causes_another_rnr_nak() {
    let (mut peer, _) = with_inbox(64);
    for millis in 1..4 {
        peer.sends(at(millis), send_only(PSN, b"early").ackreq());
        peer.receives(at(millis), ["rnr-nak +0 0.64ms"]);
    }
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn last_packet_of_a_write_with_immediate_needs_a_receive() {
    let (mut peer, _) = with_inbox(8);
    let memory = peer.registers(0x8000, &[0; 4096]);
    let data = pattern(1500);
    let reth = Reth::new(memory.address(0), memory.key(), 1500);
    let last = || write_last_immediate(PSN + 1, &pattern(1500)[1024..], *b"done").ackreq();
    peer.sends(at(1), write_first(PSN, reth, &data[..1024]));
    peer.sends(at(1), last());
    peer.receives(at(1), ["rnr-nak +1 0.64ms"]);
    peer.posts_receive_request(ReceiveRequest::new(1, []));
    peer.sends(at(2), last());
    peer.receives(at(2), ["ack +1"]);
    assert_eq!(peer.completion().length, 1500);
    assert_eq!(memory.first(1500), data);
}

#[test]
fn send_longer_than_its_receive_fails_on_both_sides_and_flushes_the_others() {
    let (mut peer, inbox) = with_inbox(64);
    peer.posts_receive_request(ReceiveRequest::new(1, [inbox.segment(0, 4)]));
    peer.posts_receive(2, &inbox);
    peer.posts_receive(3, &inbox);
    peer.sends(at(1), send_only(PSN, b"five!").ackreq());
    peer.receives(at(1), ["nak invalid +0"]);
    peer.completes([
        (1, Status::LocalLength),
        (2, Status::Flushed),
        (3, Status::Flushed),
    ]);
    assert_eq!(peer.state(), State::Error);
    assert_eq!(inbox.bytes(), [0; 64]);
}

#[test]
fn long_send_is_rejected_at_the_packet_that_exceeds_its_receive() {
    let (mut peer, inbox) = with_inbox(4096);
    peer.posts_receive_request(ReceiveRequest::new(1, [inbox.segment(0, 2000)]));
    peer.sends(at(1), send_first(PSN, &pattern(1024)));
    peer.sends(at(1), send_middle(PSN + 1, &pattern(1024)));
    peer.receives(at(1), ["nak invalid +1"]);
    peer.completes([(1, Status::LocalLength)]);
    assert_eq!(inbox.bytes()[2000..], [0; 2096]);
}

// IBA "Responder Error Behavior Summary"
#[test]
fn unusable_receive_causes_a_remote_operational_nak() {
    let unusable: [fn(&mut Conversation, &Region) -> Segment; 4] = [
        |peer, inbox| {
            peer.deregisters(inbox);
            inbox.all()
        },
        |peer, _| {
            let read_only = peer.registers_for(0x8000, &[0; 64], Access::REMOTE_READ);
            read_only.all()
        },
        |_, inbox| inbox.segment(60, 8),
        |peer, _| {
            let other = peer.device.allocate_domain().expect("a domain");
            let buffer = Buffer::zeroed(64);
            let registration = peer
                .device
                .register(other, Arc::clone(&buffer), 0, all_access())
                .expect("the memory is registered");
            Segment {
                address: 0,
                length: 64,
                key: registration.local_key,
            }
        },
    ];
    for make in unusable {
        let (mut peer, inbox) = with_inbox(64);
        let segment = make(&mut peer, &inbox);
        peer.posts_receive_request(ReceiveRequest::new(1, [segment]));
        peer.posts_receive_request(ReceiveRequest::new(2, []));
        peer.sends(at(1), send_only(PSN, b"message").ackreq());
        peer.receives(at(1), ["nak operational +0"]);
        peer.completes([(1, Status::LocalProtection), (2, Status::Flushed)]);
        assert_eq!(peer.state(), State::Error);
        assert_eq!(inbox.bytes(), [0; 64]);
    }
}

#[test]
fn solicited_message_notifies_a_queue_armed_for_solicited() {
    let (mut peer, inbox) = with_inbox(64);
    for id in 1..4 {
        peer.posts_receive(id, &inbox);
    }
    peer.arms(Notify::Solicited);
    peer.sends(at(1), send_only(PSN, b"quiet"));
    assert!(!peer.is_notified());
    peer.sends(at(2), send_only(PSN + 1, b"loud").solicited());
    assert!(peer.is_notified());
    // The notification is one-shot: the queue must be armed again.
    peer.sends(at(3), send_only(PSN + 2, b"loud").solicited());
    assert!(!peer.is_notified());
}

#[test]
fn failed_receive_notifies_a_queue_armed_for_solicited() {
    let (mut peer, inbox) = with_inbox(64);
    peer.posts_receive(1, &inbox);
    peer.arms(Notify::Solicited);
    peer.goes_to(State::Error);
    assert!(peer.is_notified());
}

#[test]
fn send_with_invalidate_unbinds_the_window_and_reports_its_key() {
    let (mut peer, inbox) = with_inbox(64);
    let window = binds_window(&mut peer, &inbox);
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), send_invalidate(PSN, b"done", window).ackreq());
    peer.receives(at(1), ["ack +0"]);
    let completion = peer.completion();
    assert_eq!(completion.status, Status::Success);
    assert_eq!(completion.invalidated, Some(window));
    let reth = Reth::new(inbox.address(0), window, 4);
    peer.sends(at(2), read_request(PSN + 1, reth));
    peer.receives(at(2), ["nak access +1"]);
}

#[test]
fn send_with_a_key_that_cannot_be_invalidated_is_rejected_and_its_receive_fails() {
    let (mut peer, inbox) = with_inbox(64);
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    let key = inbox.key();
    peer.sends(at(1), send_invalidate(PSN, b"done", key).ackreq());
    peer.receives(at(1), ["nak access +0"]);
    peer.completes([(1, Status::RemoteInvalidRequest), (2, Status::Flushed)]);
    assert_eq!(inbox.first(4), [0; 4], "nothing was delivered");
    let number = peer.number;
    peer.raises([AsyncEvent::AccessError(number)]);
    assert_eq!(peer.state(), State::Error);
}

// o10-37.2.26
#[test]
fn send_cannot_invalidate_a_type_1_window() {
    let (mut peer, inbox) = with_inbox(64);
    let window = peer
        .device
        .allocate_window(peer.domain, WindowKind::One)
        .expect("a window");
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), send_invalidate(PSN, b"done", window).ackreq());
    peer.receives(at(1), ["nak access +0"]);
    peer.completes([(1, Status::RemoteInvalidRequest)]);
}

#[test]
fn key_of_a_longer_send_is_checked_with_its_last_packet() {
    let (mut peer, inbox) = with_inbox(4096);
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), send_first(PSN, &pattern(1024)));
    let last = PeerPacket::new(Opcode::RcSendLastInvalidate, PSN + 1, b"end");
    peer.sends(at(1), last.push(&Ieth::new(Key::new(0x5555))).ackreq());
    peer.receives(at(1), ["nak access +1"]);
    peer.completes([(1, Status::RemoteInvalidRequest)]);
}

fn binds_window(peer: &mut Conversation, region: &Region) -> Key {
    let window = peer
        .device
        .allocate_window(peer.domain, WindowKind::Two)
        .expect("a window");
    let key = Key::new(window.value() ^ 0x55);
    let binding = engine::Binding {
        region: region.key(),
        address: region.address(0),
        length: 64,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
    };
    let work = engine::Work::BindWindow {
        window,
        key: Some(key),
        binding,
    };
    peer.posts(engine::SendRequest::new(99, work));
    peer.receives_nothing(at(0));
    peer.completes([(99, Status::Success)]);
    key
}

#[test]
fn receives_are_flushed_in_order_the_one_being_filled_first() {
    let (mut peer, inbox) = with_inbox(4096);
    for id in 1..=4 {
        peer.posts_receive(id, &inbox);
    }
    peer.sends(at(1), send_only(PSN, b"done"));
    peer.sends(at(1), send_first(PSN + 1, &pattern(1024)));
    peer.goes_to(State::Error);
    peer.completes([
        (1, Status::Success),
        (2, Status::Flushed),
        (3, Status::Flushed),
        (4, Status::Flushed),
    ]);
    peer.posts_receive(5, &inbox);
    peer.completes([(5, Status::Flushed)]);
    peer.raises([]);
}

// IBA "Responder Error Behavior Summary", IBA 9.9.3.1.3
#[test]
fn rejected_request_raises_one_event() {
    let (mut peer, inbox) = with_inbox(4);
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), send_only(PSN, b"too long"));
    let number = peer.number;
    peer.raises([AsyncEvent::RequestError(number)]);
}

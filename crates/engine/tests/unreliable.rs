//! Unreliable connections: a message arrives complete and in order, or not at all.

mod conversation;

use std::time::Duration;

use conversation::*;
use engine::{
    Access, AsyncEvent, Attributes, CompletedWork, Config, QueuePairType, ReceiveRequest,
    SendFlags, SendRequest, State, Status, Work,
};
use wire::{Immediate, Key, Opcode, Psn, Reth};

fn connected() -> (Conversation, Region) {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Uc,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 8192]);
    (peer, memory)
}

fn with_receives(count: u64) -> (Conversation, Region) {
    let (mut peer, memory) = connected();
    for id in 1..=count {
        peer.posts_receive(id, &memory);
    }
    (peer, memory)
}

fn only(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::UcSendOnly, psn, payload)
}

fn first(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::UcSendFirst, psn, payload)
}

fn middle(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::UcSendMiddle, psn, payload)
}

fn last(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::UcSendLast, psn, payload)
}

fn write(opcode: Opcode, psn: Psn, reth: Reth, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(opcode, psn, payload).push(&reth)
}

#[test]
fn message_is_delivered_and_never_acknowledged() {
    let (mut peer, memory) = with_receives(2);
    let data = pattern(2500);
    peer.sends(at(1), only(PSN, b"hello").ackreq());
    peer.sends(at(1), first(PSN + 1, &data[..1024]).ackreq());
    peer.sends(at(1), middle(PSN + 2, &data[1024..2048]).ackreq());
    peer.sends(at(1), last(PSN + 3, &data[2048..]).ackreq());
    peer.receives_nothing(at(2));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    assert_eq!(memory.first(2500), data);
}

#[test]
fn gap_between_messages_does_not_affect_later_messages() {
    let (mut peer, _) = with_receives(2);
    peer.sends(at(1), only(PSN, b"one"));
    peer.sends(at(1), only(PSN + 5, b"six"));
    peer.receives_nothing(at(1));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

// C9-166
#[test]
fn gap_inside_a_message_drops_it_and_its_receive_is_reused() {
    let (mut peer, memory) = with_receives(1);
    peer.sends(at(1), first(PSN, &pattern(1024)));
    // Packet 1 is lost.
    peer.sends(at(1), middle(PSN + 2, &pattern(1024)));
    peer.sends(at(1), last(PSN + 3, b"end"));
    peer.completes([]);
    peer.sends(at(2), only(PSN + 4, b"next"));
    peer.receives_nothing(at(2));
    let completion = peer.completion();
    assert_eq!((completion.id, completion.length), (1, 4));
    assert_eq!(memory.first(4), b"next");
    assert_eq!(peer.counters().dropped_messages, 1);
}

// C9-167
#[test]
fn new_message_drops_an_unfinished_one() {
    let (mut peer, _) = with_receives(1);
    peer.sends(at(1), first(PSN, &pattern(1024)));
    peer.sends(at(1), only(PSN + 1, b"next"));
    assert_eq!(peer.completion().length, 4);
    assert_eq!(peer.counters().dropped_messages, 1);
}

// C9-167
#[test]
fn message_without_its_first_packet_is_dropped() {
    let (mut peer, _) = with_receives(1);
    peer.sends(at(1), middle(PSN + 1, &pattern(1024)));
    peer.sends(at(1), last(PSN + 2, b"end"));
    peer.completes([]);
    peer.raises([]);
    peer.sends(at(1), only(PSN + 3, b"next"));
    peer.completes([(1, Status::Success)]);
}

// C9-169
#[test]
fn message_without_a_receive_is_dropped() {
    let (mut peer, memory) = connected();
    peer.sends(at(1), first(PSN, &pattern(1024)));
    peer.posts_receive(1, &memory);
    peer.sends(at(1), last(PSN + 1, b"end"));
    peer.receives_nothing(at(1));
    peer.completes([]);
    assert_eq!(peer.counters().dropped_messages, 1);
    peer.sends(at(2), only(PSN + 2, b"next"));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn message_longer_than_its_receive_is_dropped() {
    let (mut peer, memory) = connected();
    peer.posts_receive_request(ReceiveRequest::new(1, [memory.segment(0, 4)]));
    peer.sends(at(1), only(PSN, b"five!"));
    peer.receives_nothing(at(1));
    peer.sends(at(2), only(PSN + 1, b"four"));
    assert_eq!(peer.completion().length, 4);
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn packet_of_the_wrong_length_drops_its_message() {
    for length in [0, 1023, 1025] {
        let (mut peer, _) = with_receives(1);
        peer.sends(at(1), first(PSN, &pattern(length)));
        peer.sends(at(1), last(PSN + 1, b"end"));
        peer.completes([]);
        peer.raises([]);
        assert_eq!(peer.state(), State::ReadyToSend);
    }
}

#[test]
fn unusable_receive_moves_the_queue_pair_to_error() {
    let (mut peer, memory) = connected();
    peer.posts_receive_request(ReceiveRequest::new(1, [memory.segment(8190, 4)]));
    peer.posts_receive(2, &memory);
    peer.sends(at(1), only(PSN, b"data"));
    peer.receives_nothing(at(1));
    peer.completes([(1, Status::LocalProtection), (2, Status::Flushed)]);
    let number = peer.number;
    peer.raises([AsyncEvent::QueuePairFatal(number)]);
    assert_eq!(peer.state(), State::Error);
}

#[test]
fn write_changes_memory() {
    let (mut peer, memory) = connected();
    let data = pattern(1500);
    let reth = Reth::new(memory.address(4), memory.key(), 1500);
    peer.sends(at(1), write(Opcode::UcWriteFirst, PSN, reth, &data[..1024]));
    let last = PeerPacket::new(Opcode::UcWriteLast, PSN + 1, &data[1024..]);
    peer.sends(at(1), last);
    peer.receives_nothing(at(1));
    peer.completes([]);
    assert_eq!(memory.bytes()[4..1504], data);
}

#[test]
fn write_with_immediate_consumes_a_receive() {
    let (mut peer, memory) = with_receives(1);
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    let sent = write(Opcode::UcWriteOnlyImmediate, PSN, reth, b"data");
    peer.sends(at(1), sent.push(&Immediate::new(*b"imm!")));
    let completion = peer.completion();
    assert_eq!(completion.work, CompletedWork::ReceiveWriteImmediate);
    assert_eq!(completion.immediate, Some(*b"imm!"));
    assert_eq!(completion.length, 4);
    assert_eq!(memory.first(4), b"data");
}

// C9-168
#[test]
fn write_that_is_not_allowed_is_dropped_silently() {
    let (_, memory) = connected();
    let good = Reth::new(memory.address(0), memory.key(), 4);
    let bad_key = Reth::new(memory.address(0), Key::new(0), 4);
    let outside = Reth::new(memory.address(8190), memory.key(), 4);
    for (reth, access) in [
        (bad_key, all_access()),
        (outside, all_access()),
        (good, Access::empty()),
    ] {
        let mut peer = Conversation::with(Setup {
            kind: QueuePairType::Uc,
            access,
            ..Setup::default()
        });
        let memory = peer.registers(0x1000, &[0; 8192]);
        assert_eq!(memory.key(), good.remote_key());
        peer.sends(at(1), write(Opcode::UcWriteOnly, PSN, reth, b"data"));
        peer.receives_nothing(at(1));
        assert_eq!(memory.bytes(), [0; 8192]);
        assert_eq!(peer.counters().dropped_messages, 1);
        assert_eq!(peer.state(), State::ReadyToSend);
    }
}

#[test]
fn gap_inside_a_write_ends_it() {
    let (mut peer, memory) = connected();
    let reth = Reth::new(memory.address(0), memory.key(), 3072);
    peer.sends(at(1), write(Opcode::UcWriteFirst, PSN, reth, &[1; 1024]));
    peer.sends(
        at(1),
        PeerPacket::new(Opcode::UcWriteLast, PSN + 2, &[3; 1024]),
    );
    assert_eq!(memory.bytes()[1024..], [0; 7168]);
}

#[test]
fn messages_are_sent_without_ackreq_and_complete_when_sent() {
    let (mut peer, memory) = connected();
    let send = SendRequest::new(1, Work::Send).with([memory.segment(0, 2500)]);
    peer.posts(send.flags(SendFlags::SIGNALED | SendFlags::SOLICITED));
    let work = Work::WriteImmediate(remote(0x9000), *b"imm!");
    peer.posts(SendRequest::new(2, work).with([memory.segment(0, 5)]));
    peer.receives(
        at(0),
        [
            "send First +0 1024B",
            "send Middle +1 1024B",
            "send Last +2 452B solicited",
            "write Only +3 5B va=0x9000 imm=imm!",
        ],
    );
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    peer.receives_nothing(at(100_000));
}

// IBA 10.3.1
#[test]
fn failed_send_moves_the_send_queue_to_error_and_receiving_continues() {
    let (mut peer, memory) = with_receives(2);
    let hello = |id| SendRequest::new(id, Work::Send).inline(b"hello");
    peer.posts(SendRequest::new(3, Work::Send).with([memory.segment(8190, 4)]));
    peer.posts(hello(4));
    peer.receives_nothing(at(0));
    peer.completes([(3, Status::LocalProtection), (4, Status::Flushed)]);
    assert_eq!(peer.state(), State::SendQueueError);
    peer.sends(at(1), only(PSN, b"still here"));
    peer.completes([(1, Status::Success)]);
    peer.posts(hello(5));
    peer.completes([(5, Status::Flushed)]);
    peer.goes_to(State::ReadyToSend);
    peer.posts(hello(6));
    peer.receives(at(2), ["send Only +0 5B"]);
    peer.completes([(6, Status::Success)]);
}

#[test]
fn message_after_a_partially_sent_failed_one_is_sent() {
    let (mut peer, memory) = connected();
    let segments = [memory.segment(0, 1024), memory.segment(8190, 1024)];
    peer.posts(SendRequest::new(1, Work::Send).with(segments));
    peer.receives(at(0), ["send First +0 1024B"]);
    peer.completes([(1, Status::LocalProtection)]);
    peer.goes_to(State::ReadyToSend);
    peer.posts(SendRequest::new(2, Work::Send).inline(b"next"));
    peer.receives(at(1), ["send Only +1 4B"]);
}

#[test]
fn draining_queue_finishes_the_begun_message_and_raises_an_event() {
    let (mut peer, _) = connected();
    let outbox = peer.registers(0x8000, &pattern(100 << 10));
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    peer.posts(SendRequest::new(2, Work::Send).inline(b"next"));
    let begun = peer.received_batch(at(0)).expect("the first packets");
    peer.modifies(Attributes {
        state: Some(State::SendQueueDrain),
        drain_event: Some(true),
        ..Attributes::default()
    });
    peer.raises([]);
    assert_eq!(begun.len() + peer.received(at(0)).len(), 100);
    peer.completes([(1, Status::Success)]);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.goes_to(State::ReadyToSend);
    peer.receives(at(1), ["send Only +100 4B"]);
}

/// A sender that may send a burst of 10,000 bytes, and the outgoing memory.
fn paced() -> (Conversation, Region) {
    let setup = Setup::default();
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Uc,
        config: Config {
            unreliable_burst: Some(10_000),
            ..setup.config.clone()
        },
        ..setup
    });
    let outbox = peer.registers(0x8000, &pattern(100 << 10));
    (peer, outbox)
}

#[test]
fn after_a_burst_messages_wait_for_the_link() {
    let (mut peer, outbox) = paced();
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.all()]));
    let mut sent = peer.received(at(0)).len();
    assert!((1..100).contains(&sent), "one batch fills the link: {sent}");
    peer.completes([]);
    let mut now = at(0);
    while let Some(next) = peer.device.poll_timeout() {
        assert!(next > now, "it waits");
        now = next;
        sent += peer.received(now).len();
    }
    assert_eq!(sent, 200);
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    // 200 KiB at 10 Gbit/s, without the burst and the last batch.
    let took = now - at(0);
    assert!((Duration::from_micros(90)..Duration::from_micros(180)).contains(&took));
}

/// Otherwise a caller that can't send at that time wakes up again and again.
#[test]
fn end_of_the_wait_for_the_link_is_told_once() {
    let (mut peer, outbox) = paced();
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    peer.received(at(0));
    let end = peer.device.poll_timeout().expect("it waits");
    peer.device.handle_timeout(end);
    assert_eq!(peer.device.poll_timeout(), None);
    assert!(!peer.received(end).is_empty());
}

#[test]
fn queue_pair_that_waits_for_the_link_can_be_destroyed() {
    let (mut peer, outbox) = paced();
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    peer.received(at(0));
    assert!(peer.device.poll_timeout().is_some(), "it waits");
    peer.device.destroy_queue_pair(peer.number).expect("exists");
    peer.receives_nothing(at(1));
    assert_eq!(peer.device.poll_timeout(), None);
}

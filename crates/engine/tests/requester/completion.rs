//! Which requests complete, when, and in which order.

use engine::{Access, Notify, SendFlags, SendRequest, State, Status, Work};
use wire::{Key, NakCode};

use crate::conversation::*;

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

fn unsignaled(id: u64) -> SendRequest {
    hello(id).flags(SendFlags::empty())
}

#[test]
fn unsignaled_success_reports_no_completion() {
    let mut peer = Conversation::new();
    peer.posts(unsignaled(1));
    peer.posts(hello(2));
    peer.received(at(0));
    peer.sends(at(1), ack(PSN + 1));
    peer.completes([(2, Status::Success)]);
    let queue_pair = peer
        .device
        .queue_pair(peer.number)
        .expect("the queue pair exists");
    assert_eq!(queue_pair.outstanding_sends(), 0);
}

#[test]
fn unsignaled_error_reports_a_completion() {
    let mut peer = Conversation::new();
    peer.posts(unsignaled(1));
    peer.received(at(0));
    peer.sends(at(1), nak(PSN, NakCode::RemoteAccess));
    peer.completes([(1, Status::RemoteAccess)]);
}

#[test]
fn queue_pair_may_signal_all_requests() {
    let mut peer = Conversation::with(Setup {
        queue_pair: |init| init.signal_all = true,
        ..Setup::default()
    });
    peer.posts(unsignaled(1));
    peer.received(at(0));
    peer.sends(at(1), ack(PSN));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn completed_send_notifies_a_queue_armed_for_any_but_not_for_solicited() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.posts(hello(2));
    peer.received(at(0));
    peer.arms(Notify::Solicited);
    peer.sends(at(1), ack(PSN));
    assert!(!peer.is_notified());
    peer.completion();
    peer.arms(Notify::Any);
    peer.sends(at(2), ack(PSN + 1));
    assert!(peer.is_notified());
}

#[test]
fn local_protection_error_completes_only_after_earlier_requests() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64));
    peer.posts(hello(1));
    let mut segment = outbox.all();
    segment.key = Key::new(0);
    peer.posts(SendRequest::new(2, Work::Send).with([segment]));
    peer.posts(hello(3));
    // Neither the failed request nor any later one is sent.
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.completes([]);
    assert_eq!(peer.state(), State::ReadyToSend);
    peer.sends(at(1), ack(PSN));
    peer.completes([
        (1, Status::Success),
        (2, Status::LocalProtection),
        (3, Status::Flushed),
    ]);
    assert_eq!(peer.state(), State::Error);
    peer.receives_nothing(at(1000));
}

#[test]
fn local_protection_error_of_the_only_request_completes_at_once() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64));
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(60, 5)]));
    peer.receives_nothing(at(0));
    peer.completes([(1, Status::LocalProtection)]);
    assert_eq!(peer.state(), State::Error);
}

#[test]
fn earlier_requests_are_retransmitted_while_a_failed_one_waits() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64));
    peer.posts(hello(1));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.segment(60, 5)]));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.receives(at(70), ["send Only +0 5B ackreq"]);
    peer.sends(at(71), ack(PSN));
    peer.completes([(1, Status::Success), (2, Status::LocalProtection)]);
}

#[test]
fn memory_to_send_from_needs_no_access_right() {
    let mut peer = Conversation::new();
    let outbox = peer.registers_for(0x1000, &pattern(64), Access::empty());
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    peer.receives(at(0), ["send Only +0 64B ackreq"]);
}

#[test]
fn deregistering_before_a_retransmission_is_a_local_protection_error() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64));
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    peer.receives(at(0), ["send Only +0 64B ackreq"]);
    peer.deregisters(&outbox);
    peer.receives_nothing(at(70));
    peer.completes([(1, Status::LocalProtection)]);
}

#[test]
fn local_work_completes_in_order() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    // The key names no window: local work that fails.
    peer.posts(SendRequest::new(2, Work::LocalInvalidate(Key::new(5))));
    peer.posts(hello(3));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.completes([]);
    peer.sends(at(1), ack(PSN));
    peer.completes([
        (1, Status::Success),
        (2, Status::WindowBind),
        (3, Status::Flushed),
    ]);
}

// IBA 10.3.1
#[test]
fn going_to_error_flushes_sends_in_order_even_unsignaled() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.posts(unsignaled(2));
    peer.received(at(0));
    peer.posts(unsignaled(3));
    peer.goes_to(State::Error);
    peer.completes([
        (1, Status::Flushed),
        (2, Status::Flushed),
        (3, Status::Flushed),
    ]);
    peer.receives_nothing(at(1000));
    peer.sends(at(1000), ack(PSN));
    peer.completes([]);
}

// IBA 10.3.1
#[test]
fn going_to_reset_discards_everything_silently() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.received(at(0));
    peer.goes_to(State::Reset);
    peer.completes([]);
    peer.receives_nothing(at(1000));
    let number = peer.number;
    peer.connects(number);
    peer.posts(hello(2));
    peer.receives(at(1000), ["send Only +0 5B ackreq"]);
    peer.sends(at(1001), ack(PSN));
    peer.completes([(2, Status::Success)]);
}

//! Draining a send queue: what was begun is finished, and nothing new is begun.

use engine::{AsyncEvent, Attributes, SendRequest, State, Status, Work};

use crate::conversation::*;

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

fn drains(peer: &mut Conversation) {
    peer.modifies(Attributes {
        state: Some(State::SendQueueDrain),
        drain_event: Some(true),
        ..Attributes::default()
    });
}

#[test]
fn a_draining_queue_finishes_what_was_begun_tells_it_and_resumes() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.hears(at(0), ["send Only +0 5B ask"]);
    drains(&mut peer);
    peer.posts(hello(2));
    peer.hears_nothing(at(1));
    peer.raises([]);
    peer.says(at(2), ack(PSN));
    peer.completes([(1, Status::Success)]);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.hears_nothing(at(3));
    peer.goes_to(State::ReadyToSend);
    peer.hears(at(3), ["send Only +1 5B ask"]);
    peer.raises([]);
}

#[test]
fn an_empty_queue_is_drained_at_once() {
    let mut peer = Conversation::new();
    drains(&mut peer);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
}

#[test]
fn who_does_not_ask_is_not_told() {
    let mut peer = Conversation::new();
    peer.goes_to(State::SendQueueDrain);
    peer.raises([]);
}

#[test]
fn a_message_that_was_begun_is_sent_to_its_end_and_repeated_if_need_be() {
    let setup = Setup::default();
    let window = engine::WindowLimits {
        min: 4096,
        initial: 4096,
        max: 4096,
    };
    let mut peer = Conversation::with(Setup {
        config: engine::Config {
            window,
            ..setup.config.clone()
        },
        ..setup
    });
    let outbox = peer.registers(0x1000, &pattern(8192));
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 5000)]));
    peer.posts(hello(2));
    assert_eq!(peer.listens(at(0)).len(), 4);
    drains(&mut peer);
    peer.says(at(1), ack(PSN + 3));
    peer.hears(at(1), ["send Last +4 904B ask"]);
    peer.hears(at(100), ["send Last +4 904B ask"]);
    peer.says(at(100), ack(PSN + 4));
    peer.completes([(1, Status::Success)]);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.hears_nothing(at(101));
}

#[test]
fn posted_work_that_was_not_begun_waits_and_the_queue_counts_as_drained() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    drains(&mut peer);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.hears_nothing(at(1));
    peer.goes_to(State::ReadyToSend);
    peer.hears(at(1), ["send Only +0 5B ask"]);
}

#[test]
fn an_error_while_draining_flushes_what_waits() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.listens(at(0));
    drains(&mut peer);
    peer.posts(hello(2));
    peer.says(at(1), nak(PSN, wire::NakCode::RemoteAccess));
    peer.completes([(1, Status::RemoteAccess), (2, Status::Flushed)]);
    assert_eq!(peer.state(), State::Error);
}

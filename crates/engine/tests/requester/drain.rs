//! Draining a send queue: outstanding requests are finished, and no others begin.

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

// IBA 10.3.1
#[test]
fn draining_queue_finishes_begun_requests_raises_an_event_and_resumes() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    drains(&mut peer);
    peer.posts(hello(2));
    peer.receives_nothing(at(1));
    peer.raises([]);
    peer.sends(at(2), ack(PSN));
    peer.completes([(1, Status::Success)]);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.receives_nothing(at(3));
    peer.goes_to(State::ReadyToSend);
    peer.receives(at(3), ["send Only +1 5B ackreq"]);
    peer.raises([]);
}

#[test]
fn empty_queue_is_drained_at_once() {
    let mut peer = Conversation::new();
    drains(&mut peer);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
}

#[test]
fn no_event_without_a_request_for_it() {
    let mut peer = Conversation::new();
    peer.goes_to(State::SendQueueDrain);
    peer.raises([]);
}

#[test]
fn begun_message_is_sent_completely_and_retransmitted_while_draining() {
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
    assert_eq!(peer.received(at(0)).len(), 4);
    drains(&mut peer);
    peer.sends(at(1), ack(PSN + 3));
    peer.receives(at(1), ["send Last +4 904B ackreq"]);
    peer.receives(at(10), ["send Last +4 904B ackreq"]);
    peer.sends(at(11), ack(PSN + 4));
    peer.completes([(1, Status::Success)]);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.receives_nothing(at(101));
}

// IBA 10.3.1
#[test]
fn requests_that_have_not_begun_wait_and_the_queue_is_drained() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    drains(&mut peer);
    let number = peer.number;
    peer.raises([AsyncEvent::SendQueueDrained(number)]);
    peer.receives_nothing(at(1));
    peer.goes_to(State::ReadyToSend);
    peer.receives(at(1), ["send Only +0 5B ackreq"]);
}

#[test]
fn error_while_draining_flushes_waiting_requests() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.received(at(0));
    drains(&mut peer);
    peer.posts(hello(2));
    peer.sends(at(1), nak(PSN, wire::NakCode::RemoteAccess));
    peer.completes([(1, Status::RemoteAccess), (2, Status::Flushed)]);
    assert_eq!(peer.state(), State::Error);
}

//! Which requests the send queue accepts and which it rejects.

use engine::{PostError, QueuePairType, Segment, SendRequest, State, Status, Work};
use wire::{Key, NakCode};

use crate::conversation::*;

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

fn post(peer: &mut Conversation, request: SendRequest) -> Result<(), PostError> {
    peer.device.post_send(peer.number, request)
}

fn bytes(length: u32) -> Segment {
    Segment {
        address: 0,
        length,
        key: Key::new(0),
    }
}

// IBA 10.3.1
#[test]
fn sends_are_accepted_only_in_ready_to_send() {
    for state in [State::Reset, State::Initialized, State::ReadyToReceive] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        let rejected = post(&mut peer, hello(1));
        assert_eq!(rejected, Err(PostError::WrongState(state)));
    }
}

// IBA 10.3.1
#[test]
fn receives_are_accepted_from_init_on() {
    for state in [State::Initialized, State::ReadyToReceive] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        peer.posts_receive_request(engine::ReceiveRequest::new(1, []));
    }
    let mut peer = Conversation::with(Setup {
        state: State::Reset,
        ..Setup::default()
    });
    let request = engine::ReceiveRequest::new(1, []);
    let rejected = peer.device.post_receive(peer.number, request);
    assert_eq!(rejected, Err(PostError::WrongState(State::Reset)));
}

// IBA 10.3.1
#[test]
fn sends_in_the_error_state_are_flushed() {
    let mut peer = Conversation::new();
    peer.goes_to(State::Error);
    peer.posts(hello(1));
    peer.completes([(1, Status::Flushed)]);
}

#[test]
fn full_send_queue_rejects_requests_until_one_completes() {
    let mut peer = Conversation::with(Setup {
        queue_pair: |init| init.max_sends = 2,
        ..Setup::default()
    });
    peer.posts(hello(1));
    peer.posts(hello(2));
    assert_eq!(post(&mut peer, hello(3)), Err(PostError::QueueFull));
    peer.received(at(0));
    peer.sends(at(1), ack(PSN));
    peer.posts(hello(3));
    assert_eq!(post(&mut peer, hello(4)), Err(PostError::QueueFull));
}

#[test]
fn full_receive_queue_rejects_requests() {
    let mut peer = Conversation::with(Setup {
        queue_pair: |init| init.max_receives = 1,
        ..Setup::default()
    });
    peer.posts_receive_request(engine::ReceiveRequest::new(1, []));
    let request = engine::ReceiveRequest::new(2, []);
    let rejected = peer.device.post_receive(peer.number, request);
    assert_eq!(rejected, Err(PostError::QueueFull));
}

#[test]
fn segments_are_limited_by_the_queue() {
    let mut peer = Conversation::new();
    peer.posts(SendRequest::new(1, Work::Send).with([bytes(1); 4]));
    let rejected = post(
        &mut peer,
        SendRequest::new(2, Work::Send).with([bytes(1); 5]),
    );
    assert_eq!(rejected, Err(PostError::TooManySegments { max: 4 }));
    let request = engine::ReceiveRequest::new(3, [bytes(1); 5]);
    let rejected = peer.device.post_receive(peer.number, request);
    assert_eq!(rejected, Err(PostError::TooManySegments { max: 4 }));
}

#[test]
fn inline_data_is_limited_by_the_queue() {
    let mut peer = Conversation::new();
    peer.posts(SendRequest::new(1, Work::Send).inline(&[0; 256]));
    let rejected = post(&mut peer, SendRequest::new(2, Work::Send).inline(&[0; 257]));
    assert_eq!(rejected, Err(PostError::InlineTooLong { max: 256 }));
}

#[test]
fn message_of_two_to_the_31_bytes_is_accepted_and_a_longer_one_rejected() {
    let mut peer = Conversation::new();
    let half = 1 << 30;
    let place = Work::Write(remote(0));
    for work in [Work::Send, place, Work::Read(remote(0))] {
        peer.posts(SendRequest::new(1, work).with([bytes(1 << 31)]));
        peer.posts(SendRequest::new(2, work).with([bytes(half), bytes(half)]));
        for segments in [
            vec![bytes((1 << 31) + 1)],
            vec![bytes(half), bytes(half + 1)],
        ] {
            let rejected = post(&mut peer, SendRequest::new(3, work).with(segments));
            assert_eq!(rejected, Err(PostError::MessageTooLong));
        }
    }
    let request = engine::ReceiveRequest::new(3, [bytes(1 << 31), bytes(1)]);
    let rejected = peer.device.post_receive(peer.number, request);
    assert_eq!(rejected, Err(PostError::MessageTooLong));
}

#[test]
fn read_of_two_to_the_31_bytes_is_sent() {
    let mut peer = Conversation::new();
    peer.posts(SendRequest::new(1, Work::Read(remote(0x9000))).with([bytes(1 << 31)]));
    // Each request packet asks for half of a window of 256 KiB.
    peer.receives(
        at(0),
        [
            "read-request +0 va=0x9000 len=131072",
            "read-request +128 va=0x29000 len=131072",
        ],
    );
}

#[test]
fn atomic_needs_eight_bytes_of_local_memory() {
    let mut peer = Conversation::new();
    let fetch_add = |length| {
        let work = Work::FetchAdd {
            remote: remote(0x1000),
            add: 1,
        };
        SendRequest::new(1, work).with([bytes(length)])
    };
    assert_eq!(post(&mut peer, fetch_add(4)), Err(PostError::AtomicShape));
    assert_eq!(post(&mut peer, fetch_add(8)), Ok(()));
    assert_eq!(post(&mut peer, fetch_add(16)), Ok(()));
}

/// Only the responder checks the alignment, as with NICs.
#[test]
fn atomic_at_an_unaligned_address_is_sent() {
    let remote = remote(0x1004);
    let swap = Work::CompareSwap {
        remote,
        compare: 1,
        swap: 2,
    };
    let add = Work::FetchAdd { remote, add: 1 };
    for work in [add, swap, Work::AtomicWrite(remote)] {
        let mut peer = Conversation::new();
        let memory = peer.registers(0x2000, &[0; 8]);
        peer.posts(SendRequest::new(1, work).with([memory.all()]));
        assert_eq!(peer.received(at(0)).len(), 1);
        peer.sends(at(1), nak(PSN, NakCode::InvalidRequest));
        peer.completes([(1, Status::RemoteInvalidRequest)]);
    }
}

#[test]
fn read_or_atomic_with_inline_data_is_rejected_with_the_reason() {
    let mut peer = Conversation::new();
    let remote = remote(0x9000);
    for work in [Work::Read(remote), Work::FetchAdd { remote, add: 1 }] {
        let request = SendRequest::new(1, work).inline(b"no room!");
        assert_eq!(post(&mut peer, request), Err(PostError::InlineResult));
    }
}

#[test]
fn only_datagrams_have_a_destination() {
    let mut peer = Conversation::new();
    let destination = engine::Destination {
        address: engine::Address::new(gid(PEER_ADDRESS), 0),
        queue_pair: PEER,
        queue_key: wire::QueueKey::new(1),
    };
    let rejected = post(&mut peer, hello(1).to(destination));
    assert_eq!(rejected, Err(PostError::Destination));
}

#[test]
fn unreliable_connection_rejects_reads_and_invalidates() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Uc,
        ..Setup::default()
    });
    let add = Work::FetchAdd {
        remote: remote(0x9000),
        add: 1,
    };
    for work in [
        Work::Read(remote(0x9000)),
        add,
        Work::AtomicWrite(remote(0x9000)),
        Work::SendInvalidate(Key::new(1)),
    ] {
        let request = SendRequest::new(1, work).with([bytes(8)]);
        assert_eq!(post(&mut peer, request), Err(PostError::Unsupported));
    }
}

#[test]
fn post_to_an_unknown_queue_pair_is_rejected() {
    let mut peer = Conversation::new();
    let missing = wire::Qpn::new(peer.number.value() + 1);
    let rejected = peer.device.post_send(missing, hello(1));
    assert_eq!(rejected, Err(PostError::Unknown));
}

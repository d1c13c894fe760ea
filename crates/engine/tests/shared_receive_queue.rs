//! Shared receive queues, and extended reliable connections (XRC), which use them.

mod conversation;

use conversation::*;
use engine::{
    AsyncEvent, CompletionQueue, Event, Id, ObjectError, PostError, QueuePairType, ReceiveRequest,
    SendRequest, SharedReceiveInit, SharedReceiveQueue, State, Status, Work, XrcDomain,
};
use wire::{AtomicEth, Immediate, Opcode, Qpn, Reth, Srqn, Xrceth};

/// Two queue pairs on one shared receive queue.
struct Sharing {
    peer: Conversation,
    inbox: Region,
    queue: Id<SharedReceiveQueue>,
    first: Qpn,
    second: Qpn,
}

fn sharing() -> Sharing {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 4096]);
    let queue = create(&mut peer, None);
    let mut init = peer.init();
    init.shared_receive = Some(queue);
    let first = peer.adds(init);
    let second = peer.adds(init);
    Sharing {
        peer,
        inbox,
        queue,
        first,
        second,
    }
}

fn create(
    peer: &mut Conversation,
    xrc: Option<(Id<XrcDomain>, Id<CompletionQueue>)>,
) -> Id<SharedReceiveQueue> {
    let init = SharedReceiveInit {
        domain: peer.domain,
        capacity: 16,
        max_segments: 2,
        xrc,
    };
    peer.device
        .create_shared_receive_queue(init)
        .expect("a shared receive queue")
}

impl Sharing {
    #[track_caller]
    fn receives(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            let request = ReceiveRequest::new(id, [self.inbox.all()]);
            self.peer
                .device
                .post_shared_receive(self.queue, request)
                .expect("the queue has room");
        }
    }

    #[track_caller]
    fn completes<const N: usize>(&mut self, expected: [(u64, Status, Qpn); N]) {
        let completed: Vec<(u64, Status, Qpn)> = self
            .peer
            .completions()
            .iter()
            .map(|one| (one.id, one.status, one.queue_pair))
            .collect();
        assert_eq!(completed, expected);
    }

    fn limits(&mut self, limit: u32) {
        self.peer
            .device
            .set_shared_receive_limit(self.queue, limit)
            .expect("the limit is set");
    }
}

#[test]
fn queue_pairs_take_shared_receives_in_the_order_of_their_first_packets() {
    let mut all = sharing();
    let (first, second) = (all.first, all.second);
    all.receives(1..=3);
    let data = pattern(1024);
    all.peer.sends_to(first, at(1), send_first(PSN, &data));
    all.peer.sends_to(second, at(1), send_only(PSN, b"two"));
    all.peer.sends_to(first, at(1), send_last(PSN + 1, b"one"));
    all.peer
        .sends_to(second, at(1), send_only(PSN + 1, b"three"));
    all.completes([
        (2, Status::Success, second),
        (1, Status::Success, first),
        (3, Status::Success, second),
    ]);
}

#[test]
fn missing_shared_receive_causes_an_rnr_nak() {
    let mut all = sharing();
    let first = all.first;
    all.peer.sends_to(first, at(1), send_only(PSN, b"early"));
    all.peer.receives(at(1), ["rnr-nak +0 0.64ms"]);
    all.receives([1]);
    all.peer
        .sends_to(first, at(2), send_only(PSN, b"early").ackreq());
    all.peer.receives(at(2), ["ack +0"]);
}

#[test]
fn queue_pair_with_a_shared_receive_queue_rejects_receives() {
    let mut all = sharing();
    let request = ReceiveRequest::new(1, [all.inbox.all()]);
    let rejected = all.peer.device.post_receive(all.first, request);
    assert_eq!(rejected, Err(PostError::SharedReceive));
}

#[test]
fn limit_event_is_raised_once_below_the_limit() {
    let mut all = sharing();
    let (first, queue) = (all.first, all.queue);
    all.receives(1..=5);
    all.limits(3);
    let send = |all: &mut Sharing, index| {
        all.peer
            .sends_to(first, at(1), send_only(PSN + index, b"message"));
    };
    // Five, four, three are left: not fewer than three.
    send(&mut all, 0);
    send(&mut all, 1);
    all.peer.raises([]);
    send(&mut all, 2);
    all.peer.raises([AsyncEvent::SharedReceiveLimit(queue)]);
    // One-shot: it must be armed again.
    send(&mut all, 3);
    all.peer.raises([]);
    all.limits(3);
    send(&mut all, 4);
    all.peer.raises([AsyncEvent::SharedReceiveLimit(queue)]);
    let queue = all
        .peer
        .device
        .shared_receive_queue(queue)
        .expect("the completion or queue exists");
    assert_eq!((queue.limit(), queue.len()), (0, 0));
}

#[test]
fn limit_of_0_disarms_and_one_beyond_the_capacity_is_rejected() {
    let mut all = sharing();
    let first = all.first;
    all.receives(1..=2);
    all.limits(2);
    all.limits(0);
    all.peer.sends_to(first, at(1), send_only(PSN, b"message"));
    all.peer.raises([]);
    let rejected = all.peer.device.set_shared_receive_limit(all.queue, 17);
    assert!(matches!(rejected, Err(ObjectError::OutOfRange { .. })));
}

#[test]
fn rejected_limit_or_capacity_changes_neither() {
    let mut all = sharing();
    all.limits(3);
    let queue = all.queue;
    for (capacity, limit) in [(32, Some(33)), (8, Some(9)), (0, Some(1)), (2, None)] {
        let modified = (all.peer.device).modify_shared_receive_queue(queue, Some(capacity), limit);
        assert!(modified.is_err(), "{capacity} {limit:?}");
        let found = all.peer.device.shared_receive_queue(queue);
        let found = found.expect("the queue exists");
        assert_eq!((found.capacity(), found.limit()), (16, 3));
    }
    let modified = (all.peer.device).modify_shared_receive_queue(queue, Some(2), Some(2));
    assert_eq!(modified, Ok(()));
}

#[test]
fn queue_pair_in_error_raises_an_event_and_leaves_shared_receives_to_others() {
    let mut all = sharing();
    let (first, second) = (all.first, all.second);
    all.receives(1..=2);
    all.peer
        .sends_to(first, at(1), send_first(PSN, &pattern(1024)));
    all.peer
        .sends_to(first, at(1), send_first(PSN + 1, &pattern(1024)));
    // Its message cannot be completed, so its receive completes in error.
    all.completes([(1, Status::Flushed, first)]);
    all.peer.raises([
        AsyncEvent::RequestError(first),
        AsyncEvent::LastReceiveReached(first),
    ]);
    all.peer.receives(at(1), ["nak invalid +1"]);
    all.peer.sends_to(second, at(2), send_only(PSN, b"mine"));
    all.completes([(2, Status::Success, second)]);
}

#[test]
fn modify_to_error_raises_the_last_receive_event() {
    let mut all = sharing();
    let attributes = engine::Attributes {
        state: Some(State::Error),
        ..engine::Attributes::default()
    };
    all.peer
        .device
        .modify(all.first, &attributes)
        .expect("the transition is legal");
    let first = all.first;
    all.peer.raises([AsyncEvent::LastReceiveReached(first)]);
}

#[test]
fn shared_receive_queue_accepts_requests_up_to_its_capacity() {
    let mut all = sharing();
    all.receives(1..=16);
    let request = || ReceiveRequest::new(17, []);
    let device = &mut all.peer.device;
    let rejected = device.post_shared_receive(all.queue, request());
    assert_eq!(rejected, Err(PostError::QueueFull));
    device
        .resize_shared_receive_queue(all.queue, 17)
        .expect("17 entries are possible");
    device
        .post_shared_receive(all.queue, request())
        .expect("the queue has room");
    let rejected = device.resize_shared_receive_queue(all.queue, 16);
    assert!(matches!(rejected, Err(ObjectError::Mismatch(_))));
    let segments = [all.inbox.segment(0, 1); 3];
    let three = ReceiveRequest::new(18, segments);
    device
        .resize_shared_receive_queue(all.queue, 32)
        .expect("32 entries are possible");
    let rejected = device.post_shared_receive(all.queue, three);
    assert_eq!(rejected, Err(PostError::TooManySegments { max: 2 }));
}

#[test]
fn shared_receive_queue_in_use_is_not_destroyed() {
    let mut all = sharing();
    let device = &mut all.peer.device;
    let rejected = device.destroy_shared_receive_queue(all.queue);
    assert_eq!(rejected, Err(ObjectError::InUse(2)));
    device
        .destroy_queue_pair(all.first)
        .expect("nothing uses the object");
    device
        .destroy_queue_pair(all.second)
        .expect("nothing uses the object");
    device
        .destroy_shared_receive_queue(all.queue)
        .expect("nothing uses the object");
    let request = ReceiveRequest::new(1, []);
    let rejected = device.post_shared_receive(all.queue, request);
    assert_eq!(rejected, Err(PostError::Unknown));
}

#[test]
fn dropped_unreliable_message_returns_its_shared_receive() {
    let mut all = sharing();
    let mut init = all.peer.init();
    init.kind = QueuePairType::Uc;
    init.shared_receive = Some(all.queue);
    let unreliable = all.peer.adds(init);
    all.receives(1..=2);
    let first = PeerPacket::new(Opcode::UcSendFirst, PSN, &pattern(1024));
    let behind_a_gap = PeerPacket::new(Opcode::UcSendOnly, PSN + 2, b"next");
    all.peer.sends_to(unreliable, at(1), first);
    all.peer.sends_to(unreliable, at(1), behind_a_gap);
    all.completes([(1, Status::Success, unreliable)]);
}

#[test]
fn datagram_fills_a_shared_receive() {
    let mut all = sharing();
    let mut init = all.peer.init();
    init.kind = QueuePairType::Ud;
    init.shared_receive = Some(all.queue);
    let number = all.peer.adds(init);
    all.receives([1]);
    let sent = datagram(PSN, 0x1111_1111, PEER, b"hello");
    all.peer.sends_to(number, at(1), sent);
    all.completes([(1, Status::Success, number)]);
    assert_eq!(all.inbox.bytes()[40..45], *b"hello");
}

#[test]
fn datagram_longer_than_a_shared_receive_fails_only_that_receive() {
    let mut all = sharing();
    let mut init = all.peer.init();
    init.kind = QueuePairType::Ud;
    init.shared_receive = Some(all.queue);
    let datagrams = all.peer.adds(init);
    let inbox = all.peer.registers(0x9000, &[0; 256]);
    for (id, room) in [(1, 44), (2, 45)] {
        let request = ReceiveRequest::new(id, [inbox.segment(0, room)]);
        let device = &mut all.peer.device;
        device
            .post_shared_receive(all.queue, request)
            .expect("the queue has room");
    }
    let sent = || datagram(PSN, 0x1111_1111, PEER, b"five!");
    all.peer.sends_to(datagrams, at(1), sent());
    all.peer.completes([(1, Status::LocalLength)]);
    assert_eq!(inbox.bytes(), [0; 256]);
    assert_eq!(all.peer.counters().dropped_messages, 1);
    all.peer.raises([]);
    all.peer.sends_to(datagrams, at(2), sent());
    all.peer.completes([(2, Status::Success)]);
    assert_eq!(inbox.bytes()[40..45], *b"five!");
}

/// An XRC target, and a shared receive queue with another completion queue.
struct XrcPair {
    peer: Conversation,
    inbox: Region,
    queue: Id<SharedReceiveQueue>,
    completions: Id<CompletionQueue>,
    target: Qpn,
    number: Srqn,
}

fn number_of(peer: &Conversation, queue: Id<SharedReceiveQueue>) -> Srqn {
    let queue = peer
        .device
        .shared_receive_queue(queue)
        .expect("the queue exists");
    queue.number().expect("an XRC queue has a number")
}

fn xrc_pair() -> XrcPair {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 4096]);
    let domain = peer.device.open_xrc_domain().expect("an XRC domain");
    let completions = peer.device.create_completion_queue(64).expect("a queue");
    // Not the first of its kind, so that its index differs from its number.
    create(&mut peer, None);
    let queue = create(&mut peer, Some((domain, completions)));
    let request = ReceiveRequest::new(1, [inbox.all()]);
    peer.device
        .post_shared_receive(queue, request)
        .expect("the queue has room");
    let mut init = peer.init();
    init.kind = QueuePairType::XrcTarget;
    init.xrc_domain = Some(domain);
    let target = peer.adds(init);
    let number = number_of(&peer, queue);
    XrcPair {
        peer,
        inbox,
        queue,
        completions,
        target,
        number,
    }
}

// Annex A14
#[test]
fn xrc_target_fills_the_named_queue_and_completes_there() {
    let mut all = xrc_pair();
    let sent = xrc_send_only(PSN, all.number, b"extended").ackreq();
    all.peer.sends_to(all.target, at(1), sent);
    let received = all.peer.received(at(1));
    assert_eq!(received[0].text(), "ack +0");
    assert_eq!(received[0].packet().opcode, Opcode::XrcAcknowledge);
    all.peer.completes([]);
    let completion = all.peer.device.poll_completion(all.completions);
    let completion =
        completion.expect("the receive completes in the queue of the shared receive queue");
    assert_eq!((completion.id, completion.length), (1, 8));
    assert_eq!(all.inbox.first(8), b"extended");
}

// Annex A14
#[test]
fn xrc_request_for_a_queue_of_another_domain_is_rejected() {
    // An unknown number, a queue without XRC, and a queue of another XRC domain.
    for which in 0..3 {
        let mut all = xrc_pair();
        let number = match which {
            0 => Srqn::new(0x1234),
            1 => {
                // The index of the queue is not its number.
                let plain = create(&mut all.peer, None);
                Srqn::new(plain.index() + 1)
            }
            _ => {
                let other = all.peer.device.open_xrc_domain().expect("a domain");
                let queue = create(&mut all.peer, Some((other, all.completions)));
                number_of(&all.peer, queue)
            }
        };
        let sent = xrc_send_only(PSN, number, b"rejected").ackreq();
        all.peer.sends_to(all.target, at(1), sent);
        all.peer.receives(at(1), ["nak invalid +0"]);
        assert_eq!(all.inbox.first(8), [0; 8]);
        let left = all.peer.device.shared_receive_queue(all.queue);
        assert_eq!(left.expect("the completion or queue exists").len(), 1);
    }
}

#[test]
fn xrc_target_without_a_receive_sends_an_rnr_nak() {
    let mut all = xrc_pair();
    let sent = xrc_send_only(PSN, all.number, b"one").ackreq();
    all.peer.sends_to(all.target, at(1), sent);
    let sent = xrc_send_only(PSN + 1, all.number, b"two").ackreq();
    all.peer.sends_to(all.target, at(1), sent);
    all.peer.receives(at(1), ["ack +0", "rnr-nak +1 0.64ms"]);
}

#[test]
fn xrc_target_answers_writes_reads_and_atomics() {
    let mut all = xrc_pair();
    let queue = Xrceth::new(all.number);
    let (address, key) = (all.inbox.address(0), all.inbox.key());
    let reth = Reth::new(address, key, 8);
    let write = PeerPacket::new(Opcode::XrcWriteOnly, PSN, b"8 bytes!");
    let read = PeerPacket::new(Opcode::XrcReadRequest, PSN + 1, b"");
    let add = PeerPacket::new(Opcode::XrcFetchAdd, PSN + 2, b"").push(&queue);
    let atomic = AtomicEth::new(all.inbox.address(8), key, 5, 0);
    for sent in [
        write.push(&queue).push(&reth).ackreq(),
        read.push(&queue).push(&reth),
        add.push(&atomic),
    ] {
        all.peer.sends_to(all.target, at(1), sent);
    }
    all.peer.receives(
        at(1),
        ["ack +0", "read-response Only +1 8B", "atomic-ack +2 was=0"],
    );
}

#[test]
fn xrc_write_with_immediate_consumes_a_receive_of_the_named_queue() {
    let mut all = xrc_pair();
    let reth = Reth::new(all.inbox.address(0), all.inbox.key(), 4);
    let sent = PeerPacket::new(Opcode::XrcWriteOnlyImmediate, PSN, b"data")
        .push(&Xrceth::new(all.number))
        .push(&reth)
        .push(&Immediate::new(*b"imm!"));
    all.peer.sends_to(all.target, at(1), sent);
    let completion = all.peer.device.poll_completion(all.completions);
    assert_eq!(
        completion
            .expect("the completion or queue exists")
            .immediate,
        Some(*b"imm!")
    );
}

#[test]
fn xrc_target_in_error_keeps_the_shared_receives() {
    let mut all = xrc_pair();
    let attributes = engine::Attributes {
        state: Some(State::Error),
        ..engine::Attributes::default()
    };
    all.peer
        .device
        .modify(all.target, &attributes)
        .expect("the transition is legal");
    assert_eq!(
        all.peer.events(),
        [Event::Async(AsyncEvent::LastReceiveReached(all.target))]
    );
    let left = all.peer.device.shared_receive_queue(all.queue);
    assert_eq!(left.expect("the completion or queue exists").len(), 1);
}

// Annex A14
#[test]
fn xrc_target_rejects_sends_and_receives() {
    let mut all = xrc_pair();
    let send = SendRequest::new(1, Work::Send).inline(b"hello");
    let rejected = all.peer.device.post_send(all.target, send);
    assert_eq!(rejected, Err(PostError::Unsupported));
    let request = ReceiveRequest::new(1, []);
    let rejected = all.peer.device.post_receive(all.target, request);
    assert_eq!(rejected, Err(PostError::Unsupported));
}

// Annex A14
#[test]
fn every_packet_of_an_xrc_initiator_names_the_shared_receive_queue() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::XrcInitiator,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &pattern(4096));
    let to_queue = |work, length| {
        let mut request = SendRequest::new(1, work).with([memory.segment(0, length)]);
        request.remote_srqn = Some(Srqn::new(5));
        request
    };
    peer.posts(to_queue(Work::Send, 1500));
    peer.posts(to_queue(Work::Write(remote(0x9000)), 4));
    peer.posts(to_queue(Work::Read(remote(0x9000)), 4));
    peer.receives(
        at(0),
        [
            "send First +0 1024B srq=5",
            "send Last +1 476B srq=5 ackreq",
            "write Only +2 4B srq=5 va=0x9000 ackreq",
            "read-request +3 srq=5 va=0x9000 len=4",
        ],
    );
    let ack = PeerPacket::new(Opcode::XrcAcknowledge, PSN + 2, b"")
        .push(&wire::Aeth::new(wire::Syndrome::UNLIMITED, 0));
    peer.sends(at(1), ack);
    peer.completes([(1, Status::Success), (1, Status::Success)]);
    let response = PeerPacket::new(Opcode::XrcReadResponseOnly, PSN + 3, b"data")
        .push(&wire::Aeth::new(wire::Syndrome::UNLIMITED, 0));
    peer.sends(at(2), response);
    peer.completes([(1, Status::Success)]);
    assert_eq!(memory.first(4), b"data");
}

#[test]
fn only_an_xrc_initiator_names_a_shared_receive_queue() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::XrcInitiator,
        ..Setup::default()
    });
    let hello = || SendRequest::new(1, Work::Send).inline(b"hello");
    let rejected = peer.device.post_send(peer.number, hello());
    assert_eq!(rejected, Err(PostError::Destination));
    let mut peer = Conversation::new();
    let mut request = hello();
    request.remote_srqn = Some(Srqn::new(5));
    let rejected = peer.device.post_send(peer.number, request);
    assert_eq!(rejected, Err(PostError::Destination));
}

//! Packets of a device to its own queue pairs, which it delivers without sending them.

mod conversation;

use conversation::*;
use std::sync::atomic::AtomicU8;

use engine::{
    Address, Destination, Now, QueuePair, QueuePairInit, QueuePairType, ReceiveRequest,
    SendRequest, SharedRoom, SourcePort, Status, Transmit, Work,
};
use wire::{Qpn, QueueKey, Route};

const QUEUE_KEY: QueueKey = QueueKey::new(0x1111_1111);

/// A second queue pair of the device, which must not be in use yet.
fn second(peer: &mut Conversation, kind: QueuePairType) -> Qpn {
    let init = QueuePairInit::new(kind, peer.domain, peer.completion_queue);
    peer.device.create_queue_pair(init).expect("room")
}

/// A device with two connected queue pairs that delivers to itself, and memory of this length.
fn connected(length: usize) -> (Conversation, Region, Region) {
    let mut peer = Conversation::new();
    let other = second(&mut peer, QueuePairType::Rc);
    let numbers = [peer.number, other];
    connect_to_each_other(&mut peer, numbers);
    peer.device.set_own_delivery(true);
    let pattern: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
    let source = peer.registers(0x1000_0000, &pattern);
    let target = peer.registers(0x2000_0000, &vec![0; length]);
    (peer, source, target)
}

fn write(source: &Region, target: &Region) -> SendRequest {
    let remote = engine::RemoteMemory {
        address: target.address(0),
        key: target.key(),
    };
    SendRequest::new(1, Work::Write(remote)).with([source.all()])
}

fn read(source: &Region, target: &Region) -> SendRequest {
    let remote = engine::RemoteMemory {
        address: source.address(0),
        key: source.key(),
    };
    SendRequest::new(1, Work::Read(remote)).with([target.all()])
}

#[test]
fn packets_to_own_queue_pairs_are_delivered_and_not_sent() {
    let (mut peer, source, target) = connected(10_000);
    peer.posts(write(&source, &target));
    peer.receives_nothing(at(0));
    let done = peer.device.poll_completion(peer.completion_queue);
    assert_eq!(done.expect("a completion").status, Status::Success);
    assert!(target.bytes() == source.bytes());
    // Ten packets and an acknowledgement.
    assert_eq!(peer.device.counters().delivered_to_self, 11);
    assert!(!peer.device.has_more_to_deliver());
}

fn unread() -> std::time::Instant {
    panic!("nothing depends on the time")
}

#[test]
fn request_that_is_acknowledged_within_the_device_needs_no_time() {
    let (mut peer, source, target) = connected(10_000);
    for request in [write(&source, &target), read(&source, &target)] {
        peer.posts(request);
        let now = Now::read_by(unread);
        let sent = (peer.device).poll_transmit_shared(&now, &mut Vec::new(), &mut ());
        assert!(sent.is_none() && now.known().is_none());
        let done = peer.device.poll_completion(peer.completion_queue);
        assert_eq!(done.expect("a completion").status, Status::Success);
        assert_eq!(peer.device.poll_timeout(), None);
    }
}

#[test]
fn request_whose_rest_waits_for_the_next_call_starts_the_timer() {
    let (mut peer, source, target) = connected(4 << 20);
    peer.posts(read(&source, &target));
    let now = Now::read_by(|| at(0));
    let sent = (peer.device).poll_transmit_shared(&now, &mut Vec::new(), &mut ());
    assert!(sent.is_none() && peer.device.has_more_to_deliver());
    assert!(peer.device.poll_timeout().is_some_and(|it| it > at(0)));
}

#[test]
fn request_that_is_not_acknowledged_within_the_device_starts_the_timer() {
    let (mut peer, source, target) = connected(8);
    let other = peer
        .device
        .queue_pair(peer.number)
        .and_then(QueuePair::peer);
    let other = other.expect("connected").queue_pair;
    peer.device
        .move_to_error(other)
        .expect("a legal transition");
    peer.posts(write(&source, &target));
    peer.receives_nothing(at(0));
    let timeout = peer.device.poll_timeout().expect("a timer");
    assert!(timeout > at(0));
    peer.device.handle_timeout(timeout);
    assert_eq!(peer.device.counters().timeouts, 1);
}

#[test]
fn without_own_delivery_the_packets_are_sent_with_an_icrc() {
    let (mut peer, source, target) = connected(100);
    peer.device.set_own_delivery(false);
    peer.posts(write(&source, &target));
    // The conversation verifies the ICRC.
    assert_eq!(peer.received(at(0)).len(), 1);
}

#[test]
fn one_call_delivers_a_part_of_a_long_message() {
    let (mut peer, source, target) = connected(4 << 20);
    peer.posts(write(&source, &target));
    let mut buffer = Vec::new();
    assert!(peer.device.poll_transmit(at(0), &mut buffer).is_none());
    assert!(peer.device.has_more_to_deliver(), "it stops in between");
    let mut calls = 1;
    while peer.device.has_more_to_deliver() {
        assert!(peer.device.poll_transmit(at(0), &mut buffer).is_none());
        calls += 1;
    }
    assert!(
        (4..=6).contains(&calls),
        "one megabyte for each call: {calls}"
    );
    assert!(target.bytes() == source.bytes());
}

/// Both messages were posted before the first one is delivered.
#[test]
fn request_completes_before_the_next_message_of_its_receiver_arrives() {
    let mut peer = Conversation::new();
    let numbers = [peer.number, second(&mut peer, QueuePairType::Rc)];
    connect_to_each_other(&mut peer, numbers);
    peer.device.set_own_delivery(true);
    let target = peer.registers(0x1000, &[0; 100]);
    for (number, id) in numbers.into_iter().zip([1, 2]) {
        let receive = ReceiveRequest::new(10 + id, [target.all()]);
        peer.device.post_receive(number, receive).expect("room");
        let send = SendRequest::new(id, Work::Send).inline(b"hello");
        peer.device.post_send(number, send).expect("room");
    }
    peer.receives_nothing(at(0));
    let ids = peer.completions().into_iter().map(|it| it.id);
    assert_eq!(ids.collect::<Vec<_>>(), [12, 1, 11, 2]);
}

fn datagram_to(address: [u8; 4], queue_pair: Qpn) -> SendRequest {
    let request = SendRequest::new(1, Work::Send).inline(b"hello");
    request.to(Destination {
        address: Address::new(gid(address), 0),
        queue_pair,
        queue_key: QUEUE_KEY,
    })
}

/// A device with a datagram queue pair that delivers to itself, and the inbox of that queue pair.
fn datagrams() -> (Conversation, Region) {
    let mut setup = Setup {
        kind: QueuePairType::Ud,
        ..Setup::default()
    };
    // One source port for all destinations, as the driver has it: their packets fit into one batch.
    setup.config.source_port = SourcePort::OfGid(vec![0xc123]);
    let mut peer = Conversation::with(setup);
    peer.device.set_own_delivery(true);
    let inbox = peer.registers(0x1000, &[0; 256]);
    peer.posts_receive(1, &inbox);
    (peer, inbox)
}

#[test]
fn datagram_to_the_own_queue_pair_is_delivered_with_its_network_header() {
    let (mut peer, inbox) = datagrams();
    let own = peer.number;
    peer.posts(datagram_to(DEVICE_ADDRESS, own));
    peer.receives_nothing(at(0));
    assert_eq!(&inbox.bytes()[40..45], b"hello");
    assert_eq!(&inbox.bytes()[32..36], &DEVICE_ADDRESS, "the source");
}

#[test]
fn datagram_to_another_process_of_the_address_leaves_between_own_ones() {
    let (mut peer, inbox) = datagrams();
    peer.posts_receive(2, &inbox);
    let own = peer.number;
    let other = Qpn::new(0x70_0000);
    for number in [own, other, own] {
        peer.posts(datagram_to(DEVICE_ADDRESS, number));
    }
    // The conversation verifies the ICRC.
    assert_eq!(peer.received(at(0)).len(), 1);
    assert_eq!(peer.device.counters().delivered_to_self, 2);
}

#[test]
fn message_to_queue_pair_1_leaves_because_processes_share_it() {
    let (mut peer, _inbox) = datagrams();
    peer.posts(datagram_to(DEVICE_ADDRESS, Qpn::GSI));
    assert_eq!(peer.received(at(0)).len(), 1);
}

#[test]
fn own_number_at_another_address_leaves() {
    let (mut peer, _inbox) = datagrams();
    let own = peer.number;
    peer.posts(datagram_to(PEER_ADDRESS, own));
    assert_eq!(peer.received(at(0)).len(), 1);
}

/// Whether packets may leave the device.
struct Exit {
    is_closed: bool,
}

impl SharedRoom for Exit {
    fn reserve(&mut self, _: &Route, _: Qpn, _: usize) -> Option<&[AtomicU8]> {
        None
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

fn polls_with_exit(peer: &mut Conversation, is_closed: bool) -> Option<Transmit> {
    let (now, mut buffer) = (at(0).into(), Vec::new());
    (peer.device).poll_transmit_shared(&now, &mut buffer, &mut Exit { is_closed })
}

/// The socket to another peer may be full for long.
#[test]
fn requests_within_the_device_do_not_wait_while_nothing_leaves() {
    let (mut peer, source, target) = connected(4 << 20);
    let init = peer.init();
    let away = peer.adds(init);
    let send = SendRequest::new(2, Work::Send).inline(b"away");
    peer.device.post_send(away, send).expect("room");
    peer.posts(write(&source, &target));
    let mut calls = 0;
    while calls == 0 || peer.device.has_more_to_deliver() {
        assert!(polls_with_exit(&mut peer, true).is_none());
        calls += 1;
    }
    assert!((4..=6).contains(&calls), "as without it: {calls}");
    peer.completes([(1, Status::Success)]);
    assert!(target.bytes() == source.bytes());
    assert!(polls_with_exit(&mut peer, false).is_none(), "it waits");
    peer.device.note_room();
    let sent = polls_with_exit(&mut peer, false).expect("there is room");
    assert_eq!(sent.destination, PEER);
}

#[test]
fn datagrams_to_the_device_itself_do_not_wait_while_nothing_leaves() {
    let (mut peer, inbox) = datagrams();
    peer.posts_receive(2, &inbox);
    let own = peer.number;
    for number in [own, Qpn::new(0x70_0000), own] {
        peer.posts(datagram_to(DEVICE_ADDRESS, number));
    }
    assert!(polls_with_exit(&mut peer, true).is_none());
    assert_eq!(peer.device.counters().delivered_to_self, 1);
    peer.device.note_room();
    assert!(polls_with_exit(&mut peer, false).is_some());
    assert!(polls_with_exit(&mut peer, false).is_none());
    assert_eq!(peer.device.counters().delivered_to_self, 2);
}

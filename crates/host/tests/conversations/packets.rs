//! Packets of programs: through the network, through shared memory, and again after a loss.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use engine::{
    Access, Buffer, CompletedWork, ObjectCounts, RemoteMemory, Segment, SendRequest, Status, Work,
};
use host::is_management;
use wire::Qpn;

use crate::station::{CLIENT, Pair, SERVER, Station, at};

fn connected() -> (Station, Station, Pair, Pair) {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    let (left, right) = (client.queue_pair(), server.queue_pair());
    left.connect(&mut client, SERVER, right.number);
    right.connect(&mut server, CLIENT, left.number);
    (client, server, left, right)
}

/// Expects the message of the left queue pair in the memory of the right one.
fn assert_received(server: &mut Station, right: &Pair, text: &[u8]) {
    let completion = server.host.device_mut().poll_completion(right.completions);
    let completion = completion.expect("a completion");
    assert_eq!(completion.status, Status::Success);
    assert_eq!(
        (completion.work, completion.id),
        (CompletedWork::Receive, 7)
    );
    let mut received = vec![0; text.len()];
    right.buffer.read(0, &mut received);
    assert_eq!(received, text);
}

#[test]
fn lost_packet_is_sent_again_when_its_timer_is_due() {
    let (mut client, mut server, left, right) = connected();
    left.buffer.write(0, b"once more");
    left.send(&mut client, 9);
    assert_eq!(client.sends(0).len(), 1, "lost");
    let due = client.host.poll_timeout().expect("a timer");
    assert_eq!(client.sends_at(due - Duration::from_nanos(1)).len(), 0);
    let again = client.sends_at(due);
    assert_eq!(again.len(), 1);
    server.receives(1000, &again);
    assert_received(&mut server, &right, b"once more");
}

#[test]
fn packet_without_icrc_is_handled_like_any_other() {
    let (mut client, mut server, left, right) = connected();
    left.buffer.write(0, b"no checksum");
    left.send(&mut client, 11);
    for mut packet in client.sends(0) {
        let icrc = packet.bytes.len() - 4;
        packet.bytes[icrc..].fill(0);
        server
            .host
            .handle_without_icrc(at(0), &packet.route, &packet.bytes);
    }
    assert_received(&mut server, &right, b"no checksum");
}

#[test]
fn message_of_the_connection_manager_without_icrc_is_answered() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    client.connect(0, Qpn::new(0x11));
    let [request] = &client.sends(0)[..] else {
        panic!("one packet");
    };
    assert!(is_management(&request.bytes));
    server
        .host
        .handle_without_icrc(at(0), &request.route, &request.bytes);
    assert_eq!(server.messages(0).len(), 1, "it is rejected");
}

#[test]
fn packet_in_shared_memory_is_handled_there() {
    let (mut client, mut server, left, right) = connected();
    let text = [0x5a; 1000];
    left.buffer.write(0, &text);
    left.send(&mut client, 1000);
    for packet in client.sends(0) {
        let shared: Vec<AtomicU8> = packet.bytes.iter().copied().map(AtomicU8::new).collect();
        let head = &packet.bytes[..64];
        server
            .host
            .handle_shared(at(0), &packet.route, head, &shared);
    }
    assert_received(&mut server, &right, &text);
}

#[test]
fn objects_of_queue_pair_1_are_not_counted() {
    let mut station = Station::new(CLIENT);
    let counts = station.host.device().object_counts();
    assert_eq!(counts, ObjectCounts::default());
    station.queue_pair();
    let counts = station.host.device().object_counts();
    assert_eq!(
        (counts.domains, counts.completion_queues, counts.regions),
        (1, 1, 1)
    );
}

#[test]
fn hosts_of_two_lanes_share_their_objects() {
    let first = Station::new(CLIENT);
    let objects = Arc::clone(first.host.device().objects());
    let second = Station::with(CLIENT, |config| config.objects = Some(objects));
    let shared = second.host.device().objects();
    assert!(Arc::ptr_eq(shared, first.host.device().objects()));
}

/// A poll that posted messages then would deliver as much again, under the lock of its caller.
#[test]
fn messages_wait_while_a_poll_has_delivered_enough_to_the_device_itself() {
    const LENGTH: u32 = 3 << 20;
    let mut client = Station::new(CLIENT);
    let pair = client.queue_pair();
    pair.connect(&mut client, CLIENT, pair.number);
    let device = client.host.device_mut();
    device.set_own_delivery(true);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let memory = device.register(pair.domain, Buffer::zeroed(LENGTH as usize), 0, access);
    let memory = memory.expect("memory");
    let target = RemoteMemory {
        address: memory.address,
        key: memory.remote_key,
    };
    let source = Segment {
        address: memory.address,
        length: LENGTH,
        key: memory.local_key,
    };
    let write = SendRequest::new(1, Work::Write(target)).with([source]);
    device.post_send(pair.number, write).expect("room");
    client.connect(0, Qpn::new(0x500));
    let mut buffer = Vec::new();
    let sent = client.host.poll_transmit(at(0), &mut buffer);
    assert!(sent.is_none() && client.host.device().has_more_to_deliver());
    let mut messages = Vec::new();
    while client.host.device().has_more_to_deliver() {
        messages.extend(client.messages(0));
    }
    assert_eq!(messages.len(), 1, "the request for a connection");
}

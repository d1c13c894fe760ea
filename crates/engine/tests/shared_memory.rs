//! Packets that are built and handled in memory that another process can change.

mod conversation;

use std::sync::atomic::{AtomicU8, Ordering};

use conversation::*;
use engine::{
    Observation, QueuePairInit, QueuePairType, ReceiveRequest, RemoteMemory, SendRequest,
    SharedRoom, Status, Work,
};
use wire::{Qpn, Route};

/// As many bytes of a packet as a driver copies.
const HEAD: usize = 64;

/// A region of each test has this length.
const LENGTH: usize = 20_000;

/// Memory that is shared with the receiver of packets.
struct Room {
    bytes: Vec<AtomicU8>,
    asked_for: Vec<Qpn>,
    /// Packets to it wait.
    full: Option<Qpn>,
}

impl Room {
    fn of(length: usize) -> Self {
        Self {
            bytes: (0..length).map(|_| AtomicU8::new(0xee)).collect(),
            asked_for: Vec::new(),
            full: None,
        }
    }
}

impl SharedRoom for Room {
    fn reserve(&mut self, _: &Route, destination: Qpn, _: usize) -> Option<&[AtomicU8]> {
        self.asked_for.push(destination);
        Some(&self.bytes)
    }

    fn is_full(&self, _: &Route, destination: Qpn) -> bool {
        self.full == Some(destination)
    }
}

fn remote_at(region: &Region, offset: u64) -> RemoteMemory {
    RemoteMemory {
        address: region.address(offset),
        key: region.key(),
    }
}

fn copy(shared: &[AtomicU8]) -> Vec<u8> {
    let bytes = shared.iter().map(|byte| byte.load(Ordering::Relaxed));
    bytes.collect()
}

/// A device with two connected queue pairs that sends to itself without ICRC.
struct Pair {
    peer: Conversation,
    other: Qpn,
    source: Region,
    target: Region,
}

impl Pair {
    fn new() -> Self {
        Self::of(Conversation::new())
    }

    fn of(mut peer: Conversation) -> Self {
        let init = QueuePairInit::new(QueuePairType::Rc, peer.domain, peer.completion_queue);
        let other = peer.device.create_queue_pair(init).expect("room");
        let numbers = [peer.number, other];
        connect_to_each_other(&mut peer, numbers);
        peer.device.leave_out_icrc(true);
        let pattern: Vec<u8> = (0..LENGTH).map(|index| (index % 251) as u8).collect();
        let source = peer.registers(0x1000_0000, &pattern);
        let target = peer.registers(0x2000_0000, &[0; LENGTH]);
        Self {
            peer,
            other,
            source,
            target,
        }
    }

    /// Delivers all packets. Returns how many were in the room, and how many in the buffer.
    fn deliver(&mut self, room: &mut Room) -> (usize, usize) {
        let (mut shared, mut private) = (0, 0);
        let mut buffer = Vec::new();
        let device = &mut self.peer.device;
        while let Some(sent) = device.poll_transmit_shared(&at(0).into(), &mut buffer, room) {
            let Some(length) = sent.shared_length else {
                for packet in buffer.chunks(sent.segment_size) {
                    private += 1;
                    device.handle_without_icrc(at(0), &sent.route, packet);
                }
                continue;
            };
            assert!(buffer.is_empty() && !sent.has_icrc);
            for packet in room.bytes[..length].chunks(sent.segment_size) {
                shared += 1;
                let head = copy(&packet[..HEAD.min(packet.len())]);
                device.handle_shared(at(0), &sent.route, &head, packet);
            }
        }
        (shared, private)
    }

    fn post(&mut self, work: Work, offset: u64, length: u32) {
        let segment = match work {
            Work::Read(_) => self.target.segment(offset, length),
            _ => self.source.segment(offset, length),
        };
        self.peer.posts(SendRequest::new(1, work).with([segment]));
    }

    fn expect_success(&mut self, completions: usize) {
        for _ in 0..completions {
            let done = self.peer.device.poll_completion(self.peer.completion_queue);
            assert_eq!(done.expect("a completion").status, Status::Success);
        }
    }

    /// Bytes of the source arrived in the target, and nothing else changed.
    fn expect_copied(&mut self, from: usize, to: usize, length: usize) {
        let mut expected = vec![0; LENGTH];
        expected[to..to + length].copy_from_slice(&self.source.bytes()[from..from + length]);
        assert!(
            self.target.bytes() == expected,
            "{length} from {from} to {to}"
        );
    }
}

/// Offsets and lengths that begin and end anywhere in a word.
const CASES: [(u64, u64, u32); 6] = [
    (0, 0, 10_000),
    (1, 0, 1024),
    (0, 3, 1025),
    (5, 2, 4099),
    (7, 7, 9001),
    (2, 6, 1031),
];

#[test]
fn queue_pair_waits_while_its_peer_has_no_room_and_delays_no_other() {
    let mut pair = Pair::new();
    let mut room = Room::of(70_000);
    room.full = Some(pair.other);
    let write = Work::Write(remote_at(&pair.target, 0));
    pair.post(write, 0, 100);
    assert_eq!(pair.deliver(&mut room), (0, 0));
    let segment = pair.source.segment(0, 100);
    let posted = SendRequest::new(2, write).with([segment]);
    (pair.peer.device.post_send(pair.other, posted)).expect("room");
    assert_eq!(
        pair.deliver(&mut room),
        (0, 1),
        "its acknowledgement goes to the full one"
    );
    room.full = None;
    pair.peer.device.note_room();
    pair.deliver(&mut room);
    pair.expect_success(2);
}

#[test]
fn queue_pair_whose_peer_has_no_room_sends_to_the_peer_that_it_is_connected_with_next() {
    let mut pair = Pair::new();
    let mut room = Room::of(70_000);
    room.full = Some(pair.other);
    let write = Work::Write(remote_at(&pair.target, 0));
    pair.post(write, 0, 100);
    assert_eq!(pair.deliver(&mut room), (0, 0));
    let third = (pair.peer.device).create_queue_pair(pair.peer.init());
    let numbers = [pair.peer.number, third.expect("room")];
    connect_to_each_other(&mut pair.peer, numbers);
    pair.post(write, 0, 100);
    assert_eq!(pair.deliver(&mut room), (0, 2), "and its acknowledgement");
    pair.expect_success(1);
}

/// The packet can be changed by the other process, so it is not compared itself.
#[test]
fn a_message_that_was_changed_before_its_packets_are_built_in_shared_memory_is_noted() {
    for changed in [None, Some(0), Some(5000)] {
        let mut setup = Setup::default();
        setup.config.observations = true;
        let mut pair = Pair::of(Conversation::with(setup));
        let remote = RemoteMemory {
            address: pair.target.address(0),
            key: pair.target.key(),
        };
        pair.post(Work::Write(remote), 0, 10_000);
        let _ = pair.peer.device.take_observations();
        if let Some(offset) = changed {
            pair.source.buffer.write(offset, &[0xff]);
        }
        let (shared, _) = pair.deliver(&mut Room::of(65_000));
        assert!(shared >= 1);
        let ended = pair.peer.device.take_observations();
        let found = ended.iter().find_map(|it| match it {
            Observation::SendEnded { changed_at, .. } => Some(*changed_at),
            _ => None,
        });
        let piece = changed.map(|offset| (offset / 1024 * 1024) as u32);
        assert_eq!(found, Some(piece), "{changed:?}");
    }
}

#[test]
fn long_messages_are_built_and_read_in_shared_memory() {
    for (from, to, length) in CASES {
        let (here, there) = (from as usize, to as usize);
        let mut room = Room::of(65_000);

        let mut pair = Pair::new();
        pair.post(Work::Write(remote_at(&pair.target, to)), from, length);
        let (shared, private) = pair.deliver(&mut room);
        assert!(shared >= 1 && private >= 1, "the acknowledgement is short");
        assert!(room.asked_for.iter().all(|number| *number == pair.other));
        pair.expect_success(1);
        pair.expect_copied(here, there, length as usize);

        let mut pair = Pair::new();
        let receive = ReceiveRequest::new(2, [pair.target.segment(to, length)]);
        pair.peer
            .device
            .post_receive(pair.other, receive)
            .expect("room");
        pair.post(Work::Send, from, length);
        assert!(pair.deliver(&mut room).0 >= 1);
        pair.expect_success(2);
        pair.expect_copied(here, there, length as usize);

        let mut pair = Pair::new();
        pair.post(Work::Read(remote_at(&pair.source, from)), to, length);
        assert!(pair.deliver(&mut room).0 >= 1);
        pair.expect_success(1);
        pair.expect_copied(here, there, length as usize);
    }
}

#[test]
fn short_messages_are_built_in_the_buffer() {
    let mut pair = Pair::new();
    pair.post(Work::Write(remote_at(&pair.target, 0)), 0, 1000);
    let mut room = Room::of(65_000);
    assert_eq!(pair.deliver(&mut room).0, 0);
    assert!(room.asked_for.is_empty());
    pair.expect_success(1);
}

#[test]
fn too_little_room_is_not_used() {
    let mut pair = Pair::new();
    pair.post(Work::Write(remote_at(&pair.target, 0)), 0, 10_000);
    assert_eq!(pair.deliver(&mut Room::of(100)).0, 0);
    pair.expect_success(1);
    pair.expect_copied(0, 0, 10_000);
}

/// A driver without checks leaves out no ICRC, and packets with one are built in its buffer.
#[test]
fn packets_with_an_icrc_are_built_in_the_buffer() {
    let mut pair = Pair::new();
    pair.peer.device.leave_out_icrc(false);
    pair.post(Work::Write(remote_at(&pair.target, 0)), 0, 10_000);
    let mut room = Room::of(65_000);
    assert_eq!(pair.deliver(&mut room).0, 0);
    assert!(room.asked_for.is_empty());
}

/// Another process may write anything there.
#[test]
fn a_packet_in_shared_memory_is_checked_like_any_other() {
    let (mut shared, mut private) = (Pair::new(), Pair::new());
    let route = Route::new(flow());
    let mut random = 7_u64;
    for _ in 0..20_000 {
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) as u32
        };
        let mut packet: Vec<u8> = (0..next() % 90).map(|_| next() as u8).collect();
        if let Some(head) = packet.first_chunk_mut::<8>() {
            // Most of them reach the queue pair.
            head[0] &= 0x1f;
            head[1] &= 0xf0;
            head[5..].copy_from_slice(&shared.other.value().to_be_bytes()[1..]);
        }
        private
            .peer
            .device
            .handle_without_icrc(at(0), &route, &packet);
        let bytes: Vec<AtomicU8> = packet.iter().map(|byte| AtomicU8::new(*byte)).collect();
        let head = &packet[..HEAD.min(packet.len())];
        shared
            .peer
            .device
            .handle_shared(at(0), &route, head, &bytes);
    }
    let counters = |pair: &Pair| format!("{:?}", pair.peer.device.counters());
    assert_eq!(counters(&shared), counters(&private));
    assert!(shared.peer.device.counters().malformed > 100);
}

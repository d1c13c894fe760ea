//! Division of messages into packets: opcodes, headers and payloads.

use engine::{Payload, SendFlags, SendRequest, Work};
use wire::{FlushPlacement, FlushRange, Key, PathMtu, ROCE_PORT};

use crate::conversation::*;

fn with_outbox(length: usize) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(length));
    (peer, outbox)
}

fn positions(packets: usize) -> Vec<&'static str> {
    match packets {
        1 => vec!["Only"],
        _ => {
            let mut positions = vec!["Middle"; packets];
            positions[0] = "First";
            positions[packets - 1] = "Last";
            positions
        }
    }
}

#[test]
fn messages_are_divided_at_every_path_mtu() {
    for path_mtu in (1..=5).filter_map(PathMtu::from_code) {
        let mtu = path_mtu.bytes();
        for length in [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5] {
            let mut peer = Conversation::with(Setup {
                path_mtu,
                ..Setup::default()
            });
            let outbox = peer.registers(0x1000, &pattern(4 * 4096));
            let segment = outbox.segment(0, length as u32);
            peer.posts(SendRequest::new(1, Work::Send).with([segment]));
            peer.posts(SendRequest::new(2, Work::Send));
            let received = peer.received(at(0));
            let (after, message) = received.split_last().expect("the empty message");
            assert_segmented(message, mtu, &pattern(4 * 4096)[..length]);
            let expected_after = format!("send Only +{} 0B ackreq", message.len());
            assert_eq!(after.text(), expected_after);
        }
    }
}

/// Asserts the packets of a SEND: positions, PSNs, payloads, and AckReq on the last one.
fn assert_segmented(received: &[DevicePacket], mtu: usize, data: &[u8]) {
    let packets = data.len().div_ceil(mtu).max(1);
    let mut expected = Vec::new();
    for (index, position) in positions(packets).into_iter().enumerate() {
        let length = mtu.min(data.len() - index * mtu);
        let ackreq = if index + 1 == packets { " ackreq" } else { "" };
        expected.push(format!("send {position} +{index} {length}B{ackreq}"));
    }
    let words: Vec<&str> = received.iter().map(DevicePacket::text).collect();
    assert_eq!(words, expected);
    let sent: Vec<u8> = received
        .iter()
        .flat_map(|one| one.payload().to_vec())
        .collect();
    assert_eq!(sent, data);
}

#[test]
fn every_work_has_its_opcode_and_headers() {
    let place = remote(0x9000);
    let placement = FlushPlacement::GLOBAL;
    let range = FlushRange::Range;
    let eight = 8;
    let table: [(Work, u32, &str); 11] = [
        (Work::Send, 5, "send Only +0 5B ackreq"),
        (
            Work::SendImmediate(*b"imm!"),
            5,
            "send Only +0 5B imm=imm! ackreq",
        ),
        (
            Work::SendInvalidate(Key::new(0x77)),
            5,
            "send Only +0 5B invalidate=0x77 ackreq",
        ),
        (Work::Write(place), 5, "write Only +0 5B va=0x9000 ackreq"),
        (
            Work::WriteImmediate(place, *b"imm!"),
            5,
            "write Only +0 5B va=0x9000 imm=imm! ackreq",
        ),
        (Work::Read(place), 5, "read-request +0 va=0x9000 len=5"),
        (
            Work::CompareSwap {
                remote: place,
                compare: 1,
                swap: 2,
            },
            eight,
            "compare-swap +0 va=0x9000 compare=1 swap=2",
        ),
        (
            Work::FetchAdd {
                remote: place,
                add: 3,
            },
            eight,
            "fetch-add +0 va=0x9000 add=3",
        ),
        (
            Work::AtomicWrite(place),
            eight,
            "atomic-write +0 va=0x9000 len=8",
        ),
        (
            Work::Flush {
                remote: place,
                length: 64,
                placement,
                range,
            },
            0,
            "flush +0 placement=1 va=0x9000 len=64",
        ),
        (
            Work::Write(place),
            1025,
            "write First +0 1024B va=0x9000 len=1025",
        ),
    ];
    for (work, length, words) in table {
        let (mut peer, outbox) = with_outbox(2048);
        peer.posts(SendRequest::new(1, work).with([outbox.segment(0, length)]));
        let received = peer.received(at(0));
        assert_eq!(received[0].text(), words);
        if let Some(key) = received[0].packet().reth().map(wire::Reth::remote_key) {
            assert_eq!(key, place.key);
        }
        if let Some(key) = received[0]
            .packet()
            .atomic()
            .map(wire::AtomicEth::remote_key)
        {
            assert_eq!(key, place.key);
        }
    }
}

#[test]
fn headers_of_a_long_message_are_in_its_first_or_last_packet() {
    let (mut peer, outbox) = with_outbox(4096);
    let work = Work::WriteImmediate(remote(0x9000), *b"imm!");
    let request = SendRequest::new(1, work)
        .with([outbox.segment(0, 2500)])
        .flags(SendFlags::SOLICITED);
    peer.posts(request);
    peer.receives(
        at(0),
        [
            "write First +0 1024B va=0x9000 len=2500",
            "write Middle +1 1024B",
            "write Last +2 452B imm=imm! solicited ackreq",
        ],
    );
}

#[test]
fn only_requests_that_consume_a_receive_are_solicited() {
    let (mut peer, outbox) = with_outbox(64);
    let solicited = |id, work| {
        SendRequest::new(id, work)
            .with([outbox.segment(0, 8)])
            .flags(SendFlags::SOLICITED)
    };
    peer.posts(solicited(1, Work::Write(remote(0x9000))));
    peer.posts(solicited(2, Work::Read(remote(0x9000))));
    peer.posts(solicited(3, Work::SendInvalidate(Key::new(1))));
    peer.receives(
        at(0),
        [
            "write Only +0 8B va=0x9000 ackreq",
            "read-request +1 va=0x9000 len=8",
            "send Only +2 8B invalidate=0x1 solicited ackreq",
        ],
    );
}

// CA17-20
#[test]
fn packets_are_addressed_to_the_peer() {
    let (mut peer, outbox) = with_outbox(64);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    let received = peer.received(at(0));
    let packet = received[0].packet();
    assert_eq!(packet.destination, PEER);
    assert_eq!(packet.partition.value(), 0xffff);
    assert!(
        packet.migrated,
        "some hardware rejects packets without MigReq"
    );
    let route = received[0].route;
    assert_eq!(route.flow.source, std::net::IpAddr::from(DEVICE_ADDRESS));
    assert_eq!(route.flow.destination, std::net::IpAddr::from(PEER_ADDRESS));
    assert_eq!(route.flow.destination_port, ROCE_PORT);
    assert!(route.flow.source_port >= 0xc000);
}

#[test]
fn thirty_two_segments_make_one_message() {
    let mut peer = Conversation::with(Setup {
        queue_pair: |init| init.max_send_segments = 32,
        ..Setup::default()
    });
    let outbox = peer.registers(0x1000, &pattern(8192));
    let segments: Vec<_> = (0..32_u64)
        .map(|index| outbox.segment(200 * index, (index * 5) as u32))
        .collect();
    let mut message = Vec::new();
    for segment in &segments {
        let start = (segment.address - 0x1000) as usize;
        message.extend_from_slice(&pattern(8192)[start..][..segment.length as usize]);
    }
    peer.posts(SendRequest::new(1, Work::Send).with(segments));
    let received = peer.received(at(0));
    assert_segmented(&received, 1024, &message);
}

#[test]
fn inline_data_is_copied_when_posted_and_registered_memory_read_when_sent() {
    let (mut peer, outbox) = with_outbox(8);
    let mut data = *b"before";
    peer.posts(SendRequest::new(1, Work::Send).inline(&data));
    data.copy_from_slice(b"after!");
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.all()]));
    outbox.buffer.write(0, b"changed!");
    let received = peer.received(at(0));
    assert_eq!(received[0].payload(), b"before");
    assert_eq!(received[1].payload(), b"changed!");
    assert_eq!(&data, b"after!");
}

#[test]
fn inline_data_needs_no_key_and_is_retransmitted() {
    let (mut peer, _) = with_outbox(8);
    let request = SendRequest::new(1, Work::Write(remote(0x9000))).inline(b"inline");
    assert!(matches!(request.payload, Payload::Inline(_)));
    peer.posts(request);
    peer.receives(at(0), ["write Only +0 6B va=0x9000 ackreq"]);
    let again = peer.received(at(70));
    assert_eq!(again[0].payload(), b"inline");
}

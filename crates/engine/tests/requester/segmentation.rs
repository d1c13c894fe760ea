//! From messages to packets: which opcode, which headers, which bytes.

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
fn messages_are_cut_at_every_path_mtu() {
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
            let heard = peer.listens(at(0));
            let (behind, message) = heard.split_last().expect("the empty message");
            is_cut(message, mtu, &pattern(4 * 4096)[..length]);
            let behind_it = format!("send Only +{} 0B ask", message.len());
            assert_eq!(behind.words(), behind_it);
        }
    }
}

/// The packets of a SEND: right positions, right sequence numbers, right bytes, asking at the end.
fn is_cut(heard: &[Heard], mtu: usize, data: &[u8]) {
    let packets = data.len().div_ceil(mtu).max(1);
    let mut expected = Vec::new();
    for (index, position) in positions(packets).into_iter().enumerate() {
        let length = mtu.min(data.len() - index * mtu);
        let ask = if index + 1 == packets { " ask" } else { "" };
        expected.push(format!("send {position} +{index} {length}B{ask}"));
    }
    let words: Vec<&str> = heard.iter().map(Heard::words).collect();
    assert_eq!(words, expected);
    let sent: Vec<u8> = heard
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
        (Work::Send, 5, "send Only +0 5B ask"),
        (
            Work::SendImmediate(*b"imm!"),
            5,
            "send Only +0 5B imm=imm! ask",
        ),
        (
            Work::SendInvalidate(Key::new(0x77)),
            5,
            "send Only +0 5B invalidate=0x77 ask",
        ),
        (Work::Write(place), 5, "write Only +0 5B va=0x9000 ask"),
        (
            Work::WriteImmediate(place, *b"imm!"),
            5,
            "write Only +0 5B va=0x9000 imm=imm! ask",
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
        let heard = peer.listens(at(0));
        assert_eq!(heard[0].words(), words);
        if let Some(key) = heard[0].packet().reth().map(wire::Reth::remote_key) {
            assert_eq!(key, place.key);
        }
        if let Some(key) = heard[0].packet().atomic().map(wire::AtomicEth::remote_key) {
            assert_eq!(key, place.key);
        }
    }
}

#[test]
fn headers_of_a_long_message_stand_where_they_belong() {
    let (mut peer, outbox) = with_outbox(4096);
    let work = Work::WriteImmediate(remote(0x9000), *b"imm!");
    let request = SendRequest::new(1, work)
        .with([outbox.segment(0, 2500)])
        .flags(SendFlags::SOLICITED);
    peer.posts(request);
    peer.hears(
        at(0),
        [
            "write First +0 1024B va=0x9000 len=2500",
            "write Middle +1 1024B",
            "write Last +2 452B imm=imm! solicited ask",
        ],
    );
}

#[test]
fn only_what_takes_a_receive_solicits() {
    let (mut peer, outbox) = with_outbox(64);
    let solicited = |id, work| {
        SendRequest::new(id, work)
            .with([outbox.segment(0, 8)])
            .flags(SendFlags::SOLICITED)
    };
    peer.posts(solicited(1, Work::Write(remote(0x9000))));
    peer.posts(solicited(2, Work::Read(remote(0x9000))));
    peer.posts(solicited(3, Work::SendInvalidate(Key::new(1))));
    peer.hears(
        at(0),
        [
            "write Only +0 8B va=0x9000 ask",
            "read-request +1 va=0x9000 len=8",
            "send Only +2 8B invalidate=0x1 solicited ask",
        ],
    );
}

#[test]
fn packets_go_to_the_peer() {
    let (mut peer, outbox) = with_outbox(64);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.all()]));
    let heard = peer.listens(at(0));
    let packet = heard[0].packet();
    assert_eq!(packet.destination, PEER);
    assert_eq!(packet.partition.value(), 0xffff);
    assert!(packet.migrated, "some hardware refuses packets without it");
    let route = heard[0].route;
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
    let heard = peer.listens(at(0));
    is_cut(&heard, 1024, &message);
}

#[test]
fn inline_data_is_a_snapshot_and_registered_memory_is_read_when_sent() {
    let (mut peer, outbox) = with_outbox(8);
    let mut data = *b"before";
    peer.posts(SendRequest::new(1, Work::Send).inline(&data));
    data.copy_from_slice(b"after!");
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.all()]));
    outbox.buffer.write(0, b"changed!");
    let heard = peer.listens(at(0));
    assert_eq!(heard[0].payload(), b"before");
    assert_eq!(heard[1].payload(), b"changed!");
    assert_eq!(&data, b"after!");
}

#[test]
fn inline_data_needs_no_key_and_may_be_sent_again() {
    let (mut peer, _) = with_outbox(8);
    let request = SendRequest::new(1, Work::Write(remote(0x9000))).inline(b"inline");
    assert!(matches!(request.payload, Payload::Inline(_)));
    peer.posts(request);
    peer.hears(at(0), ["write Only +0 6B va=0x9000 ask"]);
    let again = peer.listens(at(70));
    assert_eq!(again[0].payload(), b"inline");
}

//! Queue pairs between two hosts that all start at PSN 0.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use explain::{Analysis, AnomalyKind, Pairing};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use rocinante::{
    Access, CompletionQueue, Context, Endpoint, MemoryRegion, OpenOptions, QueuePair, Request,
    Status,
};
use wire::{Datagram, ICRC_LENGTH, Packet, Psn, Qpn, icrc};

const QUEUE_PAIRS: usize = 4;
const LENGTH: usize = 5000;
const DEADLINE: Duration = Duration::from_secs(30);

struct Host {
    path: PathBuf,
    completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pairs: Vec<QueuePair>,
}

/// The peer of each queue pair, and its first PSN.
#[derive(Default)]
struct Ends {
    peer: HashMap<Qpn, Qpn>,
    start: HashMap<Qpn, Psn>,
}

impl Ends {
    fn of(left: &[Endpoint], right: &[Endpoint]) -> Self {
        let mut ends = Ends::default();
        for (one, other) in left.iter().zip(right) {
            for (one, other) in [(one, other), (other, one)] {
                ends.peer.insert(one.queue_pair, other.queue_pair);
                ends.start.insert(one.queue_pair, one.psn);
            }
        }
        assert_eq!(ends.peer.len(), 2 * QUEUE_PAIRS, "numbers differ");
        ends
    }

    /// Rewrites a packet as if all queue pairs had started at PSN 0.
    fn restart(&self, frame: &mut [u8]) {
        let datagram = Datagram::parse_ip(frame).expect("UDP");
        let packet = Packet::parse(datagram.payload).expect("RoCE");
        let sender = self.peer[&packet.destination];
        let requester = if packet.opcode.is_response() {
            packet.destination
        } else {
            sender
        };
        let psn = packet.psn.since(self.start[&requester]);
        let psn = (psn as u32).to_be_bytes();
        let base = datagram.payload.as_ptr().addr() - frame.as_ptr().addr();
        let end = base + datagram.payload.len() - ICRC_LENGTH;
        let (flow, identification) = (datagram.flow, datagram.fragmentation.identification);
        frame[base + 9..base + 12].copy_from_slice(&psn[1..]);
        let checksum = icrc::checksum(&flow, identification, &frame[base..end]);
        frame[end..end + ICRC_LENGTH].copy_from_slice(&checksum);
    }
}

fn open(address: &str) -> (Host, Vec<rocinante::PreparedQueuePair>) {
    let name = format!("same-start-{address}.pcapng");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let options = OpenOptions {
        capture: Some(path.clone()),
        ..OpenOptions::default()
    };
    let context = Context::open_with(address, &options).expect("a loopback address");
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(16 * QUEUE_PAIRS as u32);
    let completions = completions.expect("room");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let memory = domain.allocate_memory(2 * LENGTH, rights).expect("room");
    let prepare = || {
        domain
            .queue_pair_builder(&completions)
            .depth(8, 8)
            .create_reliable()
            .expect("room")
    };
    let prepared = (0..QUEUE_PAIRS).map(|_| prepare()).collect();
    let host = Host {
        path,
        completions,
        memory,
        queue_pairs: Vec::new(),
    };
    (host, prepared)
}

fn connect(host: &mut Host, prepared: Vec<rocinante::PreparedQueuePair>, peers: &[Endpoint]) {
    let pairs = prepared.into_iter().zip(peers);
    let pairs = pairs.map(|(ours, &theirs)| ours.connect(theirs).expect("a peer"));
    host.queue_pairs = pairs.collect();
}

/// Each queue pair sends a different number of messages, to detect wrong pairs.
fn post(from: &Host, to: &Host) {
    let mut posted = 0;
    for round in 0..QUEUE_PAIRS {
        for queue_pair in &from.queue_pairs[round..] {
            let (there, here) = (to.memory.remote(0), from.memory.slice(LENGTH..2 * LENGTH));
            queue_pair
                .post_send(Request::read(there).data(here))
                .expect("room");
            let here = from.memory.slice(0..LENGTH);
            queue_pair
                .post_send(Request::write(there).data(here))
                .expect("room");
            posted += 2;
        }
    }
    for _ in 0..posted {
        let completion = from.completions.wait_for(DEADLINE).expect("it completes");
        assert_eq!(completion.status, Status::Success);
    }
}

/// The captures of both hosts, as if all queue pairs had started at PSN 0.
fn captures(left: &str, right: &str) -> (Ends, [Vec<u8>; 2]) {
    let (mut one, left) = open(left);
    let (mut other, right) = open(right);
    let endpoints = |prepared: &[rocinante::PreparedQueuePair]| -> Vec<Endpoint> {
        prepared
            .iter()
            .map(rocinante::PreparedQueuePair::endpoint)
            .collect()
    };
    let (ours, theirs) = (endpoints(&left), endpoints(&right));
    let ends = Ends::of(&ours, &theirs);
    connect(&mut one, left, &theirs);
    connect(&mut other, right, &ours);
    post(&one, &other);
    post(&other, &one);
    let paths = [one.path.clone(), other.path.clone()];
    drop((one, other));
    let files = paths.map(|path| {
        let file = std::fs::read(path).expect("the capture is there");
        restarted(&file, &ends)
    });
    (ends, files)
}

fn restarted(file: &[u8], ends: &Ends) -> Vec<u8> {
    let mut reader = PcapNgReader::new(file).expect("a capture");
    let section = reader.section().clone();
    let mut writer = PcapNgWriter::with_section_header(Vec::new(), section).expect("memory");
    while let Some(block) = reader.next_block() {
        let mut block = block.expect("a block").into_owned();
        if let Block::EnhancedPacket(packet) = &mut block {
            ends.restart(packet.data.to_mut());
        }
        writer.write_block(&block).expect("memory");
    }
    writer.into_inner()
}

/// The capture that tcpdump would write at one end.
fn plain(file: &[u8]) -> Vec<u8> {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    let mut reader = PcapNgReader::new(file).expect("a capture");
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a block") {
            let length = packet.data.len() as u32;
            let packet = PcapPacket::new(packet.timestamp, length, &packet.data);
            writer.write_packet(&packet).expect("memory");
        }
    }
    writer.into_writer()
}

fn comments(file: &[u8]) -> usize {
    let mut reader = PcapNgReader::new(file).expect("a capture");
    let mut count = 0;
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a block") {
            let is_comment = |option: &EnhancedPacketOption<'_>| {
                matches!(option, EnhancedPacketOption::Comment(_))
            };
            count += packet.options.iter().filter(|it| is_comment(it)).count();
        }
    }
    count
}

/// Asserts that each connection has the right queue pairs, and that there are no anomalies but those of a busy machine, on
/// which a response comes late and its request is sent again.
fn assert_right_pairs(analysis: &Analysis, ends: &Ends, paired_by: Pairing) {
    let mut anomalies = analysis.anomalies.iter();
    let unexpected = anomalies.find(|it| it.kind != AnomalyKind::TimedOut);
    assert!(unexpected.is_none(), "{unexpected:?}");
    assert_eq!(analysis.connections.len(), QUEUE_PAIRS);
    for connection in &analysis.connections {
        assert_eq!(connection.paired_by, paired_by);
        let numbers = connection.ends.map(|end| {
            let queue_pair = end.queue_pair.expect("it is named");
            analysis[queue_pair].number
        });
        assert_eq!(ends.peer[&numbers[0]], numbers[1]);
    }
}

#[test]
fn comments_distinguish_queue_pairs_with_the_same_first_psn() {
    let (ends, files) = captures("127.58.7.1", "127.58.7.2");
    for file in &files {
        assert!(comments(file) > 0);
        let analysis = Analysis::read(file.as_slice()).expect("a capture");
        assert_right_pairs(&analysis, &ends, Pairing::Comment);
    }
}

#[test]
fn responses_distinguish_queue_pairs_with_the_same_first_psn() {
    let (ends, files) = captures("127.58.8.1", "127.58.8.2");
    for file in &files {
        let analysis = Analysis::read(plain(file).as_slice()).expect("a capture");
        assert_right_pairs(&analysis, &ends, Pairing::SequenceNumbers);
    }
}

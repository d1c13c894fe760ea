//! The packets of WRITEs of 64 KiB over the same sockets, but without a device: no engine over sockets can be faster.
//!
//! The first row only sends and receives. In the second one each end also copies each payload and computes each ICRC, which a
//! device can't avoid: its memory may change while packets are built, and a damaged packet must not reach it.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Instant;

use net::socket::{Inbox, Receiver, Sender};
use wire::{IcrcChecker, IcrcGenerator, ROCE_PORT, Route};

use crate::bandwidth::tcp;
use crate::peer::Peer;
use crate::spread::in_turn;

const OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 61, 0, 11));
const THEIRS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 61, 0, 12));

const MESSAGE: usize = 64 << 10;
const MESSAGES: usize = 4096;
const OUTSTANDING: usize = 16;
const ROUNDS: usize = 7;

/// The headers of the first packet of a WRITE, and of others.
const FIRST_HEADERS: usize = 28;
const HEADERS: usize = 12;
const ICRC: usize = 4;
const ACKNOWLEDGEMENT: usize = 20;

/// What one send may contain.
const MAX_BYTES: usize = 65_000;
const MAX_PACKETS: usize = 64;

pub(crate) fn run(peer: &mut Peer) {
    println!("packets of 64 KiB WRITEs over bare sockets, two processes: GB/s, median (min-max)");
    println!("{:>24}  {:>25}  {:>25}  ratio", "", "packets", "TCP");
    for mtu in [4096, 1024] {
        for (name, work) in [("bare", 0), ("copies and ICRC", 1)] {
            let peer = RefCell::new(&mut *peer);
            let ours = || packets(&mut peer.borrow_mut(), mtu, work);
            let theirs = || tcp(&mut peer.borrow_mut(), MESSAGE);
            let (ours, theirs) = in_turn(ROUNDS, ours, theirs);
            let ratio = ours.median / theirs.median;
            println!("{name:>15}, MTU {mtu}  {ours}  {theirs}  {ratio:5.2}");
        }
    }
    println!();
}

/// The sockets of one end, and what it does with payloads.
struct Bare {
    sender: Sender,
    receiver: Receiver,
    inbox: Inbox,
    route: Route,
    memory: Vec<u8>,
    works: bool,
}

impl Bare {
    fn open(here: IpAddr, there: IpAddr, work: usize) -> Self {
        let sender = Sender::bind(here).expect("a loopback address");
        Self {
            route: Route::new(sender.flow_to(there)),
            sender,
            receiver: Receiver::bind((here, ROCE_PORT).into()).expect("a free address"),
            inbox: Inbox::default(),
            memory: vec![7; MESSAGE],
            works: work != 0,
        }
    }

    fn send(&self, segment_size: usize, bytes: &mut [u8]) {
        let sent = self.sender.send(&self.route, segment_size, bytes);
        sent.expect("a large send buffer");
    }
}

fn packets(peer: &mut Peer, mtu: usize, work: usize) -> f64 {
    let mut end = Bare::open(OURS, THEIRS, work);
    peer.be(&format!("packets {mtu} {work}"));
    let mut seal = IcrcGenerator::new();
    let (mut sent, mut done) = (0, 0);
    let mut buffer = vec![0; MAX_BYTES];
    let start = Instant::now();
    while done < MESSAGES {
        if sent < MESSAGES && sent - done < OUTSTANDING {
            send_message(&end, mtu, &mut buffer, &mut seal);
            sent += 1;
        }
        let batches = end.receiver.receive(&mut end.inbox).expect("a socket");
        done += batches.map(|batch| batch.packets().count()).sum::<usize>();
    }
    (MESSAGES * MESSAGE) as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// The first packet by itself, because the kernel cuts only packets of one size.
fn send_message(end: &Bare, mtu: usize, buffer: &mut [u8], seal: &mut IcrcGenerator) {
    let (first, rest) = end.memory.split_at(mtu);
    send_packets(end, FIRST_HEADERS, mtu, first, buffer, seal);
    let in_one_send = (MAX_BYTES / (HEADERS + mtu + ICRC)).min(MAX_PACKETS);
    for payload in rest.chunks(in_one_send * mtu) {
        send_packets(end, HEADERS, mtu, payload, buffer, seal);
    }
}

fn send_packets(
    end: &Bare,
    headers: usize,
    mtu: usize,
    payload: &[u8],
    buffer: &mut [u8],
    seal: &mut IcrcGenerator,
) {
    let size = headers + mtu + ICRC;
    let bytes = &mut buffer[..payload.len() / mtu * size];
    if end.works {
        for (packet, payload) in bytes.chunks_mut(size).zip(payload.chunks(mtu)) {
            packet[headers..headers + mtu].copy_from_slice(payload);
        }
        seal.fill(&end.route.flow, size, bytes);
    }
    end.send(size, bytes);
}

/// The other process. It answers each message.
pub(crate) fn receive(mtu: usize, work: usize) {
    let mut end = Bare::open(THEIRS, OURS, work);
    println!("ready");
    let mut checker = IcrcChecker::new();
    let message = MESSAGE / mtu;
    let (mut packets, mut answered) = (0, 0);
    while answered < MESSAGES {
        let batches = end.receiver.receive(&mut end.inbox).expect("a socket");
        for batch in batches {
            let flow = batch.route.flow;
            for packet in batch.packets() {
                if end.works {
                    checker.check(&flow, packet).expect("nobody damages it");
                    let place = packets % message * mtu;
                    let payload = &packet[packet.len() - ICRC - mtu..packet.len() - ICRC];
                    end.memory[place..place + mtu].copy_from_slice(payload);
                }
                packets += 1;
            }
        }
        while packets / message > answered {
            end.send(ACKNOWLEDGEMENT, &mut [0; ACKNOWLEDGEMENT]);
            answered += 1;
        }
    }
}

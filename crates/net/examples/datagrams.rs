//! What a packet costs through real sockets: `cargo run --release -p rocinante-net --example datagrams`.
//!
//! One thread sends a batch over the loopback interface and receives it. Everything is measured in
//! one run, because only ratios can be compared between machines.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use net::sharing::Member;
use net::socket::{Inbox, Receiver, Sender};
use wire::{IcrcChecker, Opcode, PacketHead, Psn, Qpn, ROCE_PORT, Route, icrc};

const TIMEOUT: Duration = Duration::from_millis(300);

fn main() {
    let address = IpAddr::from([127, 41, 2, 1]);
    let sender = Sender::bind(address).expect("a sender");
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10}",
        "payload", "segmented", "resealed", "one by one", "steered"
    );
    for payload in [16, 256, 1024, 4096] {
        let packets = (65_000 / (payload + 16)).min(64);
        let alone = Receiver::bind(SocketAddr::new(address, ROCE_PORT)).expect("a receiver");
        let mut row = Row::new(&sender, address, payload, packets);
        let segmented = row.measure(&alone);
        sender.set_segmentation(false);
        let resealed = row.measure(&alone);
        row.packets = 1;
        let one_by_one = row.measure(&alone);
        sender.set_segmentation(true);
        row.packets = packets;
        drop(alone);
        let mut members = [(); 8].map(|()| Member::join(address).expect("a member"));
        // It learns its place.
        let learned = members[7].receive(Instant::now(), &mut row.inbox, |_| {});
        learned.expect("a working socket");
        row.destination = members[7].qpn_range().start;
        let steered = row.measure(members[7].receiver());
        println!(
            "{payload:>8} {segmented:>10.1} {resealed:>10.1} {one_by_one:>10.1} {steered:>10.1}"
        );
    }
    println!("nanoseconds per packet, sent, received and its ICRC verified");
    forwarding(address);
}

struct Row<'s> {
    sender: &'s Sender,
    route: Route,
    payload: usize,
    packets: usize,
    destination: u32,
    inbox: Inbox,
    checker: IcrcChecker,
}

impl<'s> Row<'s> {
    fn new(sender: &'s Sender, address: IpAddr, payload: usize, packets: usize) -> Self {
        Self {
            sender,
            route: Route::new(sender.flow_to(address)),
            payload,
            packets,
            destination: 0x11,
            inbox: Inbox::default(),
            checker: IcrcChecker::new(),
        }
    }

    fn batch(&self) -> (usize, Vec<u8>) {
        let mut bytes = Vec::new();
        for number in 0..self.packets as u16 {
            let start = bytes.len();
            let destination = Qpn::new(self.destination);
            let head = PacketHead::new(Opcode::UcSendOnly, destination, Psn::ZERO);
            bytes.extend_from_slice(head.bytes());
            bytes.resize(bytes.len() + self.payload, 0);
            let seal = icrc::checksum(&self.route.flow, number, &bytes[start..]);
            bytes.extend(seal);
        }
        (bytes.len() / self.packets, bytes)
    }

    fn measure(&mut self, receiver: &Receiver) -> f64 {
        let (size, mut bytes) = self.batch();
        let begin = Instant::now();
        let mut received = 0;
        while begin.elapsed() < TIMEOUT {
            let sent = self.sender.send(&self.route, size, &mut bytes);
            sent.expect("the loopback interface takes everything");
            let mut missing = self.packets;
            while missing > 0 {
                missing -= self.receive(receiver);
            }
            received += self.packets;
        }
        begin.elapsed().as_nanos() as f64 / received as f64
    }

    fn receive(&mut self, receiver: &Receiver) -> usize {
        let batches = receiver.receive(&mut self.inbox).expect("a working socket");
        let packets = batches.flat_map(|batch| {
            let route = batch.route;
            batch.packets().map(move |packet| (route, packet))
        });
        packets
            .inspect(|(route, packet)| {
                let checked = self.checker.check(&route.flow, packet);
                checked.expect("an intact packet");
            })
            .count()
    }
}

/// What it costs to hand a packet to another member.
fn forwarding(address: IpAddr) {
    let [mut first, mut second] = [(); 2].map(|()| Member::join(address).expect("a member"));
    let route = Route::new(first.sender().flow_to(address));
    let packet = [0; 64];
    let mut inbox = Inbox::new(1);
    let begin = Instant::now();
    let mut taken = 0_u32;
    while begin.elapsed() < TIMEOUT {
        for _ in 0..8 {
            first.forward_to(second.block(), &route, &packet);
        }
        for _ in 0..16 {
            let count = second.receive(begin, &mut inbox, |_| {});
            taken += count.expect("a working mailbox") as u32;
        }
    }
    let each = begin.elapsed().as_nanos() as f64 / f64::from(taken);
    println!("{each:.0} ns for a packet that one member forwards to another one, which polls");
}

//! Packets for members, as a peer on the same machine sends them.

use std::net::IpAddr;
use std::process;

use net::Envelope;
use net::socket::Sender;
use wire::{Flow, Opcode, PacketHead, Psn, Qpn, icrc};

/// An address for one test of this run: another run at the same time has others.
pub(crate) fn address(test: u8) -> IpAddr {
    let [low, high, ..] = process::id().to_le_bytes();
    IpAddr::from([127, 64 | high & 63, low, test])
}

/// A packet for a queue pair, sealed for an identification.
pub(crate) fn packet(flow: &Flow, identification: u16, destination: u32) -> Vec<u8> {
    let head = PacketHead::new(Opcode::UcSendOnly, Qpn::new(destination), Psn::ZERO);
    let mut packet = [head.bytes(), b"something"].concat();
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet.extend(icrc::checksum(flow, identification, &packet));
    packet
}

/// Someone who sends to the members of an address.
pub(crate) struct Peer {
    sender: Sender,
    pub(crate) envelope: Envelope,
}

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Self {
        let sender = Sender::bind("127.0.0.1".parse().unwrap()).unwrap();
        let envelope = Envelope::new(sender.flow_to(address));
        Self { sender, envelope }
    }

    /// One packet for each queue pair, all in one segmented send.
    pub(crate) fn send(&self, destinations: &[u32]) {
        let packets = destinations.iter().zip(0..);
        let packets = packets.map(|(to, number)| packet(&self.envelope.flow, number, *to));
        let mut bytes: Vec<u8> = packets.flatten().collect();
        let size = bytes.len() / destinations.len();
        self.sender.send(&self.envelope, size, &mut bytes).unwrap();
    }
}

//! Packets for members, as a peer on the same machine sends them.

use std::fs;
use std::net::IpAddr;
use std::process;

use net::sharing::RuntimeDirectory;
use net::socket::Sender;
use wire::cm::Message;
use wire::header::Deth;
use wire::{Flow, Opcode, PacketHead, Psn, Qpn, QueueKey, Route, icrc};

/// An address for one test of this run: another run at the same time has others.
pub(crate) struct Site {
    pub(crate) address: IpAddr,
}

impl Site {
    pub(crate) fn new(test: u8) -> Self {
        let [low, high, ..] = process::id().to_le_bytes();
        let address = IpAddr::from([127, 64 | high & 63, low, test]);
        Self { address }
    }
}

impl Drop for Site {
    /// Removes the registry of an address that is not used again.
    fn drop(&mut self) {
        let directory = RuntimeDirectory::of_user().unwrap();
        let prefix = format!("{}@", self.address);
        for file in fs::read_dir(directory.path()).unwrap().flatten() {
            if file.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// A packet for a queue pair, sealed for an identification.
pub(crate) fn packet(flow: &Flow, identification: u16, destination: u32) -> Vec<u8> {
    let head = PacketHead::new(Opcode::UcSendOnly, Qpn::new(destination), Psn::ZERO);
    let mut packet = [head.bytes(), b"something"].concat();
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet.extend(icrc::checksum(flow, identification, &packet));
    packet
}

/// A sender to the members of an address.
pub(crate) struct Peer {
    sender: Sender,
    pub(crate) route: Route,
}

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Self {
        let sender = Sender::bind("127.0.0.1".parse().unwrap()).unwrap();
        let route = Route::new(sender.flow_to(address));
        Self { sender, route }
    }

    /// A message of the connection manager, to queue pair 1.
    pub(crate) fn send_message(&self, message: &Message) {
        let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::ZERO)
            .push(&Deth::new(QueueKey::GSI, Qpn::GSI));
        let mut packet = [head.bytes(), &message.emit(1)[..]].concat();
        packet.extend(icrc::checksum(&self.route.flow, 0, &packet));
        let length = packet.len();
        self.sender.send(&self.route, length, &mut packet).unwrap();
    }

    /// One packet for each queue pair, all in one segmented send.
    pub(crate) fn send(&self, destinations: &[u32]) {
        let packets = destinations.iter().zip(0..);
        let packets = packets.map(|(to, number)| packet(&self.route.flow, number, *to));
        let mut bytes: Vec<u8> = packets.flatten().collect();
        let size = bytes.len() / destinations.len();
        self.sender.send(&self.route, size, &mut bytes).unwrap();
    }
}

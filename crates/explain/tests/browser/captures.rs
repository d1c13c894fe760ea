//! Builds captures for these tests.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness};
use wire::cm::Message;
use wire::{
    Aeth, Datagram, Deth, Flow, Fragmentation, NakCode, Opcode, PacketHead, Psn, Qpn, QueueKey,
    ROCE_PORT, Syndrome, icrc,
};

pub(crate) const CLIENT: End = End {
    address: [10, 0, 0, 1],
    number: Qpn::new(0x11),
};
pub(crate) const SERVER: End = End {
    address: [10, 0, 0, 2],
    number: Qpn::new(0x22),
};

/// The time between two consecutive packets.
const STEP: Duration = Duration::from_micros(3);

/// One end of the connection.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct End {
    address: [u8; 4],
    pub(crate) number: Qpn,
}

impl End {
    fn peer(self) -> End {
        if self == CLIENT { SERVER } else { CLIENT }
    }
}

/// A capture that is being written.
pub(crate) struct CaptureBuilder {
    file: PcapNgWriter<Vec<u8>>,
    now: Duration,
}

impl CaptureBuilder {
    pub(crate) fn new() -> Self {
        let mut file = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little)
            .expect("writing to memory succeeds");
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfTsResol(9)],
        };
        file.write_pcapng_block(interface)
            .expect("writing to memory succeeds");
        let now = Duration::from_secs(1_700_000_000);
        CaptureBuilder { file, now }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.file.into_inner()
    }

    pub(crate) fn pause(&mut self, time: Duration) {
        self.now += time;
    }

    /// A packet of a message that the client sends.
    pub(crate) fn sends(&mut self, opcode: Opcode, psn: u32, data: &[u8]) {
        let ends = matches!(opcode, Opcode::RcSendLast | Opcode::RcSendOnly);
        let head = PacketHead::new(opcode, SERVER.number, Psn::new(psn)).acknowledge(ends);
        self.captures(CLIENT, &head, data, None);
    }

    /// A response of the server.
    pub(crate) fn responds(&mut self, syndrome: Syndrome, psn: u32) {
        let head = PacketHead::new(Opcode::RcAcknowledge, CLIENT.number, Psn::new(psn));
        self.captures(SERVER, &head.push(&Aeth::new(syndrome, psn)), &[], None);
    }

    /// A message of the connection manager, with a comment of the capture.
    pub(crate) fn manages(&mut self, from: End, message: Message, comment: Option<&str>) {
        let deth = Deth::new(QueueKey::new(0x8001_0000), Qpn::GSI);
        let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0)).push(&deth);
        self.captures(from, &head, &message.emit(1), comment);
    }

    pub(crate) fn captures(
        &mut self,
        from: End,
        head: &PacketHead,
        data: &[u8],
        comment: Option<&str>,
    ) {
        let flow = Flow {
            source: IpAddr::from(from.address),
            destination: IpAddr::from(from.peer().address),
            source_port: 0xc000,
            destination_port: ROCE_PORT,
        };
        let mut payload = [head.bytes(), data].concat();
        payload.extend(icrc::checksum(&flow, 0, &payload));
        let datagram = Datagram {
            flow,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            fragmentation: Fragmentation::NONE,
            payload: &payload,
        };
        let mut packet = Vec::new();
        datagram.emit(&mut packet);
        self.write(&packet, comment);
    }

    fn write(&mut self, packet: &[u8], comment: Option<&str>) {
        let comment = comment.map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text)));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: self.now,
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options: comment.into_iter().collect(),
        };
        self.file
            .write_pcapng_block(block)
            .expect("writing to memory succeeds");
        self.now += STEP;
    }
}

/// Messages of ten packets, each with its acknowledgement. Every hundredth message loses a packet
/// and is retransmitted from there.
pub(crate) fn many_packets(at_least: usize) -> Vec<u8> {
    const PARTS: u32 = 10;
    let mut capture = CaptureBuilder::new();
    let (mut written, mut psn) = (0, 0);
    for message in 0.. {
        if written >= at_least {
            break;
        }
        let parts: Vec<_> = (0..PARTS)
            .map(|part| (opcode_of(part, PARTS), psn + part))
            .collect();
        parts
            .iter()
            .for_each(|&(opcode, psn)| capture.sends(opcode, psn, &[7; 256]));
        written += parts.len() + 1;
        if message % 100 == 99 {
            capture.responds(Syndrome::Negative(NakCode::SequenceError), psn + 4);
            parts[4..]
                .iter()
                .for_each(|&(opcode, psn)| capture.sends(opcode, psn, &[7; 256]));
            written += parts.len() - 4 + 1;
        }
        capture.responds(Syndrome::Acknowledge { credits: None }, psn + PARTS - 1);
        capture.pause(Duration::from_micros(20));
        psn += PARTS;
    }
    capture.bytes()
}

fn opcode_of(part: u32, parts: u32) -> Opcode {
    match part {
        0 => Opcode::RcSendFirst,
        last if last == parts - 1 => Opcode::RcSendLast,
        _ => Opcode::RcSendMiddle,
    }
}

/// A capture in which many hosts send a message each.
pub(crate) fn many_hosts(count: u8) -> Vec<u8> {
    let mut capture = CaptureBuilder::new();
    for host in 1..=count {
        let from = End {
            address: [10, 0, host, 1],
            number: Qpn::new(0x100 + u32::from(host)),
        };
        let head = PacketHead::new(Opcode::RcSendOnly, SERVER.number, Psn::new(7));
        capture.captures(from, &head, b"hi there", None);
    }
    capture.bytes()
}

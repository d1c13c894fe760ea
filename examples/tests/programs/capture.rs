//! What a capture shows.

use std::fs::File;
use std::path::Path;

use pcap_file::pcapng::{Block, PcapNgReader};
use wire::{Aeth, NakCode, Opcode, Packet, Syndrome};

/// The opcodes and answers in a capture.
pub(crate) struct Capture(Vec<(Opcode, Option<Syndrome>)>);

impl Capture {
    pub(crate) fn read(path: &Path) -> Self {
        const IP_AND_UDP: usize = 28;
        let file = File::open(path).expect("the program leaves a capture");
        let mut reader = PcapNgReader::new(file).expect("a capture");
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(block) = block.expect("a whole block") {
                let packet = Packet::parse(&block.data[IP_AND_UDP..]).expect("a packet");
                let syndrome = packet.aeth().map(Aeth::syndrome);
                packets.push((packet.opcode, syndrome));
            }
        }
        Self(packets)
    }

    pub(crate) fn has(&self, opcode: Opcode) -> bool {
        self.0.iter().any(|(found, _)| *found == opcode)
    }

    pub(crate) fn refuses(&self, code: NakCode) -> bool {
        self.answers().any(|it| it == Syndrome::Negative(code))
    }

    /// How often the receiver was not ready.
    pub(crate) fn receiver_not_ready(&self) -> usize {
        self.answers()
            .filter(|it| matches!(it, Syndrome::ReceiverNotReady(_)))
            .count()
    }

    fn answers(&self) -> impl Iterator<Item = Syndrome> {
        self.0.iter().filter_map(|(_, syndrome)| *syndrome)
    }
}

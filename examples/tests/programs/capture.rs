//! What a capture shows.

use std::fs::File;
use std::path::Path;

use pcap_file::pcapng::{Block, PcapNgReader};
use wire::{Aeth, NakCode, Opcode, Packet, Syndrome};

/// The opcodes and syndromes in a capture.
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

    pub(crate) fn rejects(&self, code: NakCode) -> bool {
        self.syndromes().any(|it| it == Syndrome::Negative(code))
    }

    /// How often the requester retried after an RNR NAK. A SEND that is retransmitted because a response is
    /// late, as on a busy machine, gets an RNR NAK of its own and does not count.
    pub(crate) fn retries_after_rnr(&self) -> usize {
        let is_retry = |pair: &&[(Opcode, Option<Syndrome>)]| {
            matches!(pair[0].1, Some(Syndrome::ReceiverNotReady(_)))
                && pair[1].0 == Opcode::RcSendOnly
        };
        self.0.windows(2).filter(is_retry).count()
    }

    fn syndromes(&self) -> impl Iterator<Item = Syndrome> {
        self.0.iter().filter_map(|(_, syndrome)| *syndrome)
    }
}

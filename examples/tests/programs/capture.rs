//! What a capture shows.

use std::fs::File;
use std::path::Path;

use pcap_file::pcapng::{Block, PcapNgReader};
use wire::cm::Message;
use wire::{Aeth, NakCode, Opcode, Packet, Syndrome, mad};

/// What a capture contains.
pub(crate) struct Capture {
    /// The opcodes and syndromes of its packets.
    packets: Vec<(Opcode, Option<Syndrome>)>,
    /// The messages of the connection manager.
    messages: Vec<Message>,
}

impl Capture {
    pub(crate) fn read(path: &Path) -> Self {
        const IP_AND_UDP: usize = 28;
        let file = File::open(path).expect("the program leaves a capture");
        let mut reader = PcapNgReader::new(file).expect("a capture");
        let (mut packets, mut messages) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(block) = block.expect("a whole block") {
                let packet = Packet::parse(&block.data[IP_AND_UDP..]).expect("a packet");
                let syndrome = packet.aeth().map(Aeth::syndrome);
                packets.push((packet.opcode, syndrome));
                let datagram = <[u8; mad::LENGTH]>::try_from(&*packet.payload.to_vec());
                let message = datagram.ok().and_then(|it| Message::parse(&it).ok());
                messages.extend(message.map(|(_, message)| message));
            }
        }
        Self { packets, messages }
    }

    pub(crate) fn has_disconnect_reply(&self) -> bool {
        let is_reply = |message: &Message| matches!(message, Message::DisconnectReply(_));
        self.messages.iter().any(is_reply)
    }

    pub(crate) fn has(&self, opcode: Opcode) -> bool {
        self.packets.iter().any(|(found, _)| *found == opcode)
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
        self.packets.windows(2).filter(is_retry).count()
    }

    fn syndromes(&self) -> impl Iterator<Item = Syndrome> {
        self.packets.iter().filter_map(|(_, syndrome)| *syndrome)
    }
}

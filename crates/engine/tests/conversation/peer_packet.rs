//! What a peer says: packets as another implementation would send them.

use wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, ExtensionHeader, Feth, Flow, FlushPlacement, FlushRange,
    Ieth, Immediate, Key, NakCode, Opcode, PacketHead, PartitionKey, Psn, Qpn, QueueKey, Reth,
    RnrTimer, Syndrome, Xrceth, icrc,
};

/// A packet to the device, which is addressed and sealed when it is said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    head: PacketHead,
    payload: Vec<u8>,
    destination: Option<Qpn>,
}

impl Said {
    /// A packet without extension headers.
    pub(crate) fn new(opcode: Opcode, psn: Psn, payload: &[u8]) -> Self {
        Self {
            head: PacketHead::new(opcode, Qpn::new(0), psn),
            payload: payload.to_vec(),
            destination: None,
        }
    }

    /// With the next extension header.
    pub(crate) fn push<T: ExtensionHeader>(mut self, extension: &T) -> Self {
        self.head = self.head.push(extension);
        self
    }

    /// Asks for an acknowledgement.
    pub(crate) fn ask(mut self) -> Self {
        self.head = self.head.acknowledge(true);
        self
    }

    /// Solicits an event.
    pub(crate) fn solicited(mut self) -> Self {
        self.head = self.head.solicited(true);
        self
    }

    /// Of another partition.
    pub(crate) fn partition(mut self, key: u16) -> Self {
        self.head = self.head.partition(PartitionKey::new(key));
        self
    }

    /// To this queue pair, whoever listens.
    pub(crate) fn to(mut self, destination: Qpn) -> Self {
        self.destination = Some(destination);
        self
    }

    /// The datagram with its seal.
    pub(crate) fn sealed(self, destination: Qpn, flow: &Flow) -> Vec<u8> {
        let pad = self.payload.len().wrapping_neg() % 4;
        let head = self.head.pad(pad as u8);
        let mut bytes = [head.bytes(), &self.payload, &[0; 3][..pad]].concat();
        let destination = self.destination.unwrap_or(destination);
        bytes[5..8].copy_from_slice(&destination.value().to_be_bytes()[1..]);
        reseal(&mut bytes, flow);
        bytes
    }
}

/// Appends the seal of a packet with an arbitrary IP identification.
pub(crate) fn reseal(bytes: &mut Vec<u8>, flow: &Flow) {
    let seal = icrc::checksum(flow, 0x4242, bytes);
    bytes.extend_from_slice(&seal);
}

pub(crate) fn send_only(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcSendOnly, psn, payload)
}

pub(crate) fn send_first(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcSendFirst, psn, payload)
}

pub(crate) fn send_middle(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcSendMiddle, psn, payload)
}

pub(crate) fn send_last(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcSendLast, psn, payload)
}

pub(crate) fn send_immediate(psn: Psn, payload: &[u8], bytes: [u8; 4]) -> Said {
    Said::new(Opcode::RcSendOnlyImmediate, psn, payload).push(&Immediate::new(bytes))
}

pub(crate) fn send_invalidate(psn: Psn, payload: &[u8], key: Key) -> Said {
    Said::new(Opcode::RcSendOnlyInvalidate, psn, payload).push(&Ieth::new(key))
}

pub(crate) fn write_only(psn: Psn, reth: Reth, payload: &[u8]) -> Said {
    Said::new(Opcode::RcWriteOnly, psn, payload).push(&reth)
}

pub(crate) fn write_first(psn: Psn, reth: Reth, payload: &[u8]) -> Said {
    Said::new(Opcode::RcWriteFirst, psn, payload).push(&reth)
}

pub(crate) fn write_middle(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcWriteMiddle, psn, payload)
}

pub(crate) fn write_last(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcWriteLast, psn, payload)
}

pub(crate) fn write_immediate(psn: Psn, reth: Reth, payload: &[u8], bytes: [u8; 4]) -> Said {
    Said::new(Opcode::RcWriteOnlyImmediate, psn, payload)
        .push(&reth)
        .push(&Immediate::new(bytes))
}

pub(crate) fn write_last_immediate(psn: Psn, payload: &[u8], bytes: [u8; 4]) -> Said {
    Said::new(Opcode::RcWriteLastImmediate, psn, payload).push(&Immediate::new(bytes))
}

pub(crate) fn read_request(psn: Psn, reth: Reth) -> Said {
    Said::new(Opcode::RcReadRequest, psn, &[]).push(&reth)
}

pub(crate) fn fetch_add(psn: Psn, address: u64, key: Key, add: u64) -> Said {
    Said::new(Opcode::RcFetchAdd, psn, &[]).push(&AtomicEth::new(address, key, add, 0))
}

pub(crate) fn compare_swap(psn: Psn, address: u64, key: Key, compare: u64, swap: u64) -> Said {
    Said::new(Opcode::RcCompareSwap, psn, &[]).push(&AtomicEth::new(address, key, swap, compare))
}

pub(crate) fn atomic_write(psn: Psn, address: u64, key: Key, word: &[u8]) -> Said {
    Said::new(Opcode::RcAtomicWrite, psn, word).push(&Reth::new(address, key, word.len() as u32))
}

pub(crate) fn flush(psn: Psn, placement: FlushPlacement, range: FlushRange, reth: Reth) -> Said {
    Said::new(Opcode::RcFlush, psn, &[])
        .push(&Feth::new(placement, range))
        .push(&reth)
}

/// An acknowledgement without a word about credits.
pub(crate) fn ack(psn: Psn) -> Said {
    verdict(psn, Syndrome::UNLIMITED, 0)
}

/// An acknowledgement after `messages` messages, with so many receives left.
pub(crate) fn ack_with_credits(psn: Psn, messages: u32, credits: u32) -> Said {
    let credits = Some(credits);
    verdict(psn, Syndrome::Acknowledge { credits }, messages)
}

pub(crate) fn nak(psn: Psn, code: NakCode) -> Said {
    verdict(psn, Syndrome::Negative(code), 0)
}

pub(crate) fn nak_sequence(psn: Psn) -> Said {
    nak(psn, NakCode::SequenceError)
}

/// The RNR NAK with the timer of this code.
pub(crate) fn not_ready(psn: Psn, code: u8) -> Said {
    let timer = RnrTimer::new(code).expect("a code");
    verdict(psn, Syndrome::ReceiverNotReady(timer), 0)
}

pub(crate) fn verdict(psn: Psn, syndrome: Syndrome, messages: u32) -> Said {
    Said::new(Opcode::RcAcknowledge, psn, &[]).push(&Aeth::new(syndrome, messages))
}

pub(crate) fn response_only(psn: Psn, payload: &[u8]) -> Said {
    response(Opcode::RcReadResponseOnly, psn, payload)
}

pub(crate) fn response_first(psn: Psn, payload: &[u8]) -> Said {
    response(Opcode::RcReadResponseFirst, psn, payload)
}

pub(crate) fn response_middle(psn: Psn, payload: &[u8]) -> Said {
    Said::new(Opcode::RcReadResponseMiddle, psn, payload)
}

pub(crate) fn response_last(psn: Psn, payload: &[u8]) -> Said {
    response(Opcode::RcReadResponseLast, psn, payload)
}

fn response(opcode: Opcode, psn: Psn, payload: &[u8]) -> Said {
    Said::new(opcode, psn, payload).push(&Aeth::new(Syndrome::UNLIMITED, 0))
}

pub(crate) fn atomic_ack(psn: Psn, original: u64) -> Said {
    Said::new(Opcode::RcAtomicAcknowledge, psn, &[])
        .push(&Aeth::new(Syndrome::UNLIMITED, 0))
        .push(&AtomicAckEth::new(original))
}

pub(crate) fn datagram(psn: Psn, queue_key: u32, source: Qpn, payload: &[u8]) -> Said {
    Said::new(Opcode::UdSendOnly, psn, payload).push(&Deth::new(QueueKey::new(queue_key), source))
}

pub(crate) fn xrc_send_only(psn: Psn, queue: Qpn, payload: &[u8]) -> Said {
    Said::new(Opcode::XrcSendOnly, psn, payload).push(&Xrceth::new(queue))
}

//! Packets of the peer, as another implementation would send them.

use wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, ExtensionHeader, Feth, Flow, FlushPlacement, FlushRange,
    HeldPackets, Ieth, Immediate, Key, NakCode, Opcode, PacketHead, PartitionKey, Psn, Qpn,
    QueueKey, Reth, RnrTimer, Srqn, Syndrome, Xrceth, icrc,
};

/// A packet to the device. Its destination and ICRC are added when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct PeerPacket {
    head: PacketHead,
    payload: Vec<u8>,
    destination: Option<Qpn>,
}

impl PeerPacket {
    /// A packet without extension headers.
    pub(crate) fn new(opcode: Opcode, psn: Psn, payload: &[u8]) -> Self {
        Self {
            head: PacketHead::new(opcode, Qpn::new(0), psn),
            payload: payload.to_vec(),
            destination: None,
        }
    }

    /// Adds the next extension header.
    pub(crate) fn push<T: ExtensionHeader>(mut self, extension: &T) -> Self {
        self.head = self.head.push(extension);
        self
    }

    /// Requests an acknowledgement (AckReq).
    pub(crate) fn ackreq(mut self) -> Self {
        self.head = self.head.acknowledge(true);
        self
    }

    /// Requests a solicited event.
    pub(crate) fn solicited(mut self) -> Self {
        self.head = self.head.solicited(true);
        self
    }

    /// Lists these packets as held: the distances from the missing one at which ranges of them start and end.
    pub(crate) fn holding<const N: usize>(mut self, ranges: [(u32, u32); N]) -> Self {
        HeldPackets::new(ranges.map(|(start, end)| start..end))
            .emit(|part| self.payload.extend_from_slice(part));
        self
    }

    /// Sets another P_Key.
    pub(crate) fn partition(mut self, key: u16) -> Self {
        self.head = self.head.partition(PartitionKey::new(key));
        self
    }

    /// Sets another destination queue pair.
    pub(crate) fn to(mut self, destination: Qpn) -> Self {
        self.destination = Some(destination);
        self
    }

    /// The datagram with its ICRC.
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

/// Appends the ICRC of a packet with an arbitrary IP identification.
pub(crate) fn reseal(bytes: &mut Vec<u8>, flow: &Flow) {
    let seal = icrc::checksum(flow, 0x4242, bytes);
    bytes.extend_from_slice(&seal);
}

pub(crate) fn send_only(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcSendOnly, psn, payload)
}

pub(crate) fn send_first(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcSendFirst, psn, payload)
}

pub(crate) fn send_middle(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcSendMiddle, psn, payload)
}

pub(crate) fn send_last(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcSendLast, psn, payload)
}

pub(crate) fn send_immediate(psn: Psn, payload: &[u8], bytes: [u8; 4]) -> PeerPacket {
    PeerPacket::new(Opcode::RcSendOnlyImmediate, psn, payload).push(&Immediate::new(bytes))
}

pub(crate) fn send_invalidate(psn: Psn, payload: &[u8], key: Key) -> PeerPacket {
    PeerPacket::new(Opcode::RcSendOnlyInvalidate, psn, payload).push(&Ieth::new(key))
}

pub(crate) fn write_only(psn: Psn, reth: Reth, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcWriteOnly, psn, payload).push(&reth)
}

pub(crate) fn write_first(psn: Psn, reth: Reth, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcWriteFirst, psn, payload).push(&reth)
}

pub(crate) fn write_middle(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcWriteMiddle, psn, payload)
}

pub(crate) fn write_last(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcWriteLast, psn, payload)
}

pub(crate) fn write_immediate(psn: Psn, reth: Reth, payload: &[u8], bytes: [u8; 4]) -> PeerPacket {
    PeerPacket::new(Opcode::RcWriteOnlyImmediate, psn, payload)
        .push(&reth)
        .push(&Immediate::new(bytes))
}

pub(crate) fn write_last_immediate(psn: Psn, payload: &[u8], bytes: [u8; 4]) -> PeerPacket {
    PeerPacket::new(Opcode::RcWriteLastImmediate, psn, payload).push(&Immediate::new(bytes))
}

pub(crate) fn read_request(psn: Psn, reth: Reth) -> PeerPacket {
    PeerPacket::new(Opcode::RcReadRequest, psn, &[]).push(&reth)
}

pub(crate) fn fetch_add(psn: Psn, address: u64, key: Key, add: u64) -> PeerPacket {
    PeerPacket::new(Opcode::RcFetchAdd, psn, &[]).push(&AtomicEth::new(address, key, add, 0))
}

pub(crate) fn compare_swap(
    psn: Psn,
    address: u64,
    key: Key,
    compare: u64,
    swap: u64,
) -> PeerPacket {
    PeerPacket::new(Opcode::RcCompareSwap, psn, &[])
        .push(&AtomicEth::new(address, key, swap, compare))
}

pub(crate) fn atomic_write(psn: Psn, address: u64, key: Key, word: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcAtomicWrite, psn, word).push(&Reth::new(
        address,
        key,
        word.len() as u32,
    ))
}

pub(crate) fn flush(
    psn: Psn,
    placement: FlushPlacement,
    range: FlushRange,
    reth: Reth,
) -> PeerPacket {
    PeerPacket::new(Opcode::RcFlush, psn, &[])
        .push(&Feth::new(placement, range))
        .push(&reth)
}

/// An acknowledgement without credits.
pub(crate) fn ack(psn: Psn) -> PeerPacket {
    acknowledgement(psn, Syndrome::UNLIMITED, 0)
}

/// An acknowledgement after `messages` messages, with this many credits.
pub(crate) fn ack_with_credits(psn: Psn, messages: u32, credits: u32) -> PeerPacket {
    let credits = Some(credits);
    acknowledgement(psn, Syndrome::Acknowledge { credits }, messages)
}

pub(crate) fn nak(psn: Psn, code: NakCode) -> PeerPacket {
    acknowledgement(psn, Syndrome::Negative(code), 0)
}

pub(crate) fn nak_sequence(psn: Psn) -> PeerPacket {
    nak(psn, NakCode::SequenceError)
}

/// An RNR NAK with this timer code.
pub(crate) fn rnr_nak(psn: Psn, code: u8) -> PeerPacket {
    let timer = RnrTimer::new(code).expect("the timer code is valid");
    acknowledgement(psn, Syndrome::ReceiverNotReady(timer), 0)
}

pub(crate) fn acknowledgement(psn: Psn, syndrome: Syndrome, messages: u32) -> PeerPacket {
    PeerPacket::new(Opcode::RcAcknowledge, psn, &[]).push(&Aeth::new(syndrome, messages))
}

pub(crate) fn response_only(psn: Psn, payload: &[u8]) -> PeerPacket {
    response(Opcode::RcReadResponseOnly, psn, payload)
}

pub(crate) fn response_first(psn: Psn, payload: &[u8]) -> PeerPacket {
    response(Opcode::RcReadResponseFirst, psn, payload)
}

pub(crate) fn response_middle(psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::RcReadResponseMiddle, psn, payload)
}

pub(crate) fn response_last(psn: Psn, payload: &[u8]) -> PeerPacket {
    response(Opcode::RcReadResponseLast, psn, payload)
}

fn response(opcode: Opcode, psn: Psn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(opcode, psn, payload).push(&Aeth::new(Syndrome::UNLIMITED, 0))
}

pub(crate) fn atomic_ack(psn: Psn, original: u64) -> PeerPacket {
    PeerPacket::new(Opcode::RcAtomicAcknowledge, psn, &[])
        .push(&Aeth::new(Syndrome::UNLIMITED, 0))
        .push(&AtomicAckEth::new(original))
}

pub(crate) fn datagram(psn: Psn, queue_key: u32, source: Qpn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::UdSendOnly, psn, payload)
        .push(&Deth::new(QueueKey::new(queue_key), source))
}

pub(crate) fn xrc_send_only(psn: Psn, queue: Srqn, payload: &[u8]) -> PeerPacket {
    PeerPacket::new(Opcode::XrcSendOnly, psn, payload).push(&Xrceth::new(queue))
}

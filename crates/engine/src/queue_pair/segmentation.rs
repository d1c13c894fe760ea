//! Segmentation: divides messages into packets, with their opcodes, headers and data.

use wire::{
    AtomicEth, Feth, Ieth, Immediate, Modifier, Opcode, Operation, PacketHead, Position, Psn, Qpn,
    Reth, Transport, Xrceth,
};

use super::send_queue::Outstanding;
use crate::memory::{AccessError, Memory, Output, ProtectionDomain};
use crate::planted_bug::{Bug, PlantedBug};
use crate::slab::Id;
use crate::work_request::{Payload, RemoteMemory, SendFlags, Work};

/// One packet of a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) opcode: Opcode,
    /// The offset of its data in the message.
    pub(super) offset: u32,
    /// How many bytes it carries, or requests if it is a read request.
    pub(super) length: u32,
    /// How many PSNs it takes.
    pub(super) span: u32,
    /// The length of its payload.
    pub(super) payload: usize,
}

impl Outstanding {
    /// The packet with this `index`. One read request asks for at most `read_limit` packets,
    /// counted from the start of the read, so that a retransmitted request ends where the first one
    /// ended.
    pub(super) fn piece(
        &self,
        transport: Transport,
        index: u32,
        mtu: usize,
        read_limit: u32,
    ) -> Piece {
        let offset = index * mtu as u32;
        let rest = self.length - offset;
        let work = self.work();
        if let Work::Read(_) = work {
            let until_limit = read_limit - index % read_limit;
            let span = until_limit.min(self.packets - index);
            return Piece {
                opcode: opcode(transport, Operation::ReadRequest, Position::Only, work),
                offset,
                length: rest.min(span.saturating_mul(mtu as u32)),
                span,
                payload: 0,
            };
        }
        let position = match (index == 0, index + 1 == self.packets) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        let length = rest.min(mtu as u32);
        let opcode = opcode(transport, operation(work), position, work);
        Piece {
            opcode,
            offset,
            length,
            span: 1,
            payload: if opcode.carries_payload() {
                length as usize
            } else {
                0
            },
        }
    }

    /// The headers of `piece`, except the pad.
    pub(super) fn head(
        &self,
        piece: &Piece,
        peer: Qpn,
        psn: Psn,
        planted: PlantedBug,
    ) -> PacketHead {
        let ends = piece.opcode.position().ends();
        let solicited = ends && self.request.flags.contains(SendFlags::SOLICITED);
        let mut head = PacketHead::new(piece.opcode, peer, psn)
            .solicited(solicited && self.work().takes_receive());
        if let Some(queue) = self.request.remote_srqn {
            head = head.push(&Xrceth::new(queue));
        }
        let starts = piece.opcode.position().starts();
        let head = match *self.work() {
            Work::Write(remote) | Work::WriteImmediate(remote, _) if starts => {
                head.push(&Reth::new(remote.address, remote.key, self.length))
            }
            Work::AtomicWrite(remote) => {
                head.push(&Reth::new(remote.address, remote.key, self.length))
            }
            Work::Read(remote) => head.push(&read_reth(remote, piece, planted)),
            Work::CompareSwap {
                remote,
                compare,
                swap,
            } => head.push(&AtomicEth::new(remote.address, remote.key, swap, compare)),
            Work::FetchAdd { remote, add } => {
                head.push(&AtomicEth::new(remote.address, remote.key, add, 0))
            }
            Work::Flush {
                remote,
                length,
                placement,
                range,
            } => head.push(&Feth::new(placement, range)).push(&Reth::new(
                remote.address,
                remote.key,
                length,
            )),
            _ => head,
        };
        match *self.work() {
            Work::SendImmediate(bytes) | Work::WriteImmediate(_, bytes) if ends => {
                head.push(&Immediate::new(bytes))
            }
            Work::SendInvalidate(key) if ends => head.push(&Ieth::new(key)),
            _ => head,
        }
    }

    /// Appends the payload of `piece`.
    #[inline]
    pub(super) fn fill(
        &self,
        piece: &Piece,
        memory: &Memory,
        domain: Id<ProtectionDomain>,
        out: &mut Output<'_>,
    ) -> Result<(), AccessError> {
        let offset = piece.offset as usize;
        match &self.request.payload {
            _ if piece.payload == 0 => Ok(()),
            Payload::Segments(segments) => {
                let start = out.len();
                memory.gather(domain, segments, offset as u64, piece.payload, out)?;
                match (&self.checksums, out.private(start)) {
                    (Some(checksums), Some(bytes)) => checksums.compare(offset, bytes),
                    // The other process can change the packet, so the message is read once more.
                    (Some(checksums), None) => {
                        let read = offset..offset + piece.payload;
                        checksums.compare_piece(memory, domain, segments, read, &mut Vec::new())?;
                    }
                    (None, _) => {}
                }
                Ok(())
            }
            Payload::Inline(bytes) => {
                out.extend_from_slice(&bytes[offset..offset + piece.payload]);
                Ok(())
            }
        }
    }
}

fn read_reth(remote: RemoteMemory, piece: &Piece, planted: PlantedBug) -> Reth {
    let progress = if planted.is(Bug::PartialReadRestartsWrongly) {
        0
    } else {
        u64::from(piece.offset)
    };
    let address = remote.address.wrapping_add(progress);
    Reth::new(address, remote.key, piece.length)
}

const fn operation(work: &Work) -> Operation {
    match work {
        Work::Send | Work::SendImmediate(_) | Work::SendInvalidate(_) => Operation::Send,
        Work::Write(_) | Work::WriteImmediate(..) => Operation::Write,
        Work::Read(_) => Operation::ReadRequest,
        Work::CompareSwap { .. } => Operation::CompareSwap,
        Work::FetchAdd { .. } => Operation::FetchAdd,
        Work::AtomicWrite(_) => Operation::AtomicWrite,
        Work::Flush { .. } => Operation::Flush,
        Work::LocalInvalidate(_) | Work::BindWindow { .. } => {
            panic!("local work sends no packets")
        }
    }
}

fn opcode(transport: Transport, operation: Operation, position: Position, work: &Work) -> Opcode {
    let modifier = match work {
        _ if !position.ends() => Modifier::None,
        Work::SendImmediate(_) | Work::WriteImmediate(..) => Modifier::Immediate,
        Work::SendInvalidate(_) => Modifier::Invalidate,
        _ => Modifier::None,
    };
    Opcode::find(transport, operation, position, modifier)
        .expect("post_send checked that the transport has this operation")
}

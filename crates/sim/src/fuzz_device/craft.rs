//! Packets that are valid enough to reach deep states.

use engine::QueuePairType;
use wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Extension, Feth, FlushPlacement, FlushRange, Ieth,
    Immediate, Key, Opcode, Operation, PacketHead, Position, Psn, Reth, Syndrome, Transport,
    Xrceth, icrc,
};

use super::victim::{FIRST_PSN, MTU, QUEUE_KEY, SIZE, THEIRS, Victim, VictimQueuePair, WINDOW};
use crate::fuzz_input::Input;

/// The size of a request.
struct Extent {
    /// How many PSNs it uses.
    span: u32,
    /// How many bytes it announces.
    total: u32,
}

/// What the attacker knows of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knowledge {
    /// The PSN that the victim expects next.
    pub(super) expected: Psn,
    /// The PSN of the victim's newest request.
    pub(super) requested: Psn,
    /// A message that was started, and how many announced bytes are not sent yet.
    open: Option<(Operation, u32)>,
}

impl Knowledge {
    /// The knowledge at the start of a connection.
    pub(super) const FRESH: Self = Self {
        expected: FIRST_PSN,
        requested: FIRST_PSN,
        open: None,
    };
}

impl Victim {
    /// A packet with a valid ICRC for a queue pair, as the input chooses. Updates the knowledge.
    pub(super) fn craft(
        &self,
        pair: &VictimQueuePair,
        knowledge: &mut Knowledge,
        input: &mut Input<'_>,
    ) -> Vec<u8> {
        let opcode = draw_opcode(pair, knowledge, input);
        let near = u32::from(input.byte());
        let base = if opcode.is_response() {
            knowledge.requested
        } else {
            knowledge.expected
        };
        // Mostly the expected PSN, sometimes one close to it.
        let psn = match near {
            0..230 => base,
            _ => base + near % 8 - 4,
        };
        let announced = knowledge.open.map_or(0, |(_, rest)| rest);
        let length = self.draw_payload(opcode, announced, input);
        let mut payload = input.take(length).to_vec();
        payload.resize(length, 0);
        let mut head = PacketHead::new(opcode, pair.number, psn)
            .acknowledge(near.is_multiple_of(2))
            .solicited(near.is_multiple_of(3));
        let mut extent = Extent { span: 1, total: 0 };
        for &extension in opcode.extensions() {
            head = self.push(head, extension, opcode, length, &mut extent, input);
        }
        if !opcode.is_response() {
            knowledge.expected = psn + extent.span;
            knowledge.open = match opcode.position() {
                Position::First => {
                    let rest = extent.total.saturating_sub(length as u32);
                    Some((opcode.operation(), rest))
                }
                Position::Middle => {
                    let rest = announced.saturating_sub(length as u32);
                    Some((opcode.operation(), rest))
                }
                Position::Last | Position::Only => None,
            };
        }
        self.add_icrc(head, &payload)
    }

    /// Full packets where the opcode requires them, otherwise a length from the input.
    fn draw_payload(&self, opcode: Opcode, announced: u32, input: &mut Input<'_>) -> usize {
        let full = matches!(opcode.position(), Position::First | Position::Middle);
        let free = input.byte();
        match (opcode.carries_payload(), full, opcode.operation()) {
            (false, ..) => 0,
            (_, _, Operation::AtomicWrite) => 8,
            (_, true, _) => MTU.bytes(),
            (_, false, Operation::Write) if opcode.position() == Position::Last && free < 200 => {
                announced as usize % (MTU.bytes() + 1)
            }
            _ => usize::from(free),
        }
    }

    fn push(
        &self,
        head: PacketHead,
        extension: Extension,
        opcode: Opcode,
        payload: usize,
        extent: &mut Extent,
        input: &mut Input<'_>,
    ) -> PacketHead {
        match extension {
            Extension::Reth => head.push(&self.draw_reth(opcode, payload, extent, input)),
            Extension::AtomicEth => {
                let (address, key) = self.draw_memory(input);
                let (swap, compare) = (u64::from(input.number()), u64::from(input.byte()));
                head.push(&AtomicEth::new(address & !7, key, swap, compare))
            }
            Extension::Aeth => {
                let syndrome = Syndrome::from_byte(input.byte());
                head.push(&Aeth::new(syndrome, u32::from(input.byte())))
            }
            Extension::AtomicAckEth => head.push(&AtomicAckEth::new(u64::from(input.number()))),
            Extension::Deth => {
                let key = match input.byte() {
                    0..200 => QUEUE_KEY,
                    other => wire::QueueKey::new(other.into()),
                };
                head.push(&Deth::new(key, wire::Qpn::new(input.number())))
            }
            Extension::Immediate => head.push(&Immediate::new(input.number().to_le_bytes())),
            Extension::Ieth => {
                let (_, key) = self.draw_memory(input);
                head.push(&Ieth::new(key))
            }
            Extension::Xrceth => head.push(&Xrceth::new(wire::Srqn::new(input.byte().into()))),
            Extension::Feth => {
                let choices = [FlushPlacement::GLOBAL, FlushPlacement::PERSISTENT];
                let placement = input.pick(&choices);
                let range = input.pick(&[FlushRange::Range, FlushRange::Region]);
                head.push(&Feth::new(placement, range))
            }
        }
    }

    /// A RETH, mostly valid.
    fn draw_reth(
        &self,
        opcode: Opcode,
        payload: usize,
        extent: &mut Extent,
        input: &mut Input<'_>,
    ) -> Reth {
        let (address, key) = self.draw_memory(input);
        let length = match opcode.operation() {
            Operation::ReadRequest | Operation::Flush => input.number() % 1024,
            // The first packet of a long message announces its length.
            _ if opcode.position() == Position::First => {
                payload as u32 + u32::from(input.byte()) * 4
            }
            _ => payload as u32,
        };
        if opcode.operation() == Operation::ReadRequest {
            extent.span = length.div_ceil(MTU.bytes() as u32).max(1);
        }
        extent.total = length;
        Reth::new(address, key, length)
    }

    /// An address and key of the victim: mostly accessible, sometimes not, or out of bounds.
    fn draw_memory(&self, input: &mut Input<'_>) -> (u64, Key) {
        let near = input.number() as usize;
        let through_window = self.windowed.address + (WINDOW.start + near % WINDOW.len()) as u64;
        match input.byte() {
            0..128 => (self.public.address + (near % SIZE) as u64, self.public.key),
            128..192 => (through_window, self.window_key()),
            other => {
                let regions = [&self.public, &self.private, &self.windowed, &self.inbox];
                let region = regions[usize::from(other) % regions.len()];
                let key = match other {
                    192..224 => region.key,
                    224..240 => self.window_key(),
                    _ => Key::new(input.number()),
                };
                (
                    region.address.wrapping_add((near % (SIZE + 64)) as u64),
                    key,
                )
            }
        }
    }

    fn add_icrc(&self, head: PacketHead, payload: &[u8]) -> Vec<u8> {
        let pad = payload.len().wrapping_neg() % 4;
        let mut datagram = head.pad(pad as u8).bytes().to_vec();
        datagram.extend_from_slice(payload);
        datagram.extend_from_slice(&[0; 3][..pad]);
        datagram.extend(icrc::checksum(&self.flow(THEIRS), 0, &datagram));
        datagram
    }
}

/// Mostly an opcode that the queue pair supports and that continues its message.
fn draw_opcode(pair: &VictimQueuePair, knowledge: &Knowledge, input: &mut Input<'_>) -> Opcode {
    let transport = match pair.kind {
        QueuePairType::Uc => Transport::Uc,
        QueuePairType::Ud => Transport::Ud,
        _ => Transport::Rc,
    };
    let in_turn = |opcode: &Opcode| match knowledge.open {
        _ if opcode.transport() != transport => false,
        _ if opcode.is_response() => true,
        None => opcode.position().starts(),
        Some((operation, _)) => opcode.operation() == operation && !opcode.position().starts(),
    };
    let likely: Vec<Opcode> = Opcode::ALL.iter().copied().filter(in_turn).collect();
    match input.byte() {
        0..240 if !likely.is_empty() => input.pick(&likely),
        _ => input.pick(Opcode::ALL),
    }
}

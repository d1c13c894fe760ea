//! What a peer hears: packets of the device, in words.

use std::fmt::Write;

use engine::Route;
use wire::{
    AtomicAckEth, Extension, NakCode, Operation, Packet, Position, Reth, Syndrome, Transport,
};

use super::PSN;

/// A packet that the device sent.
pub(crate) struct Heard {
    pub(crate) route: Route,
    bytes: Vec<u8>,
    words: String,
}

impl Heard {
    pub(super) fn new(route: Route, bytes: &[u8]) -> Self {
        let packet = Packet::parse(bytes).expect("the device sends packets");
        Self {
            route,
            words: in_words(&packet),
            bytes: bytes.to_vec(),
        }
    }

    /// What it says, such as `nak sequence +1` or `send Middle +1 1024B`.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// All of it.
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("it was parsed before")
    }

    /// Its data.
    pub(crate) fn payload(&self) -> &[u8] {
        self.packet().payload
    }

    /// How many messages it says are complete.
    pub(crate) fn messages(&self) -> Option<u32> {
        Some(self.packet().aeth()?.message_sequence())
    }

    /// How many receives it says are posted.
    pub(crate) fn credits(&self) -> Option<u32> {
        match self.packet().aeth()?.syndrome() {
            Syndrome::Acknowledge { credits } => credits,
            _ => None,
        }
    }
}

fn in_words(packet: &Packet<'_>) -> String {
    match packet.opcode.operation() {
        Operation::Acknowledge => verdict_in_words(packet),
        Operation::AtomicAcknowledge => {
            let original = packet.atomic_acknowledge().map(AtomicAckEth::original);
            format!("atomic-ack {} was={}", place(packet), original.expect("it"))
        }
        Operation::ReadResponse => format!("read-response {}", position_and_length(packet)),
        _ => request_in_words(packet),
    }
}

fn verdict_in_words(packet: &Packet<'_>) -> String {
    let syndrome = packet.aeth().expect("a verdict has an AETH").syndrome();
    let place = place(packet);
    match syndrome {
        Syndrome::Acknowledge { .. } => format!("ack {place}"),
        Syndrome::ReceiverNotReady(timer) => {
            format!(
                "not-ready {place} {}ms",
                timer.delay().as_micros() as f64 / 1e3
            )
        }
        Syndrome::Negative(code) => format!("nak {} {place}", name(code)),
        Syndrome::Reserved(byte) => format!("reserved {byte:#x} {place}"),
    }
}

const fn name(code: NakCode) -> &'static str {
    match code {
        NakCode::SequenceError => "sequence",
        NakCode::InvalidRequest => "invalid",
        NakCode::RemoteAccess => "access",
        NakCode::RemoteOperational => "operational",
        NakCode::InvalidRdRequest => "reliable-datagram",
    }
}

fn request_in_words(packet: &Packet<'_>) -> String {
    let mut words = match packet.opcode.operation() {
        Operation::Send if packet.opcode.transport() == Transport::Ud => {
            format!("datagram {} {}B", place(packet), packet.payload.len())
        }
        Operation::Send => format!("send {}", position_and_length(packet)),
        Operation::Write => format!("write {}", position_and_length(packet)),
        Operation::ReadRequest => format!("read-request {}", place(packet)),
        Operation::CompareSwap => format!("compare-swap {}", place(packet)),
        Operation::FetchAdd => format!("fetch-add {}", place(packet)),
        Operation::AtomicWrite => format!("atomic-write {}", place(packet)),
        Operation::Flush => format!("flush {}", place(packet)),
        other => format!("{other:?} {}", place(packet)),
    };
    for &extension in packet.opcode.extensions() {
        add_extension(&mut words, packet, extension);
    }
    if packet.solicited {
        words.push_str(" solicited");
    }
    let may_be_silent = matches!(
        packet.opcode.operation(),
        Operation::Send | Operation::Write
    );
    if packet.acknowledge && may_be_silent {
        words.push_str(" ask");
    }
    words
}

fn add_extension(words: &mut String, packet: &Packet<'_>, extension: Extension) {
    let added = match extension {
        Extension::Reth => packet.reth().map(|reth| add_reth(words, packet, reth)),
        Extension::AtomicEth => packet.atomic().map(|atomic| {
            let (address, operand) = (atomic.virtual_address(), atomic.swap_or_add());
            match packet.opcode.operation() {
                Operation::FetchAdd => write!(words, " va={address:#x} add={operand}"),
                _ => {
                    let compare = atomic.compare();
                    write!(words, " va={address:#x} compare={compare} swap={operand}")
                }
            }
        }),
        Extension::Immediate => packet.immediate().map(|immediate| {
            let bytes = String::from_utf8_lossy(&immediate.bytes()).into_owned();
            write!(words, " imm={bytes}")
        }),
        Extension::Ieth => packet
            .invalidate()
            .map(|key| write!(words, " invalidate={:#x}", key.value())),
        Extension::Xrceth => packet
            .xrc_srq()
            .map(|queue| write!(words, " srq={}", queue.value())),
        Extension::Deth => packet
            .deth()
            .map(|deth| write!(words, " qkey={:#x}", deth.queue_key().value())),
        Extension::Feth => packet
            .flush()
            .map(|flush| write!(words, " placement={}", flush.placement().bits())),
        Extension::Aeth | Extension::AtomicAckEth => None,
    };
    added
        .expect("requests have these")
        .expect("a string takes everything");
}

fn add_reth(words: &mut String, packet: &Packet<'_>, reth: &Reth) -> std::fmt::Result {
    let (address, length) = (reth.virtual_address(), reth.dma_length());
    let is_whole = packet.opcode.operation() == Operation::Write
        && packet.opcode.position() == Position::Only
        && length as usize == packet.payload.len();
    match is_whole {
        true => write!(words, " va={address:#x}"),
        false => write!(words, " va={address:#x} len={length}"),
    }
}

fn position_and_length(packet: &Packet<'_>) -> String {
    let position = packet.opcode.position();
    format!("{position:?} {} {}B", place(packet), packet.payload.len())
}

/// The sequence number relative to where the conversation began.
fn place(packet: &Packet<'_>) -> String {
    format!("{:+}", packet.psn.since(PSN))
}

//! Packets of the device, described as text.

use std::fmt::Write;

use wire::{
    AtomicAckEth, Extension, NakCode, Operation, Packet, Position, Reth, Route, Syndrome, Transport,
};

use super::PSN;

/// A packet that the device sent.
pub(crate) struct DevicePacket {
    pub(crate) route: Route,
    bytes: Vec<u8>,
    text: String,
}

impl DevicePacket {
    pub(super) fn new(route: Route, bytes: &[u8]) -> Self {
        let packet = Packet::parse(bytes).expect("the device sends valid packets");
        Self {
            route,
            text: describe(&packet),
            bytes: bytes.to_vec(),
        }
    }

    /// A short description, such as `nak sequence +1` or `send Middle +1 1024B`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The datagram, with its ICRC.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The parsed packet.
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("the packet was parsed before")
    }

    /// The payload.
    pub(crate) fn payload(&self) -> &[u8] {
        let payload = self.packet().payload.private();
        payload.expect("it is in this process")
    }

    /// The message sequence number in the AETH.
    pub(crate) fn messages(&self) -> Option<u32> {
        Some(self.packet().aeth()?.message_sequence())
    }

    /// The credits in the AETH.
    pub(crate) fn credits(&self) -> Option<u32> {
        match self.packet().aeth()?.syndrome() {
            Syndrome::Acknowledge { credits } => credits,
            _ => None,
        }
    }
}

fn describe(packet: &Packet<'_>) -> String {
    match packet.opcode.operation() {
        Operation::CongestionNotification => "cnp".to_owned(),
        Operation::Acknowledge => describe_acknowledgement(packet),
        Operation::AtomicAcknowledge => {
            let original = packet.atomic_acknowledge().map(AtomicAckEth::original);
            format!(
                "atomic-ack {} was={}",
                relative_psn(packet),
                original.expect("an AtomicAckETH")
            )
        }
        Operation::ReadResponse => format!("read-response {}", position_and_length(packet)),
        _ => describe_request(packet),
    }
}

fn describe_acknowledgement(packet: &Packet<'_>) -> String {
    let held = packet.held_packets().expect("the device lists ranges");
    let mut text = describe_syndrome(packet);
    if !held.is_empty() {
        write!(text, " held {held}").expect("a string has room");
    }
    text
}

fn describe_syndrome(packet: &Packet<'_>) -> String {
    let syndrome = packet
        .aeth()
        .expect("an acknowledgement has an AETH")
        .syndrome();
    let relative_psn = relative_psn(packet);
    match syndrome {
        Syndrome::Acknowledge { .. } => format!("ack {relative_psn}"),
        Syndrome::ReceiverNotReady(timer) => {
            format!(
                "rnr-nak {relative_psn} {}ms",
                timer.delay().as_micros() as f64 / 1e3
            )
        }
        Syndrome::Negative(code) => format!("nak {} {relative_psn}", name(code)),
        Syndrome::Reserved(byte) => format!("reserved {byte:#x} {relative_psn}"),
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

fn describe_request(packet: &Packet<'_>) -> String {
    let mut text = match packet.opcode.operation() {
        Operation::Send if packet.opcode.transport() == Transport::Ud => {
            format!(
                "datagram {} {}B",
                relative_psn(packet),
                packet.payload.len()
            )
        }
        Operation::Send => format!("send {}", position_and_length(packet)),
        Operation::Write => format!("write {}", position_and_length(packet)),
        Operation::ReadRequest => format!("read-request {}", relative_psn(packet)),
        Operation::CompareSwap => format!("compare-swap {}", relative_psn(packet)),
        Operation::FetchAdd => format!("fetch-add {}", relative_psn(packet)),
        Operation::AtomicWrite => format!("atomic-write {}", relative_psn(packet)),
        Operation::Flush => format!("flush {}", relative_psn(packet)),
        other => format!("{other:?} {}", relative_psn(packet)),
    };
    for &extension in packet.opcode.extensions() {
        add_extension(&mut text, packet, extension);
    }
    if packet.solicited {
        text.push_str(" solicited");
    }
    let ackreq_is_optional = matches!(
        packet.opcode.operation(),
        Operation::Send | Operation::Write
    );
    if packet.acknowledge && ackreq_is_optional {
        text.push_str(" ackreq");
    }
    text
}

fn add_extension(text: &mut String, packet: &Packet<'_>, extension: Extension) {
    let added = match extension {
        Extension::Reth => packet.reth().map(|reth| add_reth(text, packet, reth)),
        Extension::AtomicEth => packet.atomic().map(|atomic| {
            let (address, operand) = (atomic.virtual_address(), atomic.swap_or_add());
            match packet.opcode.operation() {
                Operation::FetchAdd => write!(text, " va={address:#x} add={operand}"),
                _ => {
                    let compare = atomic.compare();
                    write!(text, " va={address:#x} compare={compare} swap={operand}")
                }
            }
        }),
        Extension::Immediate => packet.immediate().map(|immediate| {
            let bytes = String::from_utf8_lossy(&immediate.bytes()).into_owned();
            write!(text, " imm={bytes}")
        }),
        Extension::Ieth => packet
            .invalidate()
            .map(|key| write!(text, " invalidate={:#x}", key.value())),
        Extension::Xrceth => packet
            .xrc_srq()
            .map(|queue| write!(text, " srq={}", queue.value())),
        Extension::Deth => packet
            .deth()
            .map(|deth| write!(text, " qkey={:#x}", deth.queue_key().value())),
        Extension::Feth => packet
            .flush()
            .map(|flush| write!(text, " placement={}", flush.placement().bits())),
        Extension::Aeth | Extension::AtomicAckEth => None,
    };
    added
        .expect("the packet has the headers of its opcode")
        .expect("writing to a string does not fail");
}

fn add_reth(text: &mut String, packet: &Packet<'_>, reth: &Reth) -> std::fmt::Result {
    let (address, length) = (reth.virtual_address(), reth.dma_length());
    let is_whole = packet.opcode.operation() == Operation::Write
        && packet.opcode.position() == Position::Only
        && length as usize == packet.payload.len();
    if is_whole {
        write!(text, " va={address:#x}")
    } else {
        write!(text, " va={address:#x} len={length}")
    }
}

fn position_and_length(packet: &Packet<'_>) -> String {
    let position = packet.opcode.position();
    format!(
        "{position:?} {} {}B",
        relative_psn(packet),
        packet.payload.len()
    )
}

/// The PSN relative to the first PSN of the conversation.
fn relative_psn(packet: &Packet<'_>) -> String {
    format!("{:+}", packet.psn.since(PSN))
}

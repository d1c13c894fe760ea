//! The headers of all packets, kept as bytes and parsed on demand.

mod cm_messages;
mod fields;

use std::fmt::Display;

use serde::Serialize;
use wire::{
    Bth, Extension, ICRC_LENGTH, Operation, Packet as WirePacket, Position, Qpn, Syndrome,
    Transport,
};

pub(crate) use cm_messages::{application_data, described, in_words_of_8, readable};

use crate::packet::Packet;

/// One header of a packet, as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Layer {
    /// Its name in the specification.
    pub name: &'static str,
    /// Its content.
    pub fields: Vec<Field>,
}

/// One field of a header, as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its content.
    pub value: String,
}

impl Field {
    pub(crate) fn new(name: &'static str, value: impl Display) -> Self {
        Field {
            name,
            value: format!("{value}"),
        }
    }
}

/// Concatenated headers, each after its length.
#[derive(Default)]
pub(crate) struct Heads {
    bytes: Vec<u8>,
}

const LENGTH: usize = 2;

/// How many payload bytes are kept of the first packet of a message, so that a reader recognizes the data.
const KEPT_OF_FIRST: usize = 64;

/// The same for other packets: there may be millions of them.
const KEPT_OF_OTHERS: usize = 16;

impl Heads {
    /// Stores the headers of a datagram and the beginning of its payload; returns their position. None if 4 GiB
    /// are full.
    pub(crate) fn keep(&mut self, packet: &WirePacket<'_>, datagram: &[u8]) -> Option<u32> {
        let place = u32::try_from(self.bytes.len()).ok()?;
        let head = packet.opcode.header_length();
        let payload = match packet.opcode.position() {
            _ if is_management(packet) => packet.payload.len(),
            _ if packet.opcode.operation() == Operation::Acknowledge => packet.payload.len(),
            Position::Only | Position::First => packet.payload.len().min(KEPT_OF_FIRST),
            Position::Middle | Position::Last => packet.payload.len().min(KEPT_OF_OTHERS),
        };
        let kept = (head + payload).min(datagram.len());
        let length = u16::try_from(kept).ok()?;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend_from_slice(&datagram[..kept]);
        Some(place)
    }

    /// The bytes that were kept of a packet.
    pub(crate) fn bytes(&self, packet: &Packet) -> &[u8] {
        let (length, behind) = self.bytes[packet.head as usize..]
            .split_first_chunk::<LENGTH>()
            .expect("each head has a length before it");
        &behind[..usize::from(u16::from_ne_bytes(*length))]
    }

    /// The beginning of a packet's payload.
    pub(crate) fn payload(&self, packet: &Packet) -> &[u8] {
        &self.bytes(packet)[packet.opcode.header_length()..]
    }

    /// The AETH syndrome of a packet, if it has one.
    pub(crate) fn syndrome(&self, packet: &Packet) -> Option<Syndrome> {
        let header = self.extension(packet, Extension::Aeth)?;
        header.first().map(|&byte| Syndrome::from_byte(byte))
    }

    /// What an acknowledgement lists as held behind a missing packet, in words; nothing if it lists none.
    pub(crate) fn held(&self, packet: &Packet) -> String {
        if packet.length == 0 || packet.opcode.operation() != Operation::Acknowledge {
            return String::new();
        }
        self.read(packet, |packet| match packet.held_packets() {
            Ok(held) => format!(", holds {held}"),
            Err(_) => ", holds unreadable".to_owned(),
        })
    }

    /// How many bytes a packet asks for or announces.
    pub(crate) fn dma_length(&self, packet: &Packet) -> Option<u32> {
        let header = self.extension(packet, Extension::Reth)?;
        header
            .last_chunk()
            .map(|length| u32::from_be_bytes(*length))
    }

    fn extension(&self, packet: &Packet, wanted: Extension) -> Option<&[u8]> {
        let offset = size_of::<Bth>() + packet.opcode.offset_of(wanted)?;
        self.bytes(packet).get(offset..offset + wanted.length())
    }

    /// Parses the headers of a packet. The payload is zero, except in acknowledgements and in messages of the connection
    /// manager.
    pub(crate) fn read<T>(&self, packet: &Packet, look: impl FnOnce(&WirePacket<'_>) -> T) -> T {
        let mut datagram = self.bytes(packet).to_vec();
        let data = usize::from(packet.length).next_multiple_of(4);
        datagram.resize(packet.opcode.header_length() + data + ICRC_LENGTH, 0);
        look(&WirePacket::parse(&datagram).expect("it was parsed before it was kept"))
    }

    /// The headers of a packet, field by field.
    pub(crate) fn layers(&self, packet: &Packet) -> Vec<Layer> {
        self.read(packet, fields::layers)
    }
}

impl std::fmt::Debug for Heads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heads({} bytes)", self.bytes.len())
    }
}

fn is_management(packet: &WirePacket<'_>) -> bool {
    packet.destination == Qpn::GSI && packet.opcode.transport() == Transport::Ud
}

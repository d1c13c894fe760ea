//! Names of packets that are the same in every run: an opcode, or a message of the connection manager.

use std::fmt;

use wire::cm::Message;
use wire::{Bth, Opcode, Packet, Qpn};
use zerocopy::FromBytes;

use super::opcodes;

/// A message of the connection manager, or all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMessage(Option<&'static str>);

impl CmMessage {
    const ANY: &str = "any";

    /// The message with this name in the specification; `any` for all of them.
    pub(super) fn find(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case(Self::ANY) {
            return Some(CmMessage(None));
        }
        let mut names = Message::NAMES.iter();
        let found = names.find(|known| known.eq_ignore_ascii_case(name))?;
        Some(CmMessage(Some(found)))
    }

    /// Whether a packet with this message meets the condition.
    pub(super) fn is(self, found: Option<&str>) -> bool {
        match self.0 {
            Some(name) => found == Some(name),
            None => found.is_some(),
        }
    }
}

impl fmt::Display for CmMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.unwrap_or(Self::ANY))
    }
}

/// The name of the connection manager's message in a packet.
pub(super) fn cm_message(packet: &[u8]) -> Option<&'static str> {
    let (base, _) = Bth::ref_from_prefix(packet).ok()?;
    if base.destination() != Qpn::GSI {
        return None;
    }
    Packet::parse(packet)
        .ok()?
        .message()
        .map(|message| message.name())
}

/// What a packet is counted as.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PacketName {
    Cm(&'static str),
    Opcode(Opcode),
}

impl fmt::Display for PacketName {
    /// As a condition of a rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketName::Cm(name) => write!(f, "cm={name}"),
            PacketName::Opcode(opcode) => write!(f, "opcode={}", opcodes::full_name(*opcode)),
        }
    }
}

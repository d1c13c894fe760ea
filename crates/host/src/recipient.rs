//! Which process a management datagram is for.

use cm::Recipient;
use wire::{Packet, Qpn, destination_queue_pair, mad};

/// Where the caller found the owner of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Another process. The caller has forwarded the message.
    Elsewhere,
    /// This process, perhaps together with others.
    Here,
    /// No process.
    None,
}

/// Whether a packet is addressed to queue pair 1. It is called for every received packet, so it does not parse the packet.
#[must_use]
pub fn is_management(packet: &[u8]) -> bool {
    destination_queue_pair(packet) == Some(Qpn::GSI)
}

/// The recipient of a packet to queue pair 1. Returns `None` if the packet carries no connection
/// manager message.
pub(crate) fn recipient(packet: &[u8]) -> Option<Recipient> {
    if !is_management(packet) {
        return None;
    }
    let packet = Packet::parse(packet).ok()?;
    let datagram = <&[u8; mad::LENGTH]>::try_from(packet.payload).ok()?;
    let (_, message) = wire::cm::Message::parse(datagram).ok()?;
    Some(cm::owner_of(&message))
}

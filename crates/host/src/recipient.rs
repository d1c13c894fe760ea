//! Which process a management datagram is for.

use cm::{IdRange, Recipient};
use wire::cm::CommunicationId;
use wire::extension::{self, Kind};
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

/// The recipient of a packet to queue pair 1. Returns `None` if any process may handle it: it carries no connection manager
/// message and answers no question.
pub(crate) fn recipient(packet: &[u8]) -> Option<Recipient> {
    if !is_management(packet) {
        return None;
    }
    let packet = Packet::parse(packet).ok()?;
    let datagram = <&[u8; mad::LENGTH]>::try_from(packet.payload.private()?).ok()?;
    if let Some(message) = extension::Message::parse(datagram) {
        let id = CommunicationId::new(message.transaction as u32);
        let is_answer = matches!(message.kind, Kind::Answer { .. });
        return is_answer.then_some(Recipient::CommunicationId(id));
    }
    let (_, message) = wire::cm::Message::parse(datagram).ok()?;
    Some(cm::owner_of(&message))
}

/// The transaction of a question. Its lower half names this process, so that the answer is forwarded to it.
pub(crate) fn transaction(nonce: u32, id_range: IdRange) -> u64 {
    let id = id_range.communication_id(nonce).value();
    u64::from(nonce) << 32 | u64::from(id)
}

/// The number that was sent with the question of this transaction.
pub(crate) fn nonce(transaction: u64) -> u32 {
    (transaction >> 32) as u32
}

#[cfg(test)]
mod tests {
    use wire::cm::{CommunicationId, DisconnectRequest, Message, PrivateData};
    use wire::{Deth, Opcode, PacketHead, Psn, QueueKey};

    use super::*;

    /// Any program may send such bytes to a queue pair of its own.
    #[test]
    fn a_message_of_the_connection_manager_counts_only_at_queue_pair_1() {
        let message = Message::from(DisconnectRequest {
            local_id: CommunicationId::new(1),
            remote_id: CommunicationId::new(2),
            remote_qpn: Qpn::new(3),
            private_data: PrivateData::default(),
        });
        let packet_to = |number: Qpn| {
            let head = PacketHead::new(Opcode::UdSendOnly, number, Psn::new(0));
            let head = head.push(&Deth::new(QueueKey::GSI, Qpn::GSI));
            [head.bytes(), &message.emit(7), &[0; 4]].concat()
        };
        assert!(recipient(&packet_to(Qpn::GSI)).is_some());
        assert!(recipient(&packet_to(Qpn::new(0x11))).is_none());
        assert!(is_management(&packet_to(Qpn::GSI)));
        assert!(!is_management(&packet_to(Qpn::new(0x11))));
    }
}

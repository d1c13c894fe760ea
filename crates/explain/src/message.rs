//! One message: the packets of one work request.

use serde::Serialize;
use wire::{Modifier, Opcode, Operation, Position, Psn, Transport};

use crate::connection_end::Side;
use crate::packet::{Packet, Role};
use crate::typed_index::{ConnectionId, PacketId};

/// A message, made of one packet or many.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Its connection.
    pub connection: ConnectionId,
    /// The end that sent the request.
    pub from: Side,
    /// The service of its packets.
    pub transport: Transport,
    /// The operation.
    pub operation: Operation,
    /// Additional data of the operation.
    pub modifier: Modifier,
    /// Its outcome.
    pub outcome: Outcome,
    /// The PSN of its first packet.
    pub first_psn: Psn,
    /// How many PSNs it uses.
    pub span: u32,
    /// Its length in bytes, from its header or from the captured packets.
    pub length: u64,
    /// When its first packet was sent, in nanoseconds since the first packet of the capture.
    pub begun: u64,
    /// When its last packet was sent for the first time.
    pub sent: u64,
    /// When it was answered.
    pub answered: Option<u64>,
    /// Its first packet in the capture.
    pub first: PacketId,
    /// The last of its packets or responses in the capture.
    pub last: PacketId,
    /// The packet that acknowledged it, rejected it or carried the last of its data.
    pub response: Option<PacketId>,
    /// How many of its packets were captured, retransmitted ones included, responses not.
    pub packets: u32,
    /// How many packets were captured that answer it.
    pub responses: u32,
    /// How many of its packets were retransmitted.
    pub retransmitted: u32,
    /// How many RNR NAKs it got.
    pub not_ready: u32,
}

impl Message {
    /// The PSN of its last packet.
    pub fn last_psn(&self) -> Psn {
        self.first_psn + (self.span - 1)
    }

    /// From its last packet to its response, in nanoseconds.
    pub fn response_time(&self) -> Option<u64> {
        self.answered.map(|time| time.saturating_sub(self.sent))
    }

    /// Its name in programs: `SEND`, `RDMA WRITE with immediate` and so on.
    pub fn name(&self) -> &'static str {
        name_of(self.operation, self.modifier)
    }
}

/// The name of the message that a packet of this opcode belongs to.
pub(crate) fn name_of(operation: Operation, modifier: Modifier) -> &'static str {
    match (operation, modifier) {
        (Operation::Send, Modifier::None) => "SEND",
        (Operation::Send, Modifier::Immediate) => "SEND with immediate",
        (Operation::Send, Modifier::Invalidate) => "SEND with invalidate",
        (Operation::Write, Modifier::Immediate) => "RDMA WRITE with immediate",
        (Operation::Write, _) => "RDMA WRITE",
        (Operation::ReadRequest | Operation::ReadResponse, _) => "RDMA READ",
        (Operation::CompareSwap, _) => "COMPARE & SWAP",
        (Operation::FetchAdd, _) => "FETCH & ADD",
        (Operation::AtomicWrite, _) => "ATOMIC WRITE",
        (Operation::Flush, _) => "FLUSH",
        (Operation::Acknowledge | Operation::AtomicAcknowledge, _) => "acknowledgement",
        (Operation::CongestionNotification, _) => "congestion notification",
    }
}

/// The name of a packet. ACK, NAK and RNR NAK have one opcode.
pub(crate) fn packet_name(packet: &Packet) -> String {
    match packet.role {
        Role::Acknowledge => "ACK".to_owned(),
        Role::Reject => "NAK".to_owned(),
        Role::NotReady => "RNR NAK".to_owned(),
        Role::Request | Role::Response | Role::Manage | Role::Congestion => describe(packet.opcode),
    }
}

/// The name of an opcode as in Wireshark: `RDMA WRITE Middle`.
pub fn describe(opcode: Opcode) -> String {
    let name = match opcode.operation() {
        Operation::Acknowledge => return "Acknowledge".to_owned(),
        Operation::AtomicAcknowledge => return "ATOMIC response".to_owned(),
        Operation::ReadRequest => return "RDMA READ request".to_owned(),
        Operation::ReadResponse => "RDMA READ response",
        Operation::CongestionNotification => return "CNP".to_owned(),
        other => name_of(other, Modifier::None),
    };
    let spans = matches!(
        opcode.operation(),
        Operation::Send | Operation::Write | Operation::ReadResponse
    );
    let position = if spans {
        match opcode.position() {
            Position::First => " First",
            Position::Middle => " Middle",
            Position::Last => " Last",
            Position::Only => " Only",
        }
    } else {
        ""
    };
    let modifier = match opcode.modifier() {
        Modifier::None => "",
        Modifier::Immediate => " Imm",
        Modifier::Invalidate => " Inv",
    };
    format!("{name}{position}{modifier}")
}

/// The outcome of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The capture ends, or its response is missing.
    Unanswered,
    /// It is acknowledged, or all requested data arrived.
    Done,
    /// The service has no acknowledgements.
    Unacknowledged,
    /// The receiver rejected it: the requester's queue pair moves to ERROR.
    Rejected(#[serde(serialize_with = "in_words")] wire::NakCode),
    /// The receiver was not ready, and the requester gave up or the capture ends.
    NotReady,
    /// It was retransmitted and never answered.
    GivenUp,
    /// Not all of its packets are in the capture.
    Incomplete,
}

fn in_words<S: serde::Serializer>(code: &wire::NakCode, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(code)
}

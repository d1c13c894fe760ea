//! One message: what an application asked for with one work request.

use serde::Serialize;
use wire::{Companion, Opcode, Operation, Psn, Transport};

use crate::connection::Side;
use crate::id::{ConnectionId, PacketId};

/// A message, made of one packet or many.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Between whom it went.
    pub connection: ConnectionId,
    /// Who asked.
    pub from: Side,
    /// The service of its packets.
    pub transport: Transport,
    /// What was asked.
    pub operation: Operation,
    /// What came along with it.
    pub companion: Companion,
    /// What became of it.
    pub outcome: Outcome,
    /// The sequence number of its first packet.
    pub first_psn: Psn,
    /// How many sequence numbers it takes.
    pub span: u32,
    /// How many bytes it carries: as its header says, or as many as were seen.
    pub length: u64,
    /// When its first packet was sent, in nanoseconds since the first packet of the capture.
    pub begun: u64,
    /// When its last packet was sent for the first time.
    pub sent: u64,
    /// When it was answered.
    pub answered: Option<u64>,
    /// Its first packet in the capture.
    pub first: PacketId,
    /// The last of its packets or answers in the capture.
    pub last: PacketId,
    /// What acknowledged it, refused it or brought the last of its data.
    pub answer: Option<PacketId>,
    /// How many of its packets were captured, repeated ones included, answers not.
    pub packets: u32,
    /// How many packets were captured that answer it.
    pub answers: u32,
    /// How many of its packets were repeated.
    pub repeated: u32,
    /// How often the receiver was not ready for it.
    pub not_ready: u16,
}

impl Message {
    /// The sequence number of its last packet.
    pub fn last_psn(&self) -> Psn {
        self.first_psn + (self.span - 1)
    }

    /// From its last packet to its answer, in nanoseconds.
    pub fn answer_time(&self) -> Option<u64> {
        self.answered.map(|time| time.saturating_sub(self.sent))
    }

    /// What programs call it: `SEND`, `RDMA WRITE with immediate` and so on.
    pub fn name(&self) -> &'static str {
        name_of(self.operation, self.companion)
    }
}

/// What programs call the message that a packet of this opcode belongs to.
pub(crate) fn name_of(operation: Operation, companion: Companion) -> &'static str {
    match (operation, companion) {
        (Operation::Send, Companion::None) => "SEND",
        (Operation::Send, Companion::Immediate) => "SEND with immediate",
        (Operation::Send, Companion::Invalidate) => "SEND with invalidate",
        (Operation::Write, Companion::Immediate) => "RDMA WRITE with immediate",
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

/// What a packet is in words, as Wireshark's users know them: `RDMA WRITE Middle`.
pub fn describe(opcode: Opcode) -> String {
    let name = match opcode.operation() {
        Operation::Acknowledge => return "ACK".to_owned(),
        Operation::AtomicAcknowledge => return "ATOMIC response".to_owned(),
        Operation::ReadRequest => return "RDMA READ request".to_owned(),
        Operation::ReadResponse => "RDMA READ response",
        Operation::CongestionNotification => return "CNP".to_owned(),
        other => name_of(other, Companion::None),
    };
    let spans = matches!(
        opcode.operation(),
        Operation::Send | Operation::Write | Operation::ReadResponse
    );
    let position = if spans {
        format!(" {:?}", opcode.position())
    } else {
        String::new()
    };
    let companion = match opcode.companion() {
        Companion::None => "",
        Companion::Immediate => " Imm",
        Companion::Invalidate => " Inv",
    };
    format!("{name}{position}{companion}")
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The capture ends, or its answer is missing.
    Unanswered,
    /// All of it arrived, or all that was asked for came.
    Done,
    /// Nobody acknowledges this service.
    Unacknowledged,
    /// The receiver refused it: the requester's queue pair breaks.
    Refused(#[serde(serialize_with = "in_words")] wire::NakCode),
    /// The receiver was not ready, and the requester gave up or the capture ends.
    NotReady,
    /// It was repeated, and nobody ever answered.
    GivenUp,
    /// Not all of its packets are in the capture.
    Incomplete,
}

fn in_words<S: serde::Serializer>(code: &wire::NakCode, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(code)
}

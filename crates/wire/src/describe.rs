//! One-line text forms of packets and messages.

use std::fmt::{self, Display, Formatter, Write};

use crate::cm::{
    AlternatePathResponse, ConnectReply, ConnectRequest, DisconnectRequest, LoadAlternatePath,
    Message, ReceiptAcknowledge, Reject, ServiceReply, ServiceRequest,
};
use crate::extension;
use crate::header::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Extension, Feth, FlushPlacement, FlushRange, Immediate,
    NakCode, Reth, Syndrome,
};
use crate::mad;
use crate::number::Qpn;
use crate::opcode::{Modifier, Opcode, Operation, Position, Transport};
use crate::packet::Packet;

impl Display for Packet<'_> {
    /// For example `RC SEND_ONLY qp 0x000011 psn 1234 ack len 64`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} qp {} psn {}",
            self.opcode, self.destination, self.psn
        )?;
        self.describe_flags(f)?;
        for &extension in self.opcode.extensions() {
            f.write_char(' ')?;
            self.describe_extension(f, extension)?;
        }
        if self.opcode.carries_payload() {
            write!(f, " len {}", self.payload.len())?;
        }
        match self.held_packets() {
            Ok(held) if held.is_empty() => {}
            Ok(held) => write!(f, " held {held}")?,
            Err(_) => write!(f, " held unreadable")?,
        }
        match (self.message(), self.extension_message()) {
            (Some(message), _) => write!(f, " {message}"),
            (None, Some(message)) => write!(f, " {message}"),
            (None, None) => Ok(()),
        }
    }
}

impl Packet<'_> {
    /// The connection manager message in this packet, if there is one.
    pub fn message(&self) -> Option<Message> {
        let (_, message) = Message::parse(self.management_datagram()?).ok()?;
        Some(message)
    }

    /// The question or answer about extensions in this packet, if there is one.
    pub fn extension_message(&self) -> Option<extension::Message> {
        extension::Message::parse(self.management_datagram()?)
    }

    fn management_datagram(&self) -> Option<&[u8; mad::LENGTH]> {
        if self.destination != Qpn::GSI || self.opcode.transport() != Transport::Ud {
            return None;
        }
        self.payload.private()?.try_into().ok()
    }

    fn describe_flags(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let flags = [
            (self.acknowledge, "ack"),
            (self.solicited, "solicited"),
            (self.forward_congestion, "fecn"),
            (self.backward_congestion, "becn"),
        ];
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        Ok(())
    }

    fn describe_extension(&self, f: &mut Formatter<'_>, extension: Extension) -> fmt::Result {
        match extension {
            Extension::Xrceth => describe("srq", self.xrc_srq(), f),
            Extension::Deth => describe("", self.deth(), f),
            Extension::Reth => describe("", self.reth(), f),
            Extension::AtomicEth => self.describe_operands(f),
            Extension::Aeth => describe("", self.aeth(), f),
            Extension::AtomicAckEth => describe("", self.atomic_acknowledge(), f),
            Extension::Immediate => describe("imm", self.immediate(), f),
            Extension::Ieth => describe("inv", self.invalidate(), f),
            Extension::Feth => describe("", self.flush(), f),
        }
    }

    /// The meaning of the operands depends on the operation.
    fn describe_operands(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(atomic) = self.atomic() else {
            return Ok(());
        };
        write!(f, "{atomic} ")?;
        match self.opcode.operation() {
            Operation::FetchAdd => write!(f, "add {}", atomic.swap_or_add()),
            _ => write!(
                f,
                "compare {:#x} swap {:#x}",
                atomic.compare(),
                atomic.swap_or_add()
            ),
        }
    }
}

fn describe<T: Display>(name: &str, value: Option<T>, f: &mut Formatter<'_>) -> fmt::Result {
    let Some(value) = value else {
        return Ok(());
    };
    if name.is_empty() {
        write!(f, "{value}")
    } else {
        write!(f, "{name} {value}")
    }
}

impl Display for Opcode {
    /// For example `RC WRITE_LAST_IMM`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.transport() == Transport::Cnp {
            return f.write_str("CNP");
        }
        write!(f, "{} {}", self.transport(), self.operation())?;
        if self.operation().may_span_packets() {
            write!(f, "_{}", self.position())?;
        }
        match self.modifier() {
            Modifier::None => Ok(()),
            Modifier::Immediate => f.write_str("_IMM"),
            Modifier::Invalidate => f.write_str("_INV"),
        }
    }
}

impl Operation {
    fn may_span_packets(self) -> bool {
        use Operation::{ReadResponse, Send, Write};
        matches!(self, Send | Write | ReadResponse)
    }
}

impl Display for Transport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud => "UD",
            Transport::Xrc => "XRC",
            Transport::Cnp => "CNP",
        })
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Send => "SEND",
            Operation::Write => "WRITE",
            Operation::ReadRequest => "READ_REQUEST",
            Operation::ReadResponse => "READ_RESPONSE",
            Operation::Acknowledge => "ACKNOWLEDGE",
            Operation::AtomicAcknowledge => "ATOMIC_ACKNOWLEDGE",
            Operation::CompareSwap => "COMPARE_SWAP",
            Operation::FetchAdd => "FETCH_ADD",
            Operation::AtomicWrite => "ATOMIC_WRITE",
            Operation::Flush => "FLUSH",
            Operation::CongestionNotification => "CONGESTION_NOTIFICATION",
        })
    }
}

impl Display for Position {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Position::First => "FIRST",
            Position::Middle => "MIDDLE",
            Position::Last => "LAST",
            Position::Only => "ONLY",
        })
    }
}

impl Display for Reth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (address, key) = (self.virtual_address(), self.remote_key());
        write!(f, "va {address:#x} rkey {key} dma {}", self.dma_length())
    }
}

impl Display for AtomicEth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "va {:#x} rkey {}",
            self.virtual_address(),
            self.remote_key()
        )
    }
}

impl Display for AtomicAckEth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "was {:#x}", self.original())
    }
}

impl Display for Deth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "qkey {} from qp {}", self.queue_key(), self.source())
    }
}

impl Display for Immediate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", u32::from_be_bytes(self.bytes()))
    }
}

impl Display for Feth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.range() {
            Some(FlushRange::Range) => "range",
            Some(FlushRange::Region) => "region",
            None => "reserved range",
        })?;
        let placement = self.placement();
        if placement.contains(FlushPlacement::GLOBAL) {
            f.write_str(" global")?;
        }
        if placement.contains(FlushPlacement::PERSISTENT) {
            f.write_str(" persistent")?;
        }
        Ok(())
    }
}

impl Display for Aeth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn {}", self.syndrome(), self.message_sequence())
    }
}

impl Display for extension::Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            extension::Kind::Question => "asks whether held packets may be listed",
            extension::Kind::Answer { held_packets: true } => "held packets may be listed",
            extension::Kind::Answer {
                held_packets: false,
            } => "held packets may not be listed",
        })
    }
}

impl Display for Syndrome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Acknowledge { credits: None } => f.write_str("ACK"),
            Syndrome::Acknowledge {
                credits: Some(count),
            } => write!(f, "ACK credits {count}"),
            Syndrome::ReceiverNotReady(timer) => write!(f, "RNR {timer}"),
            Syndrome::Negative(code) => write!(f, "NAK {code}"),
            Syndrome::Reserved(byte) => write!(f, "reserved syndrome {byte:#04x}"),
        }
    }
}

impl Display for NakCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NakCode::SequenceError => "sequence error",
            NakCode::InvalidRequest => "invalid request",
            NakCode::RemoteAccess => "remote access error",
            NakCode::RemoteOperational => "remote operational error",
            NakCode::InvalidRdRequest => "invalid RD request",
        })
    }
}

impl Display for Message {
    /// For example `CM RTU id 0x4001c9d0 peer 0x57c2384b`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CM {} ", self.name())?;
        match self {
            Message::ConnectRequest(message) => describe_request(message, f),
            Message::ReceiptAcknowledge(message) => describe_receipt(message, f),
            Message::Reject(message) => describe_reject(message, f),
            Message::ConnectReply(message) => describe_reply(message, f),
            Message::ReadyToUse(message) => {
                write!(f, "id {} peer {}", message.local_id, message.remote_id)
            }
            Message::DisconnectRequest(message) => describe_disconnect(message, f),
            Message::DisconnectReply(message) => {
                write!(f, "id {} peer {}", message.local_id, message.remote_id)
            }
            Message::ServiceRequest(message) => describe_service_request(message, f),
            Message::ServiceReply(message) => describe_service_reply(message, f),
            Message::LoadAlternatePath(message) => describe_alternate(message, f),
            Message::AlternatePathResponse(message) => describe_alternate_response(message, f),
        }
    }
}

fn describe_request(request: &ConnectRequest, f: &mut Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "id {} service {} {} qpn {} psn {}",
        request.local_id,
        request.service_id,
        request.service,
        request.local_qpn,
        request.starting_psn
    )?;
    describe(" mtu", request.path_mtu, f)
}

fn describe_reply(reply: &ConnectReply, f: &mut Formatter<'_>) -> fmt::Result {
    let (local, remote) = (reply.local_id, reply.remote_id);
    let (qpn, psn) = (reply.local_qpn, reply.starting_psn);
    write!(f, "id {local} peer {remote} qpn {qpn} psn {psn}")
}

fn describe_receipt(receipt: &ReceiptAcknowledge, f: &mut Formatter<'_>) -> fmt::Result {
    let (local, remote) = (receipt.local_id, receipt.remote_id);
    let (message, timeout) = (receipt.message, receipt.service_timeout);
    write!(f, "id {local} peer {remote} of {message} within {timeout}")
}

fn describe_reject(reject: &Reject, f: &mut Formatter<'_>) -> fmt::Result {
    let (local, remote) = (reject.local_id, reject.remote_id);
    let (message, reason) = (reject.message, reject.reason);
    write!(f, "id {local} peer {remote} of {message}: {reason}")
}

fn describe_disconnect(request: &DisconnectRequest, f: &mut Formatter<'_>) -> fmt::Result {
    let (local, remote) = (request.local_id, request.remote_id);
    write!(f, "id {local} peer {remote} qpn {}", request.remote_qpn)
}

fn describe_service_request(request: &ServiceRequest, f: &mut Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "id {} service {}",
        request.request_id, request.service_id
    )
}

fn describe_service_reply(reply: &ServiceReply, f: &mut Formatter<'_>) -> fmt::Result {
    let (id, service, status) = (reply.request_id, reply.service_id, reply.status);
    write!(f, "id {id} service {service} {status}")?;
    write!(f, " qpn {} qkey {}", reply.qpn, reply.queue_key)
}

fn describe_alternate(load: &LoadAlternatePath, f: &mut Formatter<'_>) -> fmt::Result {
    let (local, remote) = (load.local_id, load.remote_id);
    let path = &load.alternate;
    write!(f, "id {local} peer {remote} qpn {} ", load.remote_qpn)?;
    write!(f, "path {} > {}", path.local_gid, path.remote_gid)
}

fn describe_alternate_response(
    response: &AlternatePathResponse,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let (local, remote) = (response.local_id, response.remote_id);
    write!(f, "id {local} peer {remote}: {}", response.status)
}

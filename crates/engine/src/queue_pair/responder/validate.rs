//! The checks of a request before it is executed, in the order of the specification.

use wire::{FlushPlacement, FlushRange, NakCode, Operation, Packet, Position};

use super::super::QueuePair;
use super::Message;
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::memory::{Access, Requirement};
use crate::planted_bug::Bug;
use crate::state::QueuePairType;
use crate::work_request::MAX_MESSAGE;

/// Why a request is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::queue_pair) enum Rejection {
    /// No receive is posted. The peer may retry.
    NotReady,
    /// The request ends the connection.
    Fatal {
        /// The NAK to send.
        nak: NakCode,
        /// The completion status of the message's receive, if it has one.
        receive: Option<Status>,
    },
}

impl Rejection {
    pub(in crate::queue_pair) const INVALID: Self = Self::Fatal {
        nak: NakCode::InvalidRequest,
        receive: None,
    };
    pub(in crate::queue_pair) const ACCESS: Self = Self::Fatal {
        nak: NakCode::RemoteAccess,
        receive: None,
    };
    pub(in crate::queue_pair) const TOO_LONG: Self = Self::Fatal {
        nak: NakCode::InvalidRequest,
        receive: Some(Status::LocalLength),
    };
    pub(in crate::queue_pair) const NOT_INVALIDATED: Self = Self::Fatal {
        nak: NakCode::RemoteAccess,
        receive: Some(Status::RemoteInvalidRequest),
    };
    pub(in crate::queue_pair) const RECEIVE_UNUSABLE: Self = Self::Fatal {
        nak: NakCode::RemoteOperational,
        receive: Some(Status::LocalProtection),
    };
}

impl QueuePair {
    /// IBA 9.7.4.1: a request is checked for the order of its opcodes, the operation, the resources of the
    /// responder, its lengths and its key, in this order. No check changes any state.
    pub(super) fn validate(
        &self,
        packet: &Packet<'_>,
        device: &DeviceState,
    ) -> Result<(), Rejection> {
        self.check_order(packet)?;
        self.check_packet_length(packet)?;
        self.check_service(packet)?;
        self.check_responder_resources(packet)?;
        self.check_receive(packet, device)?;
        self.check_message_length(packet)?;
        self.check_key(packet, device)?;
        self.check_invalidate(packet, device)
    }

    /// C9-167: a message is a First, any number of Middles and a Last of the same operation, or an Only. The
    /// same holds for reliable connections.
    pub(in crate::queue_pair) fn check_order(&self, packet: &Packet<'_>) -> Result<(), Rejection> {
        let operation = packet.opcode.operation();
        let fits = match (&self.responder.message, packet.opcode.position()) {
            (None, position) => position.starts(),
            (Some(_), Position::First | Position::Only) => false,
            (Some(Message::Send(_)), _) => operation == Operation::Send,
            (Some(Message::Write(_)), _) => operation == Operation::Write,
        };
        fits.then_some(()).ok_or(Rejection::INVALID)
    }

    /// C9-92: First and Middle carry exactly one path MTU, Last at least a byte.
    pub(in crate::queue_pair) fn check_packet_length(
        &self,
        packet: &Packet<'_>,
    ) -> Result<(), Rejection> {
        let mtu = self.link.map_or(0, |link| link.mtu());
        let length = packet.payload.len();
        let fits = match packet.opcode.position() {
            Position::First | Position::Middle => length == mtu,
            Position::Last => (1..=mtu).contains(&length),
            Position::Only => length <= mtu,
        };
        fits.then_some(()).ok_or(Rejection::INVALID)
    }

    /// The queue pair must grant the operation to its peer.
    #[inline]
    pub(super) fn check_service(&self, packet: &Packet<'_>) -> Result<(), Rejection> {
        let needed = needed_right(packet).ok_or(Rejection::INVALID)?;
        let granted = self.access().contains(needed);
        granted.then_some(()).ok_or(Rejection::INVALID)
    }

    /// The peer may have at most as many outstanding reads and atomics as agreed.
    #[inline]
    pub(super) fn check_responder_resources(&self, packet: &Packet<'_>) -> Result<(), Rejection> {
        let uses = matches!(
            packet.opcode.operation(),
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::AtomicWrite
                | Operation::Flush
        );
        if !uses {
            return Ok(());
        }
        let limit = usize::from(self.attributes.responder_resources.unwrap_or(0));
        if self.responder.pending_responses() < limit {
            Ok(())
        } else {
            Err(Rejection::INVALID)
        }
    }

    /// A message that consumes a receive needs one that is posted.
    fn check_receive(&self, packet: &Packet<'_>, device: &DeviceState) -> Result<(), Rejection> {
        let position = packet.opcode.position();
        let needs = match packet.opcode.operation() {
            Operation::Send => position.starts(),
            // C10-87: a WRITE consumes a receive only with immediate data, even if it is empty.
            Operation::Write => packet.immediate().is_some(),
            _ => false,
        };
        if !needs || !self.responder.hides_receives && self.has_receive(packet, device) {
            return Ok(());
        }
        let unknown_queue = self.init.kind == QueuePairType::XrcTarget
            && self.named_receive_queue(packet, device).is_none();
        if unknown_queue {
            Err(Rejection::INVALID)
        } else {
            Err(Rejection::NotReady)
        }
    }

    /// The length in the RETH, the bytes received so far and the bytes of this packet must agree.
    pub(in crate::queue_pair) fn check_message_length(
        &self,
        packet: &Packet<'_>,
    ) -> Result<(), Rejection> {
        let received = packet.payload.len() as u32;
        let total_length = packet.reth().map(wire::Reth::dma_length);
        let fits = match (packet.opcode.operation(), packet.opcode.position()) {
            (Operation::Write, Position::Only) => total_length == Some(received),
            (Operation::Write, Position::First) => total_length
                .is_some_and(|total| total > received && u64::from(total) <= MAX_MESSAGE),
            (Operation::Write, position) => self.continues_write(position, received),
            (Operation::ReadRequest, _) => {
                total_length.is_some_and(|total| u64::from(total) <= MAX_MESSAGE)
            }
            (Operation::AtomicWrite, _) => received == 8 && total_length == Some(8),
            (Operation::Flush, _) => packet.flush().is_some_and(|flush| flush.range().is_some()),
            _ => true,
        };
        fits.then_some(()).ok_or(Rejection::INVALID)
    }

    fn continues_write(&self, position: Position, received: u32) -> bool {
        let Some(Message::Write(writing)) = &self.responder.message else {
            return false;
        };
        match position {
            Position::Last => writing.remaining == received,
            _ => writing.remaining > received,
        }
    }

    /// The key must grant the operation for the whole range of the message.
    pub(in crate::queue_pair) fn check_key(
        &self,
        packet: &Packet<'_>,
        device: &DeviceState,
    ) -> Result<(), Rejection> {
        if let Some(atomic) = packet.atomic() {
            let address = atomic.virtual_address();
            if !address.is_multiple_of(8) {
                return Err(Rejection::INVALID);
            }
            let key = atomic.remote_key();
            return self.check_range(key, address, 8, Requirement::REMOTE_ATOMIC, device);
        }
        let Some(reth) = packet.reth() else {
            return Ok(());
        };
        let requirement = requirement(packet);
        let address = reth.virtual_address();
        // Annex A19.4.2: an ATOMIC WRITE needs an address that is a multiple of 8.
        if packet.opcode.operation() == Operation::AtomicWrite && !address.is_multiple_of(8) {
            return Err(Rejection::INVALID);
        }
        // Annex A19.4.1.2: a FLUSH of a whole region needs its key, but no range.
        let whole_region = packet
            .flush()
            .is_some_and(|flush| flush.range() == Some(FlushRange::Region));
        if whole_region {
            return self.check_key_without_range(reth.remote_key(), requirement, device);
        }
        // C9-88: the key of a zero-length request is not checked.
        if reth.dma_length() == 0 {
            return Ok(());
        }
        let length = u64::from(reth.dma_length());
        self.check_range(reth.remote_key(), address, length, requirement, device)
    }

    /// The peer must be allowed to invalidate the key of a SEND with invalidate (o10-37.2.26).
    fn check_invalidate(&self, packet: &Packet<'_>, device: &DeviceState) -> Result<(), Rejection> {
        let Some(key) = packet.invalidate() else {
            return Ok(());
        };
        let memory = device.objects.memory();
        memory
            .check_invalidate(self.accessor(), key)
            .map_err(|_| Rejection::NOT_INVALIDATED)
    }

    fn check_range(
        &self,
        key: wire::Key,
        address: u64,
        length: u64,
        requirement: Requirement,
        device: &DeviceState,
    ) -> Result<(), Rejection> {
        let requirement = if device.planted.is(Bug::RightsUnchecked) {
            Requirement::NOTHING
        } else {
            requirement
        };
        let memory = device.objects.memory();
        memory
            .remote(self.accessor(), key, address, length, requirement)
            .map(drop)
            .map_err(|_| Rejection::ACCESS)
    }

    fn check_key_without_range(
        &self,
        key: wire::Key,
        requirement: Requirement,
        device: &DeviceState,
    ) -> Result<(), Rejection> {
        let memory = device.objects.memory();
        memory
            .permits(self.accessor(), key, requirement)
            .map_err(|_| Rejection::ACCESS)
    }
}

/// The access right that a request needs. `None` if no peer may send such a request.
pub(super) fn needed_right(packet: &Packet<'_>) -> Option<Access> {
    Some(match packet.opcode.operation() {
        Operation::Send => Access::empty(),
        Operation::Write | Operation::AtomicWrite => Access::REMOTE_WRITE,
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        Operation::Flush => flush_rights(packet),
        _ => return None,
    })
}

/// The access right that a request needs for the memory it names.
pub(super) fn requirement(packet: &Packet<'_>) -> Requirement {
    Requirement::of(needed_right(packet).unwrap_or_default())
}

/// Annex A19.4.1.1: each placement type of a FLUSH needs a right of its own.
fn flush_rights(packet: &Packet<'_>) -> Access {
    let mut needed = Access::empty();
    if let Some(flush) = packet.flush() {
        let placement = flush.placement();
        let global = placement.contains(FlushPlacement::GLOBAL);
        let persistent = placement.contains(FlushPlacement::PERSISTENT);
        needed.set(Access::FLUSH_GLOBAL, global);
        needed.set(Access::FLUSH_PERSISTENT, persistent);
    }
    needed
}

//! Finds out why a request was rejected: repeats the checks, only for incidents.

use wire::{NakCode, Operation, Packet, Psn};

use super::super::QueuePair;
use super::validate::{needed_right, requirement};
use super::{Message, Rejection};
use crate::device_state::DeviceState;
use crate::incident::{Incident, ReceiveFault, RejectedRequest, RequestFault, Target};
use crate::memory::{AccessError, Requirement};

impl QueuePair {
    /// Notes that a request is about to be rejected.
    #[cold]
    pub(in crate::queue_pair) fn note_rejection(
        &self,
        packet: &Packet<'_>,
        rejection: Rejection,
        nak: Option<NakCode>,
        device: &mut DeviceState,
    ) {
        if !device.incidents.are_recorded() {
            return;
        }
        let rejected = RejectedRequest {
            queue_pair: self.number,
            peer: self.peer(),
            operation: packet.opcode.operation(),
            psn: packet.psn,
            target: self.target(packet),
            nak,
            fault: self.request_fault(packet, rejection, device),
        };
        device
            .incidents
            .note(|| Incident::RequestRejected(rejected));
    }

    /// Notes that memory was deregistered while a peer was reading it.
    #[cold]
    pub(super) fn note_lost_read(&self, psn: Psn, target: Target, device: &mut DeviceState) {
        let operation = Operation::ReadRequest;
        let requirement = Requirement::REMOTE_READ;
        let fault = self.fault_at(target, requirement, device);
        device.incidents.note(|| {
            Incident::RequestRejected(RejectedRequest {
                queue_pair: self.number,
                peer: self.peer(),
                operation,
                psn,
                target: Some(target),
                nak: Some(NakCode::RemoteAccess),
                fault,
            })
        });
    }

    fn target(&self, packet: &Packet<'_>) -> Option<Target> {
        if let Some(atomic) = packet.atomic() {
            return Some(Target {
                key: atomic.remote_key(),
                address: atomic.virtual_address(),
                length: 8,
            });
        }
        if let Some(reth) = packet.reth() {
            return Some(Target {
                key: reth.remote_key(),
                address: reth.virtual_address(),
                length: reth.dma_length(),
            });
        }
        match &self.responder.message {
            Some(Message::Write(writing)) => Some(Target {
                key: writing.key,
                address: writing.address,
                length: writing.remaining,
            }),
            _ => None,
        }
    }

    fn request_fault(
        &self,
        packet: &Packet<'_>,
        rejection: Rejection,
        device: &DeviceState,
    ) -> RequestFault {
        match rejection {
            Rejection::TOO_LONG => self.too_small(packet).map(RequestFault::Receive),
            Rejection::RECEIVE_UNUSABLE => self.unusable(device).map(RequestFault::Receive),
            Rejection::NOT_INVALIDATED => self.not_invalidated(packet, device),
            Rejection::ACCESS => self.memory_fault(packet, device),
            _ => self.invalidity(packet),
        }
        .unwrap_or(RequestFault::Malformed)
    }

    fn not_invalidated(&self, packet: &Packet<'_>, device: &DeviceState) -> Option<RequestFault> {
        let key = packet.invalidate()?;
        let memory = device.objects.memory();
        let error = memory.check_invalidate(self.accessor(), key).err()?;
        Some(RequestFault::Invalidate { key, error })
    }

    fn too_small(&self, packet: &Packet<'_>) -> Option<ReceiveFault> {
        let Some(Message::Send(receiving)) = &self.responder.message else {
            return None;
        };
        Some(ReceiveFault::TooSmall {
            id: receiving.request.id,
            capacity: receiving.request.capacity(),
            needed: u64::from(receiving.filled) + packet.payload.len() as u64,
        })
    }

    fn unusable(&self, device: &DeviceState) -> Option<ReceiveFault> {
        let Some(Message::Send(receiving)) = &self.responder.message else {
            return None;
        };
        let segments = &receiving.request.segments;
        let memory = device.objects.memory();
        let fault = memory.fault_in(receiving.domain, segments, Requirement::LOCAL_WRITE);
        Some(ReceiveFault::Unusable {
            id: receiving.request.id,
            fault,
        })
    }

    fn memory_fault(&self, packet: &Packet<'_>, device: &DeviceState) -> Option<RequestFault> {
        Some(self.fault_at(self.target(packet)?, requirement(packet), device))
    }

    /// Why a range can't be used. If nothing forbids it, the access itself failed.
    fn fault_at(
        &self,
        target: Target,
        requirement: Requirement,
        device: &DeviceState,
    ) -> RequestFault {
        let length = u64::from(target.length);
        let (key, address) = (target.key, target.address);
        let memory = device.objects.memory();
        let tried = memory.remote(self.accessor(), key, address, length, requirement);
        RequestFault::Memory {
            error: tried.err().unwrap_or(AccessError::NotMapped),
            key_range: memory.key_range(key),
        }
    }

    /// The check that finds the request invalid.
    fn invalidity(&self, packet: &Packet<'_>) -> Option<RequestFault> {
        self.check_order(packet).ok()?;
        if self.check_packet_length(packet).is_err() {
            return Some(RequestFault::PacketLength {
                length: packet.payload.len(),
                mtu: self.link.map_or(0, |link| link.mtu()),
            });
        }
        if let Some(needed) = needed_right(packet)
            && self.check_service(packet).is_err()
        {
            return Some(RequestFault::NotGranted(needed.difference(self.access())));
        }
        if self.check_responder_resources(packet).is_err() {
            let limit = self.attributes.responder_resources.unwrap_or(0);
            return Some(RequestFault::TooManyReads { limit });
        }
        self.check_message_length(packet).ok()?;
        is_unaligned(packet).then_some(RequestFault::Unaligned)
    }
}

fn is_unaligned(packet: &Packet<'_>) -> bool {
    let address = match packet.atomic() {
        Some(atomic) => Some(atomic.virtual_address()),
        None if packet.opcode.operation() == Operation::AtomicWrite => {
            packet.reth().map(wire::Reth::virtual_address)
        }
        None => None,
    };
    address.is_some_and(|address| !address.is_multiple_of(8))
}

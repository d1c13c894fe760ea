//! Execution of admitted requests.

use std::sync::atomic::{Ordering, fence};

use wire::{Key, NakCode, Operation, Packet};

use super::super::QueuePair;
use super::super::send_queue::in_packets;
use super::duplicates::SavedResponse;
use super::response_queue::{Response, Result64};
use super::validate::Rejection;
use super::{Message, Receiving, Writing};
use crate::completion::{CompletedWork, Completion, Status};
use crate::device_state::DeviceState;
use crate::memory::{InMessage, Requirement};
use crate::observation::{Observation, RemoteAccess, RemoteAccessKind};

impl QueuePair {
    /// Executes the request and advances the expected PSN.
    pub(super) fn execute(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), Rejection> {
        let span = match packet.opcode.operation() {
            Operation::Send => self.deliver_send(packet, device).map(|()| 1)?,
            Operation::Write => self.deliver_write(packet, device).map(|()| 1)?,
            Operation::ReadRequest => self.begin_read(packet, device),
            Operation::CompareSwap | Operation::FetchAdd => self.do_atomic(packet, device)?,
            Operation::AtomicWrite => self.do_atomic_write(packet, device)?,
            Operation::Flush => self.do_flush(packet),
            _ => return Err(Rejection::INVALID),
        };
        self.responder.expected = packet.psn + span;
        self.responder.nak_sent = None;
        if packet.acknowledge && !has_response(packet.opcode.operation()) {
            self.responder.push_acknowledge(packet.psn);
        }
        Ok(())
    }

    /// Copies the data of a SEND packet into its receive. The last packet completes the receive.
    pub(in crate::queue_pair) fn deliver_send(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), Rejection> {
        if packet.opcode.position().starts() {
            let receiving = self
                .take_receive(packet, device)
                .ok_or(Rejection::NotReady)?;
            self.compare_contents(&receiving, device);
            self.responder.message = Some(Message::Send(receiving));
        }
        let Some(Message::Send(receiving)) = &mut self.responder.message else {
            return Err(Rejection::INVALID);
        };
        let filled = receiving.filled + packet.payload.len() as u32;
        if u64::from(filled) > receiving.request.capacity() {
            return Err(Rejection::TOO_LONG);
        }
        let segments = &receiving.request.segments;
        let offset = u64::from(receiving.filled);
        let ends = packet.opcode.position().ends();
        let memory = device.objects.memory();
        memory
            .scatter(receiving.domain, segments, offset, packet.payload, ends)
            .map_err(|_| Rejection::RECEIVE_UNUSABLE)?;
        drop(memory);
        receiving.filled = filled;
        if ends {
            self.finish_send(packet, device)?;
        }
        Ok(())
    }

    /// Compares the memory of a receive with what was there when it was posted. Until now the device has not changed it.
    fn compare_contents(&self, receiving: &Receiving, device: &mut DeviceState) {
        let Some(before) = receiving.contents else {
            return;
        };
        let now = device.contents_of(receiving.domain, &receiving.request.segments);
        if now.is_some_and(|now| now != before) {
            device.observations.note(|| Observation::ReceiveChanged {
                queue_pair: self.number,
                id: receiving.request.id,
            });
        }
    }

    fn finish_send(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), Rejection> {
        if let Some(key) = packet.invalidate() {
            let mut memory = device.objects.memory_mut();
            let invalidated = memory.invalidate(self.accessor(), key);
            invalidated.map_err(|_| Rejection::NOT_INVALIDATED)?;
        }
        let Some(Message::Send(receiving)) = self.responder.message.take() else {
            return Err(Rejection::INVALID);
        };
        self.count_message();
        let length = receiving.filled;
        self.complete_receive(&receiving, CompletedWork::Receive, length, packet, device);
        Ok(())
    }

    /// Copies the data of a WRITE packet to its address.
    pub(in crate::queue_pair) fn deliver_write(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), Rejection> {
        let mut writing = self.writing(packet).ok_or(Rejection::INVALID)?;
        // Before anything is changed: a queue pair of another device may take the last receive of a shared queue.
        let receiving = match packet.immediate() {
            Some(_) => Some(
                self.take_receive(packet, device)
                    .ok_or(Rejection::NotReady)?,
            ),
            None => None,
        };
        let brought = packet.payload.len() as u32;
        if brought > 0 {
            let length = u64::from(brought);
            // The key was checked with the first packet, but the memory may have been deregistered
            // since.
            let (key, address) = (writing.key, writing.address);
            let (accessor, requirement) = (self.accessor(), Requirement::NOTHING);
            let place = InMessage {
                starts: packet.opcode.position().starts(),
                following: u64::from(writing.remaining.saturating_sub(brought)),
            };
            let stored = (device.objects.memory())
                .remote(accessor, key, address, length, requirement)
                .and_then(|view| view.store(0, packet.payload, place));
            if stored.is_err() {
                receiving.into_iter().for_each(|it| self.put_back(it));
                return Err(Rejection::ACCESS);
            }
            self.observe_access(RemoteAccessKind::Write, key, address, brought, device);
        }
        writing.address += u64::from(brought);
        writing.remaining = writing.remaining.saturating_sub(brought);
        if !packet.opcode.position().ends() {
            self.responder.message = Some(Message::Write(writing));
            return Ok(());
        }
        self.responder.message = None;
        self.count_message();
        if let Some(receiving) = receiving {
            let work = CompletedWork::ReceiveWriteImmediate;
            self.complete_receive(&receiving, work, writing.total, packet, device);
        }
        Ok(())
    }

    fn writing(&self, packet: &Packet<'_>) -> Option<Writing> {
        if let Some(reth) = packet.reth() {
            return Some(Writing {
                key: reth.remote_key(),
                address: reth.virtual_address(),
                remaining: reth.dma_length(),
                total: reth.dma_length(),
            });
        }
        match &self.responder.message {
            Some(Message::Write(writing)) => Some(*writing),
            _ => None,
        }
    }

    pub(in crate::queue_pair) fn count_message(&mut self) {
        self.responder.count_message();
        self.counters.messages_received += 1;
    }

    fn complete_receive(
        &mut self,
        receiving: &Receiving,
        work: CompletedWork,
        length: u32,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) {
        let completion = Completion {
            id: receiving.request.id,
            status: Status::Success,
            work,
            length,
            queue_pair: self.number,
            immediate: packet.immediate().map(wire::Immediate::bytes),
            invalidated: packet.invalidate(),
            source: None,
        };
        device.counters.receives_completed += 1;
        device.observations.note(|| Observation::MessageReceived {
            queue_pair: self.number,
            // The message has been counted.
            message: self.responder.completed.wrapping_sub(1) & 0xff_ffff,
        });
        device.complete(&receiving.completions, completion, packet.solicited);
    }

    /// Queues the responses of a read. The memory is read when they are sent.
    fn begin_read(&mut self, packet: &Packet<'_>, device: &mut DeviceState) -> u32 {
        let (Some(reth), Some(link)) = (packet.reth(), self.link) else {
            return 1;
        };
        let (key, address) = (reth.remote_key(), reth.virtual_address());
        let length = reth.dma_length();
        self.observe_access(RemoteAccessKind::Read, key, address, length, device);
        let packets = in_packets(reth.dma_length(), link.mtu);
        self.count_message();
        self.save_response(SavedResponse::read(packet.psn, packets, reth));
        let completed = self.responder.completed;
        let response = Response::read(self.accessor(), packet.psn, packets, reth, completed);
        self.responder.push_response(response);
        packets
    }

    fn do_atomic(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<u32, Rejection> {
        let atomic = packet.atomic().ok_or(Rejection::INVALID)?;
        let (operand, compare) = (atomic.swap_or_add(), atomic.compare());
        let (key, address) = (atomic.remote_key(), atomic.virtual_address());
        let memory = device.objects.memory();
        let view = memory
            .remote(self.accessor(), key, address, 8, Requirement::NOTHING)
            .map_err(|_| Rejection::ACCESS)?;
        let original = match packet.opcode.operation() {
            Operation::FetchAdd => view.update_word(|word| word.wrapping_add(operand)),
            _ => view.update_word(|word| if word == compare { operand } else { word }),
        };
        let original = original
            .map_err(|_| Rejection::ACCESS)?
            .ok_or(Rejection::Fatal {
                nak: NakCode::RemoteOperational,
                receive: None,
            })?;
        drop(memory);
        self.observe_access(RemoteAccessKind::Atomic, key, address, 8, device);
        self.answer(packet, Result64::Original(original));
        Ok(1)
    }

    /// oA19-28: an ATOMIC WRITE changes 8 bytes of memory that its key names, or gets a NAK.
    fn do_atomic_write(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<u32, Rejection> {
        let reth = packet.reth().ok_or(Rejection::INVALID)?;
        let bytes = packet.payload.to_vec();
        let bytes = bytes.try_into().map_err(|_| Rejection::INVALID)?;
        let word = u64::from_ne_bytes(bytes);
        let (key, address) = (reth.remote_key(), reth.virtual_address());
        (device.objects.memory())
            .remote(self.accessor(), key, address, 8, Requirement::NOTHING)
            .and_then(|view| view.update_word(|_| word))
            .map_err(|_| Rejection::ACCESS)?
            .ok_or(Rejection::INVALID)?;
        self.observe_access(RemoteAccessKind::Atomic, key, address, 8, device);
        self.answer(packet, Result64::Nothing);
        Ok(1)
    }

    /// Records an access that was rejected.
    pub(super) fn observe_rejection(&self, packet: &Packet<'_>, device: &mut DeviceState) {
        let (kind, key, address, length) = match (packet.atomic(), packet.reth()) {
            (Some(it), _) => {
                let kind = RemoteAccessKind::Atomic;
                (kind, it.remote_key(), it.virtual_address(), 8)
            }
            (None, Some(reth)) => {
                let kind = match packet.opcode.operation() {
                    Operation::ReadRequest => RemoteAccessKind::Read,
                    _ => RemoteAccessKind::Write,
                };
                let length = reth.dma_length();
                (kind, reth.remote_key(), reth.virtual_address(), length)
            }
            (None, None) => return,
        };
        let access = self.remote_access(kind, key, address, length);
        device
            .observations
            .note(|| Observation::AccessRejected(access));
    }

    fn remote_access(
        &self,
        kind: RemoteAccessKind,
        key: Key,
        address: u64,
        length: u32,
    ) -> RemoteAccess {
        RemoteAccess {
            queue_pair: self.number,
            kind,
            key,
            address,
            length,
            message: self.responder.completed,
        }
    }

    #[inline]
    fn observe_access(
        &self,
        kind: RemoteAccessKind,
        key: Key,
        address: u64,
        length: u32,
        device: &mut DeviceState,
    ) {
        (device.observations).note_access(|| self.remote_access(kind, key, address, length));
    }

    /// Earlier writes are plain stores. A fence makes them visible to all threads.
    fn do_flush(&mut self, packet: &Packet<'_>) -> u32 {
        fence(Ordering::SeqCst);
        self.answer(packet, Result64::Nothing);
        1
    }

    fn answer(&mut self, packet: &Packet<'_>, result: Result64) {
        self.count_message();
        self.save_response(SavedResponse::result(packet.psn, result));
        let completed = self.responder.completed;
        self.responder
            .push_response(Response::result(packet.psn, result, completed));
    }
}

/// Whether the request has a response other than an acknowledgement.
fn has_response(operation: Operation) -> bool {
    !matches!(operation, Operation::Send | Operation::Write)
}

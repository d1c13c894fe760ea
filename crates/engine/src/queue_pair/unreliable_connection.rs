//! Unreliable connections: a message arrives complete and in order, or not at all.

use wire::{NakCode, Operation, Packet};

use super::responder::{Message, Rejection};
use super::segmentation::Piece;
use super::send_queue::Progress;
use super::{PeerRoute, QueuePair};
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::event::AsyncEvent;
use crate::memory::Access;
use crate::state::State;
use crate::transmit::Batch;

impl QueuePair {
    /// Sends messages. Each completes when its last packet is sent.
    pub(super) fn transmit_unreliable(&mut self, batch: &mut Batch<'_>, device: &mut DeviceState) {
        let Some(link) = self.link else { return };
        while let Some(front) = self.send.front() {
            if front.work().is_local() {
                if !self.may_start_message() {
                    return;
                }
                self.do_local_work_now(device);
                continue;
            }
            let first = match front.first() {
                Some(first) => first,
                None if !self.may_start_message() => return,
                None => self.number_message(),
            };
            let Some(front) = self.send.front() else {
                return;
            };
            let index = self.requester.cursor().ahead_of(first);
            let piece = front.piece(self.init.kind.transport(), index, link.mtu(), 1);
            if !batch.admits(&link.route, piece.opcode.header_length(), piece.payload) {
                return;
            }
            if self.send_unreliable(&piece, &link, batch, device).is_err() {
                return self.fail_send_queue(Status::LocalProtection, device);
            }
            if piece.opcode.position().ends() {
                self.complete_send(Status::Success, device);
                self.announce_drained(device);
            }
        }
    }

    fn may_start_message(&self) -> bool {
        self.state == State::ReadyToSend
    }

    fn number_message(&mut self) -> wire::Psn {
        let first = self.requester.cursor();
        if let Some(front) = self.send.at_mut(0) {
            front.progress = Progress::Begun {
                first,
                sequence: 0,
                piece: 1,
            };
        }
        first
    }

    fn send_unreliable(
        &mut self,
        piece: &Piece,
        link: &PeerRoute,
        batch: &mut Batch<'_>,
        device: &DeviceState,
    ) -> Result<(), crate::memory::AccessError> {
        let Some(front) = self.send.front() else {
            return Ok(());
        };
        let head = front
            .head(piece, link.peer, self.requester.cursor(), device.planted)
            .partition(self.partition());
        let memory = device.objects.memory();
        batch.push(&link.route, head, piece.payload, |out| {
            front.fill(piece, &memory, self.init.domain, out)
        })?;
        self.requester.step();
        Ok(())
    }

    fn do_local_work_now(&mut self, device: &mut DeviceState) {
        let Some(work) = self.send.front().map(|front| *front.work()) else {
            return;
        };
        match self.execute_local(&work, device) {
            Ok(()) => self.complete_send(Status::Success, device),
            Err(status) => self.fail_send_queue(status, device),
        }
    }

    /// Handles a packet of the peer. A packet that does not fit is dropped silently.
    pub(super) fn handle_unreliable(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        self.note_established(device);
        let starts = packet.opcode.position().starts();
        // C9-166: the PSN tells whether a packet is missing.
        let in_sequence = packet.psn == self.responder.expected;
        if starts || !in_sequence {
            // A new message or a gap: the message before it cannot be completed.
            self.drop_message(device);
        }
        self.responder.expected = packet.psn + 1;
        if !starts && self.responder.message.is_none() {
            return;
        }
        match self.accept_unreliable(packet, device) {
            Ok(()) => {}
            Err(
                rejection @ Rejection::Fatal {
                    nak: NakCode::RemoteOperational,
                    ..
                },
            ) => {
                self.note_rejection(packet, rejection, None, device);
                // The receive itself is unusable, which is an error of the local application.
                self.fail_message(Status::LocalProtection, device);
                device.raise(AsyncEvent::QueuePairFatal(self.number));
                self.fail(device);
            }
            Err(rejection) => {
                if matches!(rejection, Rejection::ACCESS | Rejection::TOO_LONG) {
                    self.note_rejection(packet, rejection, None, device);
                }
                // A message of a single packet is dropped before `message` is set, so it is counted
                // here.
                device.counters.dropped_messages += u64::from(self.responder.message.is_none());
                self.drop_message(device);
            }
        }
    }

    fn accept_unreliable(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), Rejection> {
        self.check_order(packet)?;
        self.check_packet_length(packet)?;
        self.check_message_length(packet)?;
        if packet.opcode.operation() == Operation::Send {
            return self.deliver_send(packet, device);
        }
        // C9-168: the queue pair must grant the operation.
        if !self.access().contains(Access::REMOTE_WRITE) {
            return Err(Rejection::NotReady);
        }
        self.check_key(packet, device)?;
        // C9-169: a message that consumes a receive needs one that is posted.
        if packet.immediate().is_some() && !self.has_receive(packet, device) {
            return Err(Rejection::NotReady);
        }
        self.deliver_write(packet, device)
    }

    /// Discards an unfinished message. Its receive is used for the next message.
    fn drop_message(&mut self, device: &mut DeviceState) {
        let Some(message) = self.responder.message.take() else {
            return;
        };
        device.counters.dropped_messages += 1;
        let Message::Send(receiving) = message else {
            return;
        };
        self.put_back(receiving);
    }
}

//! Responses of the responder: acknowledgements, NAKs and the data of reads, in sequence.

use wire::{
    Aeth, AtomicAckEth, HeldPackets, Key, Modifier, NakCode, Opcode, Operation, PacketHead,
    Position, Psn, Reth, Syndrome,
};

use super::super::{PeerRoute, QueuePair};
use super::{Message, Responder};
use crate::device_state::DeviceState;
use crate::incident::Target;
use crate::memory::{AccessError, Accessor, InMessage, Requirement};
use crate::now::Now;
use crate::observation::Observation;
use crate::transmit::Batch;

/// The maximum number of queued responses. Further ones are dropped; the peer repeats its request.
const MAX_RESPONSES: usize = 1024;

/// A queued response to the peer.
#[derive(Debug, Clone, Copy)]
pub(in crate::queue_pair) struct Response {
    psn: Psn,
    /// How many messages were complete when the response was queued.
    completed: u32,
    content: Content,
    /// Whether it answers a duplicate. Such a response does not count as outstanding.
    is_duplicate: bool,
}

#[derive(Debug, Clone, Copy)]
enum Content {
    Acknowledge,
    /// An acknowledgement that is sent only if it can list what is held behind a gap.
    Held,
    Negative(Syndrome),
    Read(Reading),
    Result(Result64),
}

/// The result of an operation on one 64-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Result64 {
    /// The value before the operation.
    Original(u64),
    /// No value: the operation is done.
    Nothing,
}

/// The rest of a read that is being answered.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// The queue pair that reads, and its protection domain.
    accessor: Accessor,
    key: Key,
    address: u64,
    remaining: u32,
    packets: u32,
    /// Whether the first response has been sent.
    started: bool,
}

impl Response {
    pub(super) fn read(
        accessor: Accessor,
        psn: Psn,
        packets: u32,
        reth: &Reth,
        completed: u32,
    ) -> Self {
        let reading = Reading {
            accessor,
            key: reth.remote_key(),
            address: reth.virtual_address(),
            remaining: reth.dma_length(),
            packets,
            started: false,
        };
        Self {
            psn,
            completed,
            content: Content::Read(reading),
            is_duplicate: false,
        }
    }

    pub(super) fn result(psn: Psn, result: Result64, completed: u32) -> Self {
        Self {
            psn,
            completed,
            content: Content::Result(result),
            is_duplicate: false,
        }
    }

    /// Whether it is a NAK that ends the connection.
    fn is_final(&self) -> bool {
        match self.content {
            Content::Negative(Syndrome::Negative(code)) => code != NakCode::SequenceError,
            _ => false,
        }
    }

    /// Whether it will answer the request with this `psn`.
    fn will_answer(&self, psn: Psn) -> bool {
        match self.content {
            Content::Read(reading) => psn.ahead_of(self.psn) < reading.packets,
            Content::Result(_) => psn == self.psn,
            Content::Acknowledge | Content::Held | Content::Negative(_) => false,
        }
    }
}

impl Responder {
    pub(in crate::queue_pair) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Whether the only queued response is an acknowledgement.
    pub(in crate::queue_pair) fn only_acknowledges(&self) -> bool {
        self.responses.len() == 1 && matches!(self.responses[0].content, Content::Acknowledge)
    }

    /// Whether data of reads is being sent: the beginning of the first one was sent, or several wait.
    pub(in crate::queue_pair) fn is_streaming(&self) -> bool {
        let mut reads = self
            .responses
            .iter()
            .filter_map(|response| match response.content {
                Content::Read(reading) => Some(reading.started),
                _ => None,
            });
        reads
            .next()
            .is_some_and(|started| started || reads.next().is_some())
    }

    /// How many messages it has completed, modulo 2^24.
    #[inline]
    pub(in crate::queue_pair) fn completed(&self) -> u32 {
        self.completed
    }

    #[inline]
    pub(super) fn count_message(&mut self) {
        self.completed = (self.completed + 1) & 0xff_ffff;
    }

    /// How many reads and atomics are not answered yet.
    pub(super) fn pending_responses(&self) -> usize {
        self.responses
            .iter()
            .filter(|response| !response.is_duplicate)
            .filter(|response| matches!(response.content, Content::Read(_) | Content::Result(_)))
            .count()
    }

    /// Queues an acknowledgement. It also acknowledges all earlier packets (IBA 9.7.5.1.2), so a newer one
    /// replaces a queued one.
    pub(in crate::queue_pair) fn push_acknowledge(&mut self, psn: Psn) {
        let response = Response {
            psn,
            completed: self.completed,
            content: Content::Acknowledge,
            is_duplicate: false,
        };
        match self.responses.back_mut() {
            Some(last) if matches!(last.content, Content::Acknowledge | Content::Held) => {
                *last = response;
            }
            _ => self.push_response(response),
        }
    }

    /// Queues a list of what is held behind the expected packet, unless the newest response will have one.
    pub(super) fn push_held(&mut self) {
        let psn = self.expected - 1;
        let lists = |newest: &Response| match newest.content {
            Content::Acknowledge | Content::Held => newest.psn == psn,
            Content::Negative(_) => newest.psn == self.expected,
            Content::Read(_) | Content::Result(_) => false,
        };
        if !self.responses.back().is_some_and(lists) {
            self.push_response(Response {
                psn,
                completed: self.completed,
                content: Content::Held,
                is_duplicate: false,
            });
        }
    }

    pub(super) fn push_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        self.push_response(Response {
            psn,
            completed: self.completed,
            content: Content::Negative(syndrome),
            is_duplicate: false,
        });
    }

    pub(super) fn push_response(&mut self, response: Response) {
        if self.responses.len() < MAX_RESPONSES {
            self.responses.push_back(response);
        }
    }

    /// Queues the response to a duplicate at its position in the sequence, unless it is already
    /// queued.
    pub(super) fn insert_response(&mut self, response: Response) {
        if self.responses.len() >= MAX_RESPONSES
            || self
                .responses
                .iter()
                .any(|queued| queued.will_answer(response.psn))
        {
            return;
        }
        let later = |queued: &Response| queued.psn.since(response.psn) > 0;
        let index = self.responses.iter().position(later);
        let response = Response {
            is_duplicate: true,
            ..response
        };
        self.responses
            .insert(index.unwrap_or(self.responses.len()), response);
    }

    /// A queue pair in the error state still sends its final NAK and the responses before it.
    pub(in crate::queue_pair) fn keep_responses_before_final_nak(&mut self) {
        let ends_in_nak = self.responses.back().is_some_and(Response::is_final);
        if !ends_in_nak {
            self.responses.clear();
        }
    }
}

impl QueuePair {
    pub(in crate::queue_pair) fn transmit_responses(
        &mut self,
        now: &Now,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) {
        let Some(link) = self.link else { return };
        let had_responses = self.responder.has_responses();
        self.transmit_queued_responses(now, &link, batch, device);
        if had_responses && !self.responder.has_responses() {
            device
                .observations
                .note(|| Observation::Answered(self.number));
        }
    }

    fn transmit_queued_responses(
        &mut self,
        now: &Now,
        link: &PeerRoute,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) {
        while let Some(response) = self.responder.responses.front().copied() {
            let sent = match response.content {
                Content::Acknowledge => {
                    let held = self.held_behind(&response, now, device);
                    self.send_acknowledgement(&response, self.credits(), &held, link, batch)
                }
                Content::Held => {
                    let held = self.held_behind(&response, now, device);
                    if held.is_empty() {
                        self.responder.responses.pop_front();
                        continue;
                    }
                    self.send_acknowledgement(&response, self.credits(), &held, link, batch)
                }
                Content::Negative(syndrome) => {
                    let held = self.held_behind(&response, now, device);
                    self.send_acknowledgement(&response, syndrome, &held, link, batch)
                }
                Content::Result(result) => self.send_result(&response, result, link, batch),
                Content::Read(reading) => {
                    match self.send_read(&response, reading, link, batch, device) {
                        Ok(sent) => sent,
                        Err(_) => {
                            self.abort_read(&response, device);
                            continue;
                        }
                    }
                }
            };
            if !sent {
                return;
            }
        }
    }

    /// What this acknowledgement lists. One that was overtaken by requests lists nothing.
    fn held_behind(&self, response: &Response, now: &Now, device: &mut DeviceState) -> HeldPackets {
        let missing = match response.content {
            Content::Negative(Syndrome::Negative(NakCode::SequenceError)) => response.psn,
            Content::Acknowledge | Content::Held => response.psn + 1,
            _ => return HeldPackets::default(),
        };
        if missing == self.responder.expected {
            self.held_packets(now, device)
        } else {
            HeldPackets::default()
        }
    }

    /// The acknowledgement syndrome with credits. Shared receives are not reported, because other
    /// queue pairs may take them.
    fn credits(&self) -> Syndrome {
        Syndrome::Acknowledge {
            credits: self.own_credits(),
        }
    }

    /// How many receives are posted, if that is reported.
    #[inline]
    pub(in crate::queue_pair) fn own_credits(&self) -> Option<u32> {
        let own_queue = self.init.shared_receive.is_none() && self.init.xrc_domain.is_none();
        let in_progress = matches!(self.responder.message, Some(Message::Send(_)));
        let count = self.receive.len() as u32 + u32::from(in_progress);
        (self.settings.advertise_credits && own_queue).then_some(count)
    }

    /// The length of the headers of an acknowledgement.
    pub(in crate::queue_pair) fn acknowledgement_length(&self) -> usize {
        let opcode = self.response_opcode(Operation::Acknowledge, Position::Only);
        opcode.header_length()
    }

    fn send_acknowledgement(
        &mut self,
        response: &Response,
        syndrome: Syndrome,
        held: &HeldPackets,
        link: &PeerRoute,
        batch: &mut Batch<'_>,
    ) -> bool {
        let opcode = self.response_opcode(Operation::Acknowledge, Position::Only);
        if !batch.admits(&link.route, opcode.header_length(), held.length()) {
            return false;
        }
        let head = self
            .response_head(opcode, response.psn, link)
            .push(&Aeth::new(syndrome, response.completed));
        batch.push_with(&link.route, head, held.length(), |out| {
            held.emit(|part| out.extend_from_slice(part));
        });
        self.responder.responses.pop_front();
        true
    }

    fn send_result(
        &mut self,
        response: &Response,
        result: Result64,
        link: &PeerRoute,
        batch: &mut Batch<'_>,
    ) -> bool {
        let operation = match result {
            Result64::Original(_) => Operation::AtomicAcknowledge,
            // Flushes and atomic writes are answered like an empty read.
            Result64::Nothing => Operation::ReadResponse,
        };
        let opcode = self.response_opcode(operation, Position::Only);
        if !batch.admits(&link.route, opcode.header_length(), 0) {
            return false;
        }
        let head = self
            .response_head(opcode, response.psn, link)
            .push(&Aeth::new(self.credits(), response.completed));
        let head = match result {
            Result64::Original(word) => head.push(&AtomicAckEth::new(word)),
            Result64::Nothing => head,
        };
        batch.push_bare(&link.route, head);
        self.responder.responses.pop_front();
        true
    }

    /// Sends the next response of a read. Returns whether it fits the batch.
    fn send_read(
        &mut self,
        response: &Response,
        reading: Reading,
        link: &PeerRoute,
        batch: &mut Batch<'_>,
        device: &DeviceState,
    ) -> Result<bool, AccessError> {
        let position = match (reading.started, reading.packets == 1) {
            (false, true) => Position::Only,
            (false, false) => Position::First,
            (true, true) => Position::Last,
            (true, false) => Position::Middle,
        };
        let opcode = self.response_opcode(Operation::ReadResponse, position);
        let length = (reading.remaining as usize).min(link.mtu());
        if !batch.admits(&link.route, opcode.header_length(), length) {
            return Ok(false);
        }
        let mut head = self.response_head(opcode, response.psn, link);
        if position != Position::Middle {
            head = head.push(&Aeth::new(self.credits(), response.completed));
        }
        let accessor = reading.accessor;
        let place = InMessage {
            starts: !reading.started,
            following: u64::from(reading.remaining) - length as u64,
        };
        batch.push(&link.route, head, length, |out| {
            if length == 0 {
                return Ok(());
            }
            let size = length as u64;
            let rights = Requirement::REMOTE_READ;
            let (key, address) = (reading.key, reading.address);
            let memory = device.objects.memory();
            let view = memory.remote(accessor, key, address, size, rights)?;
            view.append_to(out, 0, length, place)
        })?;
        self.advance_read(reading, length as u32);
        Ok(true)
    }

    fn advance_read(&mut self, reading: Reading, sent: u32) {
        if reading.packets == 1 {
            self.responder.responses.pop_front();
        } else if let Some(response) = self.responder.responses.front_mut() {
            response.psn += 1;
            response.content = Content::Read(Reading {
                address: reading.address + u64::from(sent),
                remaining: reading.remaining - sent,
                packets: reading.packets - 1,
                started: true,
                ..reading
            });
        }
    }

    /// The memory of a read was deregistered: the peer gets a NAK and the connection ends.
    ///
    /// A duplicate read is the exception: the peer may have revoked the memory itself after the
    /// first response.
    fn abort_read(&mut self, response: &Response, device: &mut DeviceState) {
        self.responder.responses.pop_front();
        if response.is_duplicate {
            return;
        }
        if let Content::Read(reading) = response.content {
            let target = Target {
                key: reading.key,
                address: reading.address,
                length: reading.remaining,
            };
            self.note_lost_read(response.psn, target, device);
        }
        self.responder.responses.clear();
        let nak = NakCode::RemoteAccess;
        self.responder
            .push_nak(response.psn, Syndrome::Negative(nak));
        device.raise(crate::event::AsyncEvent::AccessError(self.number));
        self.fail(device);
    }

    fn response_head(&self, opcode: Opcode, psn: Psn, link: &PeerRoute) -> PacketHead {
        PacketHead::new(opcode, link.peer, psn).partition(self.partition())
    }

    fn response_opcode(&self, operation: Operation, position: Position) -> Opcode {
        let transport = self.init.kind.transport();
        Opcode::find(transport, operation, position, Modifier::None)
            .expect("reliable services have all responses")
    }
}

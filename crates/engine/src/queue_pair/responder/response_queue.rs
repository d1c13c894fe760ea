//! Replies of the responder: acknowledgements, NAKs and the data of reads, in sequence.

use wire::{
    Aeth, AtomicAckEth, Key, Modifier, NakCode, Opcode, Operation, PacketHead, Position, Psn, Reth,
    Syndrome,
};

use super::super::{Link, QueuePair};
use super::{Message, Responder};
use crate::incident::Target;
use crate::memory::{AccessError, Accessor, Requirement};
use crate::observation::Observation;
use crate::shared::Shared;
use crate::transmit::Batch;

/// The maximum number of queued replies. Further ones are dropped; the peer repeats its request.
const MAX_REPLIES: usize = 1024;

/// A queued reply to the peer.
#[derive(Debug, Clone, Copy)]
pub(in crate::queue_pair) struct Reply {
    psn: Psn,
    /// How many messages were complete when the reply was queued.
    completed: u32,
    content: Content,
    /// Whether it answers a duplicate. Such replies do not count as outstanding responses.
    repeated: bool,
}

#[derive(Debug, Clone, Copy)]
enum Content {
    Acknowledge,
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

impl Reply {
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
            repeated: false,
        }
    }

    pub(super) fn result(psn: Psn, result: Result64, completed: u32) -> Self {
        Self {
            psn,
            completed,
            content: Content::Result(result),
            repeated: false,
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
            Content::Acknowledge | Content::Negative(_) => false,
        }
    }
}

impl Responder {
    pub(in crate::queue_pair) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether the only queued reply is an acknowledgement.
    pub(in crate::queue_pair) fn only_acknowledges(&self) -> bool {
        self.replies.len() == 1 && matches!(self.replies[0].content, Content::Acknowledge)
    }

    pub(super) fn count_message(&mut self) {
        self.completed = (self.completed + 1) & 0xff_ffff;
    }

    /// How many reads and atomics are not answered yet.
    pub(super) fn pending_responses(&self) -> usize {
        self.replies
            .iter()
            .filter(|reply| !reply.repeated)
            .filter(|reply| matches!(reply.content, Content::Read(_) | Content::Result(_)))
            .count()
    }

    /// Queues an acknowledgement. It also acknowledges all earlier packets (IBA 9.7.5.1.2), so a newer one
    /// replaces a queued one.
    pub(in crate::queue_pair) fn push_acknowledge(&mut self, psn: Psn) {
        let reply = Reply {
            psn,
            completed: self.completed,
            content: Content::Acknowledge,
            repeated: false,
        };
        match self.replies.back_mut() {
            Some(last) if matches!(last.content, Content::Acknowledge) => *last = reply,
            _ => self.push_reply(reply),
        }
    }

    pub(super) fn push_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        self.push_reply(Reply {
            psn,
            completed: self.completed,
            content: Content::Negative(syndrome),
            repeated: false,
        });
    }

    pub(super) fn push_reply(&mut self, reply: Reply) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back(reply);
        }
    }

    /// Queues the reply to a duplicate at its position in the sequence, unless it is already
    /// queued.
    pub(super) fn insert_reply(&mut self, reply: Reply) {
        if self.replies.len() >= MAX_REPLIES
            || self
                .replies
                .iter()
                .any(|queued| queued.will_answer(reply.psn))
        {
            return;
        }
        let later = |queued: &Reply| queued.psn.since(reply.psn) > 0;
        let index = self.replies.iter().position(later);
        let reply = Reply {
            repeated: true,
            ..reply
        };
        self.replies
            .insert(index.unwrap_or(self.replies.len()), reply);
    }

    /// A queue pair in the error state still sends its final NAK and the replies before it.
    pub(in crate::queue_pair) fn keep_replies_before_final_nak(&mut self) {
        let ends_in_nak = self.replies.back().is_some_and(Reply::is_final);
        if !ends_in_nak {
            self.replies.clear();
        }
    }
}

impl QueuePair {
    pub(in crate::queue_pair) fn transmit_replies(
        &mut self,
        batch: &mut Batch<'_>,
        shared: &mut Shared,
    ) {
        let Some(link) = self.link else { return };
        let had_replies = self.responder.has_replies();
        self.transmit_queued_replies(&link, batch, shared);
        if had_replies && !self.responder.has_replies() {
            shared
                .observations
                .note(|| Observation::Answered(self.number));
        }
    }

    fn transmit_queued_replies(&mut self, link: &Link, batch: &mut Batch<'_>, shared: &mut Shared) {
        while let Some(reply) = self.responder.replies.front().copied() {
            let sent = match reply.content {
                Content::Acknowledge => {
                    self.send_acknowledgement(&reply, self.credits(), link, batch)
                }
                Content::Negative(syndrome) => {
                    self.send_acknowledgement(&reply, syndrome, link, batch)
                }
                Content::Result(result) => self.send_result(&reply, result, link, batch),
                Content::Read(reading) => {
                    match self.send_read(&reply, reading, link, batch, shared) {
                        Ok(sent) => sent,
                        Err(_) => {
                            self.abort_read(&reply, shared);
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

    /// The acknowledgement syndrome with credits. Shared receives are not reported, because other
    /// queue pairs may take them.
    fn credits(&self) -> Syndrome {
        let own_queue = self.init.shared_receive.is_none() && self.init.xrc_domain.is_none();
        let in_progress = matches!(self.responder.message, Some(Message::Send(_)));
        let count = self.receive.len() as u32 + u32::from(in_progress);
        Syndrome::Acknowledge {
            credits: (self.settings.advertise_credits && own_queue).then_some(count),
        }
    }

    fn send_acknowledgement(
        &mut self,
        reply: &Reply,
        syndrome: Syndrome,
        link: &Link,
        batch: &mut Batch<'_>,
    ) -> bool {
        let opcode = self.response_opcode(Operation::Acknowledge, Position::Only);
        if !batch.admits(&link.route, opcode.header_length(), 0) {
            return false;
        }
        let head = self
            .response_head(opcode, reply.psn, link)
            .push(&Aeth::new(syndrome, reply.completed));
        batch.push_bare(&link.route, head);
        self.responder.replies.pop_front();
        true
    }

    fn send_result(
        &mut self,
        reply: &Reply,
        result: Result64,
        link: &Link,
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
            .response_head(opcode, reply.psn, link)
            .push(&Aeth::new(self.credits(), reply.completed));
        let head = match result {
            Result64::Original(word) => head.push(&AtomicAckEth::new(word)),
            Result64::Nothing => head,
        };
        batch.push_bare(&link.route, head);
        self.responder.replies.pop_front();
        true
    }

    /// Sends the next response of a read. Returns whether it fits the batch.
    fn send_read(
        &mut self,
        reply: &Reply,
        reading: Reading,
        link: &Link,
        batch: &mut Batch<'_>,
        shared: &Shared,
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
        let mut head = self.response_head(opcode, reply.psn, link);
        if position != Position::Middle {
            head = head.push(&Aeth::new(self.credits(), reply.completed));
        }
        let accessor = reading.accessor;
        batch.push(&link.route, head, length, |out| {
            if length == 0 {
                return Ok(());
            }
            let size = length as u64;
            let rights = Requirement::REMOTE_READ;
            let (key, address) = (reading.key, reading.address);
            let memory = shared.objects.memory();
            let view = memory.remote(accessor, key, address, size, rights)?;
            view.append_to(out, 0, length)
        })?;
        self.advance_read(reading, length as u32);
        Ok(true)
    }

    fn advance_read(&mut self, reading: Reading, sent: u32) {
        if reading.packets == 1 {
            self.responder.replies.pop_front();
        } else if let Some(reply) = self.responder.replies.front_mut() {
            reply.psn += 1;
            reply.content = Content::Read(Reading {
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
    fn abort_read(&mut self, reply: &Reply, shared: &mut Shared) {
        self.responder.replies.pop_front();
        if reply.repeated {
            return;
        }
        if let Content::Read(reading) = reply.content {
            let target = Target {
                key: reading.key,
                address: reading.address,
                length: reading.remaining,
            };
            self.note_lost_read(reply.psn, target, shared);
        }
        self.responder.replies.clear();
        let nak = NakCode::RemoteAccess;
        self.responder.push_nak(reply.psn, Syndrome::Negative(nak));
        shared.raise(crate::event::AsyncEvent::AccessError(self.number));
        self.fail(shared);
    }

    fn response_head(&self, opcode: Opcode, psn: Psn, link: &Link) -> PacketHead {
        PacketHead::new(opcode, link.peer, psn).partition(self.partition())
    }

    fn response_opcode(&self, operation: Operation, position: Position) -> Opcode {
        let transport = self.init.kind.transport();
        Opcode::find(transport, operation, position, Modifier::None)
            .expect("reliable services have all responses")
    }
}

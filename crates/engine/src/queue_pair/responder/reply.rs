//! What the responder says: acknowledgements, NAKs, and the data of reads, in sequence.

use wire::{
    Aeth, AtomicAckEth, Companion, Key, NakCode, Opcode, Operation, PacketHead, Position, Psn,
    Reth, Syndrome,
};

use super::super::{Link, QueuePair};
use super::{Message, Responder};
use crate::incident::Target;
use crate::memory::{AccessError, Party, Requirement};
use crate::shared::Shared;
use crate::transmit::Batch;

/// More replies than this are never queued: the peer asks again for what it misses.
const MAX_REPLIES: usize = 1024;

/// Something to tell the peer.
#[derive(Debug, Clone, Copy)]
pub(in crate::queue_pair) struct Reply {
    psn: Psn,
    /// How many messages were complete when it was queued.
    completed: u32,
    content: Content,
    /// Whether it was given before, so that it takes none of the peer's share of responses.
    again: bool,
}

#[derive(Debug, Clone, Copy)]
enum Content {
    Acknowledge,
    Negative(Syndrome),
    Read(Reading),
    Result(Result64),
}

/// The result of an operation on one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Result64 {
    /// What the word was before.
    Original(u64),
    /// That it is done.
    Nothing,
}

/// Memory on its way to the peer.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// On whose behalf.
    party: Party,
    key: Key,
    address: u64,
    remaining: u32,
    packets: u32,
    /// Whether its first response has been sent.
    started: bool,
}

impl Reply {
    pub(super) fn read(party: Party, psn: Psn, packets: u32, reth: &Reth, completed: u32) -> Self {
        let reading = Reading {
            party,
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
            again: false,
        }
    }

    pub(super) fn result(psn: Psn, result: Result64, completed: u32) -> Self {
        Self {
            psn,
            completed,
            content: Content::Result(result),
            again: false,
        }
    }

    /// Whether it tells the end of the connection.
    fn is_final(&self) -> bool {
        match self.content {
            Content::Negative(Syndrome::Negative(code)) => code != NakCode::SequenceError,
            _ => false,
        }
    }

    /// Whether it is the data of a read that gives all from `psn` on.
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

    /// Whether all there is to say is one acknowledgement.
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
            .filter(|reply| !reply.again)
            .filter(|reply| matches!(reply.content, Content::Read(_) | Content::Result(_)))
            .count()
    }

    /// Acknowledgements are cumulative: a newer one takes the place of one that is still queued.
    pub(in crate::queue_pair) fn push_acknowledge(&mut self, psn: Psn) {
        let reply = Reply {
            psn,
            completed: self.completed,
            content: Content::Acknowledge,
            again: false,
        };
        match self.replies.back_mut() {
            Some(last) if matches!(last.content, Content::Acknowledge) => *last = reply,
            _ => self.push_reply(reply),
        }
    }

    pub(super) fn push_verdict(&mut self, psn: Psn, syndrome: Syndrome) {
        self.push_reply(Reply {
            psn,
            completed: self.completed,
            content: Content::Negative(syndrome),
            again: false,
        });
    }

    pub(super) fn push_reply(&mut self, reply: Reply) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back(reply);
        }
    }

    /// Queues an answer that is given again in its place in the sequence, unless it is queued yet.
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
        let place = self.replies.iter().position(later);
        let reply = Reply {
            again: true,
            ..reply
        };
        self.replies
            .insert(place.unwrap_or(self.replies.len()), reply);
    }

    /// A broken queue pair still says why it broke, and what came before that.
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
        while let Some(reply) = self.responder.replies.front().copied() {
            let sent = match reply.content {
                Content::Acknowledge => self.send_verdict(&reply, self.credits(), &link, batch),
                Content::Negative(syndrome) => self.send_verdict(&reply, syndrome, &link, batch),
                Content::Result(result) => self.send_result(&reply, result, &link, batch),
                Content::Read(reading) => {
                    match self.send_read(&reply, reading, &link, batch, shared) {
                        Ok(sent) => sent,
                        Err(_) => {
                            self.give_up_read(&reply, shared);
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

    /// AETH credits tell a peer how many receives are posted; shared ones can't be promised.
    fn credits(&self) -> Syndrome {
        let own_queue = self.init.shared_receive.is_none() && self.init.xrc_domain.is_none();
        let in_progress = matches!(self.responder.message, Some(Message::Send(_)));
        let count = self.receive.len() as u32 + u32::from(in_progress);
        Syndrome::Acknowledge {
            credits: (self.settings.advertise_credits && own_queue).then_some(count),
        }
    }

    fn send_verdict(
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
            // Flushes and atomic writes are answered like a read of nothing.
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

    /// Sends the next response of a read; whether it fitted.
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
        let party = reading.party;
        batch.push(&link.route, head, length, |out| {
            if length == 0 {
                return Ok(());
            }
            let size = length as u64;
            let rights = Requirement::REMOTE_READ;
            let (key, address) = (reading.key, reading.address);
            let view = shared.memory.remote(party, key, address, size, rights)?;
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

    /// Memory went away while it was read: the peer is told, and the connection ends.
    ///
    /// Unless the read was answered before: then a late copy of the request asks for it, and the
    /// peer may have closed the memory itself since then.
    fn give_up_read(&mut self, reply: &Reply, shared: &mut Shared) {
        self.responder.replies.pop_front();
        if reply.again {
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
        self.responder
            .push_verdict(reply.psn, Syndrome::Negative(nak));
        shared.raise(crate::event::AsyncEvent::AccessError(self.number));
        self.fail(shared);
    }

    fn response_head(&self, opcode: Opcode, psn: Psn, link: &Link) -> PacketHead {
        PacketHead::new(opcode, link.peer, psn).partition(self.partition())
    }

    fn response_opcode(&self, operation: Operation, position: Position) -> Opcode {
        let transport = self.init.kind.transport();
        Opcode::find(transport, operation, position, Companion::None)
            .expect("reliable services have all responses")
    }
}

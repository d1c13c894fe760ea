//! Responses: acknowledgements, READ and atomic responses, and NAKs.

use wire::{NakCode, Operation, Syndrome};

use super::Context;
use super::position::StreamPosition;
use super::recovery::{Cause, Recovery};
use super::report;
use super::stream::{FAR, Found, LONGEST_JUMP, Stream};
use crate::message::Outcome;
use crate::packet::{Marks, Packet, Role};
use crate::typed_index::{MessageId, PacketId};

/// After this many responses without a new request for missing data, the data counts as received.
const UNHEEDED: u64 = 512;

impl Stream {
    /// Handles a response to a request of this stream.
    pub(super) fn take_response(&mut self, id: PacketId, context: &mut Context<'_>) {
        let packet = context.packets[id.index()];
        let Some(position) = self.position_of_response(id, &packet, context) else {
            context.packets[id.index()].marks |= Marks::STRAY;
            return;
        };
        let found = self.message_at(position, context);
        if let Some(found) = found {
            context.packets[id.index()].message = Some(found.id);
            let message = &mut context.messages[found.id.index()];
            message.responses += 1;
            message.last = message.last.max(id);
        }
        // Captured only at its sender: it was lost.
        if packet.marks.contains(Marks::LOST) {
            return;
        }
        self.last_heard = Some(packet.time);
        let syndrome = context
            .heads
            .syndrome(&packet)
            .unwrap_or(Syndrome::UNLIMITED);
        match (packet.role, syndrome) {
            (Role::Response, _) => self.take_response_data(position, found, id, context),
            (_, Syndrome::Acknowledge { .. }) => self.take_acknowledge(position, id, context),
            (_, Syndrome::ReceiverNotReady(timer)) => {
                self.settle(position, id, context);
                if let Some(found) = found {
                    context.messages[found.id.index()].not_ready += 1;
                }
                let delay = timer.delay().as_nanos() as u64;
                self.note_nak(Cause::NotReady { delay }, position, id, context);
            }
            (_, Syndrome::Negative(NakCode::SequenceError)) => {
                self.settle(position, id, context);
                let lost = self.mark_lost(position, context);
                self.note_nak(Cause::Sequence { lost }, position, id, context);
            }
            (_, Syndrome::Negative(code)) => {
                self.take_rejection(code, position, found, id, context);
            }
            (_, Syndrome::Reserved(_)) => {}
        }
    }

    /// The position of the request that this answers; none if there is no such request.
    fn position_of_response(
        &mut self,
        id: PacketId,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Option<StreamPosition> {
        let Some((next, psn)) = self.next else {
            self.orphans.add(id);
            return None;
        };
        let jump = packet.psn.since(psn);
        let position = self.position_of(packet.psn)?;
        if jump < 0 && jump > -LONGEST_JUMP {
            return Some(position);
        }
        let data = packet.opcode.operation() == Operation::ReadResponse;
        if data && (0..LONGEST_JUMP).contains(&jump) && self.ends_with_read(context) {
            self.stretch_read(position, context);
            return Some(position);
        }
        // A NAK for the next position: the packet was lost before the capture point.
        if packet.role == Role::Reject && position == next {
            return Some(position);
        }
        self.unknown_responses.add(id);
        None
    }

    /// A read with an unknown path MTU uses as many PSNs as its response has packets.
    fn stretch_read(&mut self, position: StreamPosition, context: &mut Context<'_>) {
        let psn = self.psn_at(position);
        if let Some((&start, &read)) = self.messages.last_key_value() {
            context.messages[read.index()].span = (position + 1 - start) as u32;
        }
        self.next = Some((position + 1, psn + 1));
    }

    fn take_acknowledge(
        &mut self,
        position: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) {
        if position < self.acknowledged {
            context.packets[id.index()].marks |= Marks::NEEDLESS;
        }
        if self.settle(position + 1, id, context) {
            self.resolve(position, id, context);
        }
    }

    /// Data of a read, or the result of an atomic operation.
    fn take_response_data(
        &mut self,
        position: StreamPosition,
        found: Option<Found>,
        id: PacketId,
        context: &mut Context<'_>,
    ) {
        let Some(found) = found else {
            return;
        };
        if context.messages[found.id.index()].operation != Operation::ReadRequest {
            return self.take_acknowledge(position, id, context);
        }
        if !self.settle(found.start, id, context) {
            return;
        }
        let wanted = self.acknowledged;
        if position > wanted {
            let missing = position - wanted;
            self.note_nak(Cause::DataLost { missing }, wanted, id, context);
        } else if position < wanted {
            context.packets[id.index()].marks |= Marks::RETRANSMITTED;
        } else {
            self.acknowledged = position + 1;
            self.resolve(position, id, context);
            self.settle(position + 1, id, context);
        }
    }

    fn take_rejection(
        &mut self,
        code: NakCode,
        position: StreamPosition,
        found: Option<Found>,
        id: PacketId,
        context: &mut Context<'_>,
    ) {
        self.settle(position, id, context);
        let time = context.packets[id.index()].time;
        if let Some(found) = found {
            let message = &mut context.messages[found.id.index()];
            message.outcome = Outcome::Rejected(code);
            message.response = Some(id);
            message.answered = Some(time);
        }
        if !self.rejected {
            report::rejection(self, code, found.map(|found| found.id), id, context);
        }
        self.rejected = true;
        self.resolve(position, id, context);
    }

    /// A response acknowledges everything before a position. If data of an earlier read is missing, the
    /// requester drops the response and requests the data again.
    fn settle(&mut self, until: StreamPosition, id: PacketId, context: &mut Context<'_>) -> bool {
        self.answered = self.answered.max(until);
        while let Some((&start, &message)) = self.messages.range(self.settled..).next() {
            let end = start + u64::from(context.messages[message.index()].span);
            // A message that is not completely sent is acknowledged only up to here.
            let is_last = self.messages.last_key_value().map(|(last, _)| *last) == Some(start);
            let unfinished = self.goes_on && is_last;
            if end > until || (unfinished && end == until) {
                break;
            }
            let is_read = context.messages[message.index()].operation == Operation::ReadRequest;
            if is_read && self.acknowledged < end && self.misses_data(start, end, id, context) {
                return false;
            }
            self.complete(message, id, context);
            self.settled = start + 1;
        }
        self.acknowledged = self.acknowledged.max(until);
        self.forget_settled();
        true
    }

    /// Data of a read did not arrive before a later response. Reports it, unless only the capture missed
    /// it.
    fn misses_data(
        &mut self,
        start: StreamPosition,
        end: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) -> bool {
        let wanted = self.acknowledged.max(start);
        let missing = end - wanted;
        self.note_nak(Cause::DataLost { missing }, wanted, id, context);
        let found = self.recoveries.iter().position(|recovery| {
            let ignored = recovery.retransmitted == 0 && recovery.naks > UNHEEDED;
            recovery.is_data_lost() && recovery.at == wanted && ignored
        });
        let Some(found) = found else {
            return true;
        };
        let recovery = self.recoveries.remove(found);
        report::not_captured(self, &recovery, context);
        false
    }

    fn complete(&self, message: MessageId, id: PacketId, context: &mut Context<'_>) {
        let time = context.packets[id.index()].time;
        let message = &mut context.messages[message.index()];
        if message.response.is_none() {
            message.outcome = Outcome::Done;
            message.response = Some(id);
            message.answered = Some(time);
        }
    }

    /// Keeps acknowledged packets for a while, because they may be retransmitted.
    fn forget_settled(&mut self) {
        const KEPT: usize = 4096;
        while self.in_flight.len() > KEPT {
            match self.in_flight.front() {
                Some(&(position, _)) if position < self.acknowledged => self.in_flight.pop_front(),
                _ => return,
            };
        }
    }

    /// The last packet that was sent at a position did not arrive, or not in time.
    fn mark_lost(
        &mut self,
        position: StreamPosition,
        context: &mut Context<'_>,
    ) -> Option<PacketId> {
        let mut packets = self.in_flight.iter().rev().take(FAR);
        let &(_, id) = packets.find(|&&(at, _)| at == position)?;
        let marks = &mut context.packets[id.index()].marks;
        *marks |= if marks.contains(Marks::LEFT_HERE | Marks::CAME_HERE) {
            Marks::LATE
        } else {
            Marks::LOST
        };
        Some(id)
    }

    /// Starts a recovery at a position, or adds to the one that is there.
    fn note_nak(
        &mut self,
        cause: Cause,
        position: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) {
        self.report_overcome(context);
        let time = context.packets[id.index()].time;
        let same = self.recoveries.iter_mut().find(|recovery| {
            recovery.at == position && recovery.cause.is_like(&cause) && recovery.overcome.is_none()
        });
        if let Some(recovery) = same {
            return recovery.add_nak(time);
        }
        if self.joins_the_last(|recovery| recovery.add_nak(time)) {
            return;
        }
        let message = self.message_at(position, context).map(|found| found.id);
        let recovery = Recovery::new(cause, position, message, id, time);
        self.recoveries.push(recovery);
    }

    /// A response at a position ends the recoveries before it. They are reported after their last
    /// retransmission.
    fn resolve(&mut self, position: StreamPosition, id: PacketId, context: &Context<'_>) {
        let time = context.packets[id.index()].time;
        for recovery in self
            .recoveries
            .iter_mut()
            .filter(|recovery| recovery.at <= position)
        {
            recovery.overcome.get_or_insert(time);
        }
    }

    /// Reports the recoveries that have ended.
    pub(super) fn report_overcome(&mut self, context: &mut Context<'_>) {
        if self
            .recoveries
            .iter()
            .all(|recovery| recovery.overcome.is_none())
        {
            return;
        }
        let recoveries = std::mem::take(&mut self.recoveries);
        for recovery in recoveries {
            match recovery.overcome {
                Some(time) => report::overcome(self, &recovery, time, context),
                None => self.recoveries.push(recovery),
            }
        }
    }
}

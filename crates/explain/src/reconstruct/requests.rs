//! Requests: finds the message of a packet, and whether it is a retransmission.

use wire::{Operation, Position, Transport};

use super::Context;
use super::position::StreamPosition;
use super::recovery::{Cause, Recovery};
use super::stream::{FAR, Found, Hole, LONGEST_JUMP, Stream};
use crate::anomaly::{Anomaly, AnomalyKind};
use crate::message::{Message, Outcome};
use crate::packet::{Marks, Packet, Role};
use crate::text_format::psn_range;
use crate::typed_index::{MessageId, PacketId};

impl Stream {
    /// Handles a request packet of a connected service.
    pub(super) fn request(&mut self, id: PacketId, context: &mut Context<'_>) {
        let packet = context.packets[id.index()];
        self.check_size(id, &packet);
        let Some(position) = self.start(id, &packet, context) else {
            return;
        };
        let (next, _) = self.next.unwrap_or_default();
        if position >= next {
            if position > next {
                self.leave_hole(next, position, id, context);
            }
            return self.take_new(position, id, context);
        }
        if self.fill_hole(position) {
            context.packets[id.index()].marks |= Marks::LATE;
            return self.take_late(position, id, context);
        }
        if self.cuts_short(position, &packet, context) {
            return self.take_new(position, id, context);
        }
        self.take_retransmitted(position, id, context);
    }

    /// Handles a datagram. It is a complete message.
    pub(super) fn datagram(&mut self, id: PacketId, context: &mut Context<'_>) {
        let packet = context.packets[id.index()];
        let message = MessageId::new(context.messages.len());
        context.messages.push(new_message(id, &packet, 1));
        context.packets[id.index()].message = Some(message);
    }

    /// The position of a packet. The first packet sets the start.
    fn start(
        &mut self,
        id: PacketId,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Option<StreamPosition> {
        let end = &mut context.connections[self.connection.index()].ends[self.side.index()];
        end.first_psn.get_or_insert(packet.psn);
        if self.next.is_none() {
            self.begin_at(packet.psn);
            self.compare_with_agreement(id, packet, context);
        }
        let (_, next) = self.next?;
        let jump = packet.psn.since(next);
        let unreliable = packet.opcode.transport() == Transport::Uc;
        if jump.abs() > LONGEST_JUMP || (unreliable && jump < 0) {
            self.begin_at(packet.psn);
        }
        self.position_of(packet.psn)
    }

    /// Compares the first PSN with the one of the handshake.
    fn compare_with_agreement(&mut self, id: PacketId, packet: &Packet, context: &mut Context<'_>) {
        /// The capture may miss the first packets.
        const FEW: i32 = 4096;
        let Some(agreed) = self.agreed_psn else {
            return;
        };
        let ahead = packet.psn.since(agreed);
        if (0..FEW).contains(&ahead) {
            self.begin_at(agreed);
            return;
        }
        let who = context.name(self.connection, self.side);
        context.report(Anomaly {
            is_open: false,
            kind: AnomalyKind::WrongFirstPsn,
            time: packet.time,
            sentence: format!(
                "{who} was to start with PSN {agreed} and starts with {}.",
                packet.psn
            ),
            connection: Some(self.connection),
            message: None,
            packet: Some(id),
        });
    }

    /// C9-92: First and Middle carry exactly one path MTU, no packet more.
    fn check_size(&mut self, id: PacketId, packet: &Packet) {
        let (length, full) = (u64::from(packet.length), self.path_mtu);
        let must_be_full = matches!(packet.opcode.position(), Position::First | Position::Middle);
        if full > 0 && (length > full || (must_be_full && length != full)) {
            self.wrong_sizes.add(id);
        }
    }

    fn leave_hole(
        &mut self,
        from: StreamPosition,
        to: StreamPosition,
        before: PacketId,
        context: &mut Context<'_>,
    ) {
        let packet = context.packets[before.index()];
        if packet.opcode.transport() == Transport::Uc {
            self.goes_on = false;
            let who = context.name(self.connection, self.side);
            let missing = psn_range(self.psn_at(from), to - from);
            context.report(Anomaly {
                is_open: false,
                kind: AnomalyKind::UnreliableLoss,
                time: packet.time,
                sentence: format!("{missing} of {who} is missing, and with it the whole message."),
                connection: Some(self.connection),
                message: None,
                packet: Some(before),
            });
            return;
        }
        let hole = Hole {
            begin: from,
            end: to,
            before,
        };
        self.holes.insert(from, hole);
    }

    /// Removes a position from the holes; returns whether it was one.
    fn fill_hole(&mut self, position: StreamPosition) -> bool {
        let before = self.holes.range(..=position).next_back();
        let Some(&hole) = before
            .map(|(_, hole)| hole)
            .filter(|hole| position < hole.end)
        else {
            return false;
        };
        self.holes.remove(&hole.begin);
        let halves = [(hole.begin, position), (position + 1, hole.end)];
        for (begin, end) in halves.into_iter().filter(|(begin, end)| begin < end) {
            self.holes.insert(begin, Hole { begin, end, ..hole });
        }
        true
    }

    /// Only a read uses PSNs without packets. Another request inside its range shows that it uses fewer
    /// than computed.
    fn cuts_short(
        &mut self,
        position: StreamPosition,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(found) = self.message_at(position, context) else {
            return false;
        };
        if self.messages.last_key_value() != Some((&found.start, &found.id)) {
            return false;
        }
        let message = &mut context.messages[found.id.index()];
        let inside_read = message.operation == Operation::ReadRequest && position > found.start;
        if !inside_read || packet.opcode.operation() == Operation::ReadRequest {
            return false;
        }
        message.span = (position - found.start) as u32;
        true
    }

    fn take_new(&mut self, position: StreamPosition, id: PacketId, context: &mut Context<'_>) {
        let packet = context.packets[id.index()];
        let span = self.span(&packet, context);
        self.next = Some((position + span, packet.psn + span as u32));
        self.replayed = None;
        self.in_flight.push_back((position, id));
        self.report_overcome(context);
        let message = match self.messages.last_key_value() {
            Some((&start, &last)) if self.goes_on && !packet.opcode.position().starts() => {
                context.messages[last.index()].span = (position + 1 - start) as u32;
                continue_message(last, id, context);
                last
            }
            _ => self.begin_message(position, span, id, context),
        };
        self.goes_on = !packet.opcode.position().ends();
        context.packets[id.index()].message = Some(message);
        if !self.goes_on {
            context.messages[message.index()].sent = packet.time;
        }
    }

    /// Handles a late packet. It belongs to the message around it, if there is one.
    fn take_late(&mut self, position: StreamPosition, id: PacketId, context: &mut Context<'_>) {
        let packet = context.packets[id.index()];
        self.in_flight.push_back((position, id));
        self.count_retransmission(position, position + 1, packet.time);
        let found = self
            .message_at(position, context)
            .or_else(|| self.grow_back(position, id, context))
            .or_else(|| self.grow_on(position, &packet, context));
        let message = match found {
            Some(found) => {
                continue_message(found.id, id, context);
                found.id
            }
            None => self.insert_message(position, id, context),
        };
        context.packets[id.index()].message = Some(message);
    }

    /// Extends a message without a start by the packet before it.
    fn grow_back(
        &mut self,
        position: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) -> Option<Found> {
        let behind = self.message_at(position + 1, context)?;
        let packet = context.packets[id.index()];
        let message = &mut context.messages[behind.id.index()];
        if behind.start != position + 1 || message.outcome != Outcome::Incomplete {
            return None;
        }
        self.messages.remove(&behind.start);
        self.messages.insert(position, behind.id);
        message.span += 1;
        message.first_psn = packet.psn;
        if packet.opcode.position().starts() {
            message.outcome = Outcome::Unanswered;
        }
        Some(Found {
            start: position,
            ..behind
        })
    }

    /// Extends a message without an end by the packet after it.
    fn grow_on(
        &self,
        position: StreamPosition,
        packet: &Packet,
        context: &mut Context<'_>,
    ) -> Option<Found> {
        let before = self.message_at(position.checked_sub(1)?, context)?;
        if packet.opcode.position().starts() {
            return None;
        }
        context.messages[before.id.index()].span += 1;
        Some(Found {
            end: position + 1,
            ..before
        })
    }

    fn take_retransmitted(
        &mut self,
        position: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) {
        let packet = context.packets[id.index()];
        let found = self.message_at(position, context);
        let marks = &mut context.packets[id.index()].marks;
        *marks |= Marks::RETRANSMITTED;
        marks.set(Marks::NEEDLESS, position < self.acknowledged);
        context.packets[id.index()].message = found.map(|found| found.id);
        let mut end = position + 1;
        if let Some(found) = found {
            let message = &mut context.messages[found.id.index()];
            message.packets += 1;
            message.retransmitted += 1;
            message.last = id;
            if message.operation == Operation::ReadRequest {
                end = found.end;
            }
        }
        if !self.count_retransmission(position, end, packet.time) {
            let cause = self.cause_of_retransmission(position, id, context);
            let message = found.map(|found| found.id);
            let mut recovery = Recovery::new(cause, position, message, id, packet.time);
            recovery.naks = 0;
            recovery.count_retransmission(position, packet.time);
            self.report_overcome(context);
            self.recoveries.push(recovery);
        }
        self.in_flight.push_back((position, id));
    }

    /// Adds a retransmission to its recovery; returns whether there is one.
    fn count_retransmission(
        &mut self,
        position: StreamPosition,
        end: StreamPosition,
        time: u64,
    ) -> bool {
        // Some of them may be lost again before the capture point.
        const SKIPPED: StreamPosition = 32;
        let goes_on = self
            .replayed
            .is_some_and(|end| (end..end + SKIPPED).contains(&position));
        self.replayed = Some(end);
        let current =
            self.recoveries.iter_mut().rev().find(|recovery| {
                recovery.at <= position && (recovery.overcome.is_none() || goes_on)
            });
        match current {
            Some(recovery) => recovery.count_retransmission(position, time),
            None => {
                return goes_on
                    || self
                        .joins_the_last(|recovery| recovery.count_retransmission(position, time));
            }
        }
        true
    }

    /// The cause of a retransmission without a NAK.
    fn cause_of_retransmission(
        &self,
        position: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) -> Cause {
        let time = context.packets[id.index()].time;
        let before = self.last_sent(position, context);
        let waited = time.saturating_sub(before.unwrap_or(time));
        if position >= self.acknowledged {
            return Cause::Timeout { waited };
        }
        let response = self.response_to(position, id, context);
        if let Some(response) = response {
            context.packets[response.index()].marks |= Marks::LOST;
        }
        Cause::ResponseLost { response, waited }
    }

    /// The captured response to the request at a position.
    fn response_to(
        &self,
        position: StreamPosition,
        before: PacketId,
        context: &Context<'_>,
    ) -> Option<PacketId> {
        let found = self.message_at(position, context)?;
        let message = &context.messages[found.id.index()];
        if message.operation != Operation::ReadRequest {
            return message.response;
        }
        let psn = self.psn_at(position);
        let candidates = (message.first.index()..before.index()).rev().take(FAR);
        candidates.map(PacketId::new).find(|id| {
            let packet = &context.packets[id.index()];
            packet.role == Role::Response && packet.message == Some(found.id) && packet.psn == psn
        })
    }

    /// When the packet at a position was last sent.
    fn last_sent(&self, position: StreamPosition, context: &Context<'_>) -> Option<u64> {
        let mut packets = self.in_flight.iter().rev().take(FAR);
        let (_, id) = packets.find(|&&(at, _)| at == position)?;
        Some(context.packets[id.index()].time)
    }

    /// How many PSNs a request uses. A read uses one for each packet of its response.
    fn span(&self, packet: &Packet, context: &Context<'_>) -> u64 {
        if packet.opcode.operation() != Operation::ReadRequest || self.path_mtu == 0 {
            return 1;
        }
        let length = context.heads.dma_length(packet).unwrap_or(0);
        u64::from(length).div_ceil(self.path_mtu).max(1)
    }

    fn begin_message(
        &mut self,
        position: StreamPosition,
        span: u64,
        id: PacketId,
        context: &mut Context<'_>,
    ) -> MessageId {
        let packet = context.packets[id.index()];
        let message = MessageId::new(context.messages.len());
        let mut new = new_message(id, &packet, span as u32);
        if let Some(length) = context.heads.dma_length(&packet) {
            new.length = length.into();
        }
        context.messages.push(new);
        self.messages.insert(position, message);
        message
    }

    /// Inserts a message before others that started earlier in the capture.
    fn insert_message(
        &mut self,
        position: StreamPosition,
        id: PacketId,
        context: &mut Context<'_>,
    ) -> MessageId {
        self.settled = self.settled.min(position);
        self.begin_message(position, 1, id, context)
    }
}

fn new_message(id: PacketId, packet: &Packet, span: u32) -> Message {
    let opcode = packet.opcode;
    let outcome = match opcode.transport() {
        Transport::Rc | Transport::Xrc if !opcode.position().starts() => Outcome::Incomplete,
        Transport::Rc | Transport::Xrc => Outcome::Unanswered,
        Transport::Uc | Transport::Ud | Transport::Cnp => Outcome::Unacknowledged,
    };
    Message {
        connection: packet.connection,
        from: packet.from,
        transport: opcode.transport(),
        operation: opcode.operation(),
        modifier: opcode.modifier(),
        outcome,
        first_psn: packet.psn,
        span,
        length: match opcode.operation() {
            Operation::CompareSwap | Operation::FetchAdd => 8,
            _ => packet.length.into(),
        },
        begun: packet.time,
        sent: packet.time,
        answered: None,
        first: id,
        last: id,
        response: None,
        packets: 1,
        responses: 0,
        retransmitted: 0,
        not_ready: 0,
    }
}

fn continue_message(message: MessageId, id: PacketId, context: &mut Context<'_>) {
    let packet = context.packets[id.index()];
    let message = &mut context.messages[message.index()];
    message.packets += 1;
    message.last = id;
    message.modifier = packet.opcode.modifier();
    if message.operation == Operation::Send {
        message.length += u64::from(packet.length);
    }
}

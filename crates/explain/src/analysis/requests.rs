//! Requests: finds the message of a packet, and whether it is a retransmission.

use wire::{Operation, Position, Transport};

use super::Scene;
use super::stream::{FAR, Found, Hole, LONGEST_JUMP, Place, Stream};
use super::trouble::{Cause, Trouble};
use crate::anomaly::{Anomaly, Kind};
use crate::id::{MessageId, PacketId};
use crate::message::{Message, Outcome};
use crate::packet::{Marks, Packet, Role};
use crate::words::psn_range;

impl Stream {
    /// Handles a request packet of a connected service.
    pub(super) fn request(&mut self, id: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[id.index()];
        self.check_size(id, &packet);
        let Some(place) = self.start(id, &packet, scene) else {
            return;
        };
        let (next, _) = self.next.unwrap_or_default();
        if place >= next {
            if place > next {
                self.leave_hole(next, place, id, scene);
            }
            return self.take_new(place, id, scene);
        }
        if self.fill_hole(place) {
            scene.packets[id.index()].marks |= Marks::LATE;
            return self.take_late(place, id, scene);
        }
        if self.cuts_short(place, &packet, scene) {
            return self.take_new(place, id, scene);
        }
        self.take_repeated(place, id, scene);
    }

    /// Handles a datagram. It is a complete message.
    pub(super) fn datagram(&mut self, id: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[id.index()];
        let message = MessageId::new(scene.messages.len());
        scene.messages.push(new_message(id, &packet, 1));
        scene.messages[message.index()].sent = packet.time;
        scene.packets[id.index()].message = Some(message);
    }

    /// The position of a packet. The first packet sets the start.
    fn start(&mut self, id: PacketId, packet: &Packet, scene: &mut Scene<'_>) -> Option<Place> {
        let end = &mut scene.connections[self.connection.index()].ends[self.side.index()];
        end.first_psn.get_or_insert(packet.psn);
        if self.next.is_none() {
            self.begin_at(packet.psn);
            self.compare_with_agreement(id, packet, scene);
        }
        let (_, next) = self.next?;
        let jump = packet.psn.since(next);
        let unreliable = packet.opcode.transport() == Transport::Uc;
        if jump.abs() > LONGEST_JUMP || (unreliable && jump < 0) {
            self.begin_at(packet.psn);
        }
        self.place_of(packet.psn)
    }

    /// Compares the first PSN with the one of the handshake.
    fn compare_with_agreement(&mut self, id: PacketId, packet: &Packet, scene: &mut Scene<'_>) {
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
        let who = scene.name(self.connection, self.side);
        scene.report(Anomaly {
            kind: Kind::WrongFirstPsn,
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

    fn leave_hole(&mut self, from: Place, to: Place, before: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[before.index()];
        if packet.opcode.transport() == Transport::Uc {
            self.goes_on = false;
            let who = scene.name(self.connection, self.side);
            let missing = psn_range(self.psn_at(from), to - from);
            scene.report(Anomaly {
                kind: Kind::UnreliableLoss,
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
    fn fill_hole(&mut self, place: Place) -> bool {
        let before = self.holes.range(..=place).next_back();
        let Some(&hole) = before.map(|(_, hole)| hole).filter(|hole| place < hole.end) else {
            return false;
        };
        self.holes.remove(&hole.begin);
        let halves = [(hole.begin, place), (place + 1, hole.end)];
        for (begin, end) in halves.into_iter().filter(|(begin, end)| begin < end) {
            self.holes.insert(begin, Hole { begin, end, ..hole });
        }
        true
    }

    /// Only a read uses PSNs without packets. Another request inside its range shows that it uses fewer
    /// than computed.
    fn cuts_short(&mut self, place: Place, packet: &Packet, scene: &mut Scene<'_>) -> bool {
        let Some(found) = self.message_at(place, scene) else {
            return false;
        };
        if self.messages.last_key_value() != Some((&found.start, &found.id)) {
            return false;
        }
        let message = &mut scene.messages[found.id.index()];
        let inside_read = message.operation == Operation::ReadRequest && place > found.start;
        if !inside_read || packet.opcode.operation() == Operation::ReadRequest {
            return false;
        }
        message.span = (place - found.start) as u32;
        true
    }

    fn take_new(&mut self, place: Place, id: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[id.index()];
        let span = self.span(&packet, scene);
        self.next = Some((place + span, packet.psn + span as u32));
        self.replayed = None;
        self.under_way.push_back((place, id));
        self.report_overcome(scene);
        let message = match self.messages.last_key_value() {
            Some((&start, &last)) if self.goes_on && !packet.opcode.position().starts() => {
                scene.messages[last.index()].span = (place + 1 - start) as u32;
                continue_message(last, id, scene);
                last
            }
            _ => self.begin_message(place, span, id, scene),
        };
        self.goes_on = !packet.opcode.position().ends();
        scene.packets[id.index()].message = Some(message);
        if !self.goes_on {
            scene.messages[message.index()].sent = packet.time;
        }
    }

    /// Handles a late packet. It belongs to the message around it, if there is one.
    fn take_late(&mut self, place: Place, id: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[id.index()];
        self.under_way.push_back((place, id));
        self.count_repeat(place, place + 1, packet.time);
        let found = self
            .message_at(place, scene)
            .or_else(|| self.grow_back(place, id, scene))
            .or_else(|| self.grow_on(place, &packet, scene));
        let message = match found {
            Some(found) => {
                continue_message(found.id, id, scene);
                found.id
            }
            None => self.insert_message(place, id, scene),
        };
        scene.packets[id.index()].message = Some(message);
    }

    /// Extends a message without a start by the packet before it.
    fn grow_back(&mut self, place: Place, id: PacketId, scene: &mut Scene<'_>) -> Option<Found> {
        let behind = self.message_at(place + 1, scene)?;
        let packet = scene.packets[id.index()];
        let message = &mut scene.messages[behind.id.index()];
        if behind.start != place + 1 || message.outcome != Outcome::Incomplete {
            return None;
        }
        self.messages.remove(&behind.start);
        self.messages.insert(place, behind.id);
        message.span += 1;
        message.first_psn = packet.psn;
        if packet.opcode.position().starts() {
            message.outcome = Outcome::Unanswered;
        }
        Some(Found {
            start: place,
            ..behind
        })
    }

    /// Extends a message without an end by the packet after it.
    fn grow_on(&self, place: Place, packet: &Packet, scene: &mut Scene<'_>) -> Option<Found> {
        let before = self.message_at(place.checked_sub(1)?, scene)?;
        if packet.opcode.position().starts() {
            return None;
        }
        scene.messages[before.id.index()].span += 1;
        Some(Found {
            end: place + 1,
            ..before
        })
    }

    fn take_repeated(&mut self, place: Place, id: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[id.index()];
        let found = self.message_at(place, scene);
        let marks = &mut scene.packets[id.index()].marks;
        *marks |= Marks::REPEATED;
        marks.set(Marks::NEEDLESS, place < self.acknowledged);
        scene.packets[id.index()].message = found.map(|found| found.id);
        let mut end = place + 1;
        if let Some(found) = found {
            let message = &mut scene.messages[found.id.index()];
            message.packets += 1;
            message.repeated += 1;
            message.last = id;
            if message.operation == Operation::ReadRequest {
                end = found.end;
            }
        }
        if !self.count_repeat(place, end, packet.time) {
            let cause = self.cause_of_repeat(place, id, scene);
            let message = found.map(|found| found.id);
            let mut trouble = Trouble::new(cause, place, message, id, packet.time);
            trouble.complaints = 0;
            trouble.repeat(place, packet.time);
            self.report_overcome(scene);
            self.troubles.push(trouble);
        }
        self.under_way.push_back((place, id));
    }

    /// Adds a retransmission to its recovery; returns whether there is one.
    fn count_repeat(&mut self, place: Place, end: Place, time: u64) -> bool {
        // Some of them may be lost again before the capture point.
        const SKIPPED: Place = 32;
        let goes_on = self
            .replayed
            .is_some_and(|end| (end..end + SKIPPED).contains(&place));
        self.replayed = Some(end);
        let told = self
            .troubles
            .iter_mut()
            .rev()
            .find(|trouble| trouble.at <= place && (trouble.overcome.is_none() || goes_on));
        match told {
            Some(trouble) => trouble.repeat(place, time),
            None => return goes_on || self.joins_the_last(|trouble| trouble.repeat(place, time)),
        }
        true
    }

    /// The cause of a retransmission without a NAK.
    fn cause_of_repeat(&self, place: Place, id: PacketId, scene: &mut Scene<'_>) -> Cause {
        let time = scene.packets[id.index()].time;
        let before = self.last_sent(place, scene);
        let waited = time.saturating_sub(before.unwrap_or(time));
        if place >= self.acknowledged {
            return Cause::Timeout { waited };
        }
        let answer = self.answer_to(place, id, scene);
        if let Some(answer) = answer {
            scene.packets[answer.index()].marks |= Marks::LOST;
        }
        Cause::AnswerLost { answer, waited }
    }

    /// The captured answer to the request at a position.
    fn answer_to(&self, place: Place, before: PacketId, scene: &Scene<'_>) -> Option<PacketId> {
        let found = self.message_at(place, scene)?;
        let message = &scene.messages[found.id.index()];
        if message.operation != Operation::ReadRequest {
            return message.answer;
        }
        let psn = self.psn_at(place);
        let candidates = (message.first.index()..before.index()).rev().take(FAR);
        candidates.map(PacketId::new).find(|id| {
            let packet = &scene.packets[id.index()];
            packet.role == Role::Response && packet.message == Some(found.id) && packet.psn == psn
        })
    }

    /// When the packet at a position was last sent.
    fn last_sent(&self, place: Place, scene: &Scene<'_>) -> Option<u64> {
        let mut packets = self.under_way.iter().rev().take(FAR);
        let (_, id) = packets.find(|&&(at, _)| at == place)?;
        Some(scene.packets[id.index()].time)
    }

    /// How many PSNs a request uses. A read uses one for each packet of its answer.
    fn span(&self, packet: &Packet, scene: &Scene<'_>) -> u64 {
        if packet.opcode.operation() != Operation::ReadRequest || self.path_mtu == 0 {
            return 1;
        }
        let length = scene.heads.dma_length(packet).unwrap_or(0);
        u64::from(length).div_ceil(self.path_mtu).max(1)
    }

    fn begin_message(
        &mut self,
        place: Place,
        span: u64,
        id: PacketId,
        scene: &mut Scene<'_>,
    ) -> MessageId {
        let packet = scene.packets[id.index()];
        let message = MessageId::new(scene.messages.len());
        let mut new = new_message(id, &packet, span as u32);
        if let Some(length) = scene.heads.dma_length(&packet) {
            new.length = length.into();
        }
        scene.messages.push(new);
        self.messages.insert(place, message);
        message
    }

    /// Inserts a message before others that started earlier in the capture.
    fn insert_message(&mut self, place: Place, id: PacketId, scene: &mut Scene<'_>) -> MessageId {
        self.settled = self.settled.min(place);
        self.begin_message(place, 1, id, scene)
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
        companion: opcode.companion(),
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
        answer: None,
        packets: 1,
        answers: 0,
        repeated: 0,
        not_ready: 0,
    }
}

fn continue_message(message: MessageId, id: PacketId, scene: &mut Scene<'_>) {
    let packet = scene.packets[id.index()];
    let message = &mut scene.messages[message.index()];
    message.packets += 1;
    message.last = id;
    message.companion = packet.opcode.companion();
    if message.operation == Operation::Send {
        message.length += u64::from(packet.length);
    }
}

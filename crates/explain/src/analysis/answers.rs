//! Answers: acknowledgements, responses and NAKs.

use wire::{NakCode, Operation, Syndrome};

use super::Scene;
use super::stream::{FAR, Found, LONGEST_JUMP, Place, Stream};
use super::trouble::{Cause, Trouble};
use super::verdict;
use crate::id::{MessageId, PacketId};
use crate::message::Outcome;
use crate::packet::{Marks, Packet, Role};

/// After this many answers without a new request for missing data, the data counts as received.
const UNHEEDED: u64 = 512;

impl Stream {
    /// Handles an answer to a request of this stream.
    pub(super) fn answer(&mut self, id: PacketId, scene: &mut Scene<'_>) {
        let packet = scene.packets[id.index()];
        let Some(place) = self.place_of_answer(id, &packet, scene) else {
            scene.packets[id.index()].marks |= Marks::STRAY;
            return;
        };
        let found = self.message_at(place, scene);
        if let Some(found) = found {
            scene.packets[id.index()].message = Some(found.id);
            let message = &mut scene.messages[found.id.index()];
            message.answers += 1;
            message.last = message.last.max(id);
        }
        // Captured only at its sender: it was lost.
        if packet.marks.contains(Marks::LOST) {
            return;
        }
        self.last_heard = Some(packet.time);
        let syndrome = scene.heads.syndrome(&packet).unwrap_or(Syndrome::UNLIMITED);
        match (packet.role, syndrome) {
            (Role::Response, _) => self.take_response(place, found, id, scene),
            (_, Syndrome::Acknowledge { .. }) => self.take_acknowledge(place, id, scene),
            (_, Syndrome::ReceiverNotReady(timer)) => {
                self.settle(place, id, scene);
                if let Some(found) = found {
                    scene.messages[found.id.index()].not_ready += 1;
                }
                let delay = timer.delay().as_nanos() as u64;
                self.complain(Cause::NotReady { delay }, place, id, scene);
            }
            (_, Syndrome::Negative(NakCode::SequenceError)) => {
                self.settle(place, id, scene);
                let lost = self.mark_lost(place, scene);
                self.complain(Cause::Sequence { lost }, place, id, scene);
            }
            (_, Syndrome::Negative(code)) => self.take_refusal(code, place, found, id, scene),
            (_, Syndrome::Reserved(_)) => {}
        }
    }

    /// The position of the request that this answers; none if there is no such request.
    fn place_of_answer(
        &mut self,
        id: PacketId,
        packet: &Packet,
        scene: &mut Scene<'_>,
    ) -> Option<Place> {
        let Some((next, psn)) = self.next else {
            self.orphans.add(id);
            return None;
        };
        let jump = packet.psn.since(psn);
        let place = self.place_of(packet.psn)?;
        if jump < 0 && jump > -LONGEST_JUMP {
            return Some(place);
        }
        let data = packet.opcode.operation() == Operation::ReadResponse;
        if data && (0..LONGEST_JUMP).contains(&jump) && self.ends_with_read(scene) {
            self.stretch_read(place, scene);
            return Some(place);
        }
        // A NAK for the next position: the packet was lost before the capture point.
        if packet.role == Role::Refuse && place == next {
            return Some(place);
        }
        self.ghosts.add(id);
        None
    }

    /// A read with an unknown path MTU uses as many PSNs as its answer has packets.
    fn stretch_read(&mut self, place: Place, scene: &mut Scene<'_>) {
        let psn = self.psn_at(place);
        if let Some((&start, &read)) = self.messages.last_key_value() {
            scene.messages[read.index()].span = (place + 1 - start) as u32;
        }
        self.next = Some((place + 1, psn + 1));
    }

    fn take_acknowledge(&mut self, place: Place, id: PacketId, scene: &mut Scene<'_>) {
        if place < self.acknowledged {
            scene.packets[id.index()].marks |= Marks::NEEDLESS;
        }
        if self.settle(place + 1, id, scene) {
            self.resolve(place, id, scene);
        }
    }

    /// Data of a read, or the result of an atomic operation.
    fn take_response(
        &mut self,
        place: Place,
        found: Option<Found>,
        id: PacketId,
        scene: &mut Scene<'_>,
    ) {
        let Some(found) = found else {
            return;
        };
        if scene.messages[found.id.index()].operation != Operation::ReadRequest {
            return self.take_acknowledge(place, id, scene);
        }
        if !self.settle(found.start, id, scene) {
            return;
        }
        let wanted = self.acknowledged;
        if place > wanted {
            let missing = place - wanted;
            self.complain(Cause::DataLost { missing }, wanted, id, scene);
        } else if place < wanted {
            scene.packets[id.index()].marks |= Marks::REPEATED;
        } else {
            self.acknowledged = place + 1;
            self.resolve(place, id, scene);
            self.settle(place + 1, id, scene);
        }
    }

    fn take_refusal(
        &mut self,
        code: NakCode,
        place: Place,
        found: Option<Found>,
        id: PacketId,
        scene: &mut Scene<'_>,
    ) {
        self.settle(place, id, scene);
        let time = scene.packets[id.index()].time;
        if let Some(found) = found {
            let message = &mut scene.messages[found.id.index()];
            message.outcome = Outcome::Refused(code);
            message.answer = Some(id);
            message.answered = Some(time);
        }
        if !self.broken {
            verdict::refusal(self, code, found.map(|found| found.id), id, scene);
        }
        self.broken = true;
        self.resolve(place, id, scene);
    }

    /// An answer acknowledges everything before a position. If data of an earlier read is missing, the
    /// requester drops the answer and requests the data again.
    fn settle(&mut self, until: Place, id: PacketId, scene: &mut Scene<'_>) -> bool {
        self.answered = self.answered.max(until);
        while let Some((&start, &message)) = self.messages.range(self.settled..).next() {
            let end = start + u64::from(scene.messages[message.index()].span);
            // A message that is not completely sent is acknowledged only up to here.
            let is_last = self.messages.last_key_value().map(|(last, _)| *last) == Some(start);
            let unfinished = self.goes_on && is_last;
            if end > until || (unfinished && end == until) {
                break;
            }
            let is_read = scene.messages[message.index()].operation == Operation::ReadRequest;
            if is_read && self.acknowledged < end && self.misses_data(start, end, id, scene) {
                return false;
            }
            self.complete(message, id, scene);
            self.settled = start + 1;
        }
        self.acknowledged = self.acknowledged.max(until);
        self.forget_settled();
        true
    }

    /// Data of a read did not arrive before a later answer. Reports it, unless only the capture missed
    /// it.
    fn misses_data(
        &mut self,
        start: Place,
        end: Place,
        id: PacketId,
        scene: &mut Scene<'_>,
    ) -> bool {
        let wanted = self.acknowledged.max(start);
        let missing = end - wanted;
        self.complain(Cause::DataLost { missing }, wanted, id, scene);
        let found = self.troubles.iter().position(|trouble| {
            let ignored = trouble.repeated == 0 && trouble.complaints > UNHEEDED;
            trouble.is_data_lost() && trouble.at == wanted && ignored
        });
        let Some(found) = found else {
            return true;
        };
        let trouble = self.troubles.remove(found);
        verdict::not_captured(self, &trouble, scene);
        false
    }

    fn complete(&self, message: MessageId, id: PacketId, scene: &mut Scene<'_>) {
        let time = scene.packets[id.index()].time;
        let message = &mut scene.messages[message.index()];
        if message.answer.is_none() {
            message.outcome = Outcome::Done;
            message.answer = Some(id);
            message.answered = Some(time);
        }
    }

    /// Keeps acknowledged packets for a while, because they may be retransmitted.
    fn forget_settled(&mut self) {
        const KEPT: usize = 4096;
        while self.under_way.len() > KEPT {
            match self.under_way.front() {
                Some(&(place, _)) if place < self.acknowledged => self.under_way.pop_front(),
                _ => return,
            };
        }
    }

    /// The last packet that was sent at a position did not arrive, or not in time.
    fn mark_lost(&mut self, place: Place, scene: &mut Scene<'_>) -> Option<PacketId> {
        let mut packets = self.under_way.iter().rev().take(FAR);
        let &(_, id) = packets.find(|&&(at, _)| at == place)?;
        let marks = &mut scene.packets[id.index()].marks;
        *marks |= if marks.contains(Marks::LEFT_HERE | Marks::CAME_HERE) {
            Marks::LATE
        } else {
            Marks::LOST
        };
        Some(id)
    }

    /// Starts a recovery at a position, or adds to the one that is there.
    fn complain(&mut self, cause: Cause, place: Place, id: PacketId, scene: &mut Scene<'_>) {
        self.report_overcome(scene);
        let time = scene.packets[id.index()].time;
        let same = self.troubles.iter_mut().find(|trouble| {
            trouble.at == place && trouble.cause.is_like(&cause) && trouble.overcome.is_none()
        });
        if let Some(trouble) = same {
            return trouble.tell(time);
        }
        if self.joins_the_last(|trouble| trouble.tell(time)) {
            return;
        }
        let message = self.message_at(place, scene).map(|found| found.id);
        let trouble = Trouble::new(cause, place, message, id, time);
        self.troubles.push(trouble);
    }

    /// An answer at a position ends the recoveries before it. They are reported after their last
    /// retransmission.
    fn resolve(&mut self, place: Place, id: PacketId, scene: &Scene<'_>) {
        let time = scene.packets[id.index()].time;
        for trouble in self
            .troubles
            .iter_mut()
            .filter(|trouble| trouble.at <= place)
        {
            trouble.overcome.get_or_insert(time);
        }
    }

    /// Reports the recoveries that have ended.
    pub(super) fn report_overcome(&mut self, scene: &mut Scene<'_>) {
        if self
            .troubles
            .iter()
            .all(|trouble| trouble.overcome.is_none())
        {
            return;
        }
        let troubles = std::mem::take(&mut self.troubles);
        for trouble in troubles {
            match trouble.overcome {
                Some(time) => verdict::overcome(self, &trouble, time, scene),
                None => self.troubles.push(trouble),
            }
        }
    }
}

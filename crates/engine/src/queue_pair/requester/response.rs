//! Responses of the peer: acknowledgements, NAKs, and the data of reads and atomics.

use wire::{Aeth, NakCode, Operation, Packet, PayloadBytes, Psn, RnrTimer, Syndrome};

use super::super::QueuePair;
use super::super::kept_packets::REORDERING;
use super::super::send_queue::{Outstanding, Progress};
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::planted_bug::Bug;
use crate::state::State;
use crate::work_request::{Payload, Work};

/// A response is missing: a later one arrived first.
struct ResponseMissing;

impl QueuePair {
    pub(in crate::queue_pair) fn handle_response(
        &mut self,
        now: &Now,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) {
        let requester = &self.requester;
        let acknowledged = packet.psn.since(requester.oldest) < 0;
        if acknowledged || packet.psn.since(requester.next) >= 0 {
            return self.handle_unmatched(now, packet, device);
        }
        if self.handle_next(now, packet, device).is_err() {
            self.keep_response(packet, device);
        }
        self.handle_kept_responses(now, device);
        if self.state != State::Error {
            self.complete_finished(device);
        }
    }

    fn handle_next(
        &mut self,
        now: &Now,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), ResponseMissing> {
        match packet.opcode.operation() {
            Operation::Acknowledge => self.handle_acknowledgement(now, packet, device),
            Operation::AtomicAcknowledge | Operation::ReadResponse => {
                self.handle_data(now, packet, device)
            }
            _ => {
                device.counters.unexpected_responses += 1;
                Ok(())
            }
        }
    }

    /// A response arrives before an earlier one, so the peer has executed all requests before it. It is kept, and only the missing
    /// response is requested again, with the rest of its READ.
    fn keep_response(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        let requester = &mut self.requester;
        let (oldest, total) = (requester.oldest, &device.kept);
        let kept = requester.kept.keep(packet, 1, oldest, total);
        device.kept_is_full |= kept.is_err();
        let is_read = packet.opcode.operation() == Operation::ReadResponse;
        let is_followed = is_read && !packet.opcode.position().ends();
        if is_followed && packet.psn.since(requester.oldest) <= REORDERING {
            return;
        }
        device.counters.implied_naks += 1;
        self.recover_response(device);
    }

    /// Handles responses that were kept, as far as none is missing. Another gap before the rest of them is a loss.
    fn handle_kept_responses(&mut self, now: &Now, device: &mut DeviceState) {
        let gap = self.requester.oldest;
        while let Some(psn) = self.requester.kept.first_from(self.requester.oldest)
            && !self.awaits_response_before(psn)
            && let Some(kept) = self.requester.kept.take(psn)
        {
            if self.handle_next(now, &kept.packet(), device).is_err() {
                break;
            }
        }
        if self.requester.oldest != gap && !self.requester.kept.is_empty() {
            self.recover_response(device);
        }
    }

    /// Whether a request in flight is to be answered before the response with this PSN is.
    fn awaits_response_before(&self, psn: Psn) -> bool {
        let requests = (0..).map_while(|position| self.send.at(position));
        let mut earlier = requests.take_while(|request| match request.progress {
            Progress::Begun { first, .. } => first.since(psn) < 0,
            Progress::Done => true,
            Progress::Posted | Progress::Failed(_) => false,
        });
        psn != self.requester.oldest && earlier.any(|it| it.work().has_response())
    }

    /// The response matches no outstanding request. It may report new credits.
    fn handle_unmatched(&mut self, now: &Now, packet: &Packet<'_>, device: &mut DeviceState) {
        let repeats_newest = packet.psn + 1 == self.requester.oldest;
        match packet.aeth() {
            Some(aeth) if repeats_newest => {
                self.update_credits(aeth);
                if let (Syndrome::Acknowledge { .. }, Ok(held)) =
                    (aeth.syndrome(), packet.held_packets())
                {
                    self.learn_held(packet.psn + 1, &held, now, device);
                }
            }
            aeth => {
                device.counters.unexpected_responses += 1;
                self.requester.peer_expects = aeth.map(|aeth| match aeth.syndrome() {
                    Syndrome::Acknowledge { .. } => packet.psn + 1,
                    _ => packet.psn,
                });
            }
        }
    }

    fn handle_acknowledgement(
        &mut self,
        now: &Now,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), ResponseMissing> {
        let (Some(aeth), Ok(held)) = (packet.aeth(), packet.held_packets()) else {
            device.counters.malformed += 1;
            return Ok(());
        };
        let syndrome = aeth.syndrome();
        // A NAK acknowledges all packets before it.
        let end = match syndrome {
            Syndrome::Acknowledge { .. } => packet.psn + 1,
            _ => packet.psn,
        };
        if self.acknowledge_before(end, now, device).is_err() {
            if let Syndrome::Acknowledge { .. } = syndrome
                && held.is_empty()
            {
                return Err(ResponseMissing);
            }
            // The peer lacks later requests, too, so all are sent again.
            device.counters.implied_naks += 1;
            self.recover_loss(device);
            return Ok(());
        }
        match syndrome {
            Syndrome::Acknowledge { .. } => {
                self.update_credits(aeth);
                self.learn_held(end, &held, now, device);
            }
            Syndrome::ReceiverNotReady(timer) => self.wait_for_receiver(now, timer, device),
            Syndrome::Negative(NakCode::SequenceError) => {
                device.counters.sequence_naks_received += 1;
                self.counters.sequence_naks_received += 1;
                if !self.learn_held(end, &held, now, device) {
                    self.recover_loss(device);
                }
            }
            Syndrome::Negative(code) => {
                device.counters.fatal_naks_received += 1;
                self.fail_send(status_of(code), device);
            }
            Syndrome::Reserved(_) => self.fail_send(Status::BadResponse, device),
        }
        Ok(())
    }

    /// Handles the data of a read, the result of an atomic, or the response to a flush or atomic
    /// write.
    fn handle_data(
        &mut self,
        now: &Now,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), ResponseMissing> {
        let gap = self.acknowledge_before(packet.psn, now, device);
        if !device.planted.is(Bug::ResponseGapAccepted) {
            gap?;
        }
        let Some((front, index)) = self.awaited_front(packet.psn) else {
            device.counters.unexpected_responses += 1;
            return Ok(());
        };
        let last = index + 1 == front.packets;
        if let Err(status) = self.accept_data(front, index, packet, device) {
            self.fail_send(status, device);
            return Ok(());
        }
        if let Some(aeth) = packet.aeth() {
            self.update_credits(aeth);
        }
        let before = std::mem::replace(&mut self.requester.oldest, packet.psn + 1);
        if last {
            self.complete_oldest(Status::Success, device);
        }
        self.advance_cursor();
        self.made_progress(now, before, device);
        Ok(())
    }

    /// The oldest request, if it awaits the response `psn`, and the index of the response packet.
    fn awaited_front(&self, psn: Psn) -> Option<(&Outstanding, u32)> {
        let front = self.send.front()?;
        let index = psn.ahead_of(front.first()?);
        (front.work().has_response() && index < front.packets).then_some((front, index))
    }

    fn accept_data(
        &self,
        front: &Outstanding,
        index: u32,
        packet: &Packet<'_>,
        device: &DeviceState,
    ) -> Result<(), Status> {
        let mtu = self.link.map_or(0, |link| link.mtu()) as u32;
        let is_read = packet.opcode.operation() == Operation::ReadResponse;
        match front.work() {
            Work::Read(_) if is_read => {
                let offset = index * mtu;
                let expected = mtu.min(front.length - offset);
                if packet.payload.len() != expected as usize {
                    return Err(Status::BadResponse);
                }
                let ends = index + 1 == front.packets;
                self.store(front, offset, packet.payload, ends, device)
            }
            Work::AtomicWrite(_) | Work::Flush { .. } if is_read => Ok(()),
            Work::CompareSwap { .. } | Work::FetchAdd { .. } if !is_read => {
                let result = packet.atomic_acknowledge().ok_or(Status::BadResponse)?;
                let original = result.original().to_ne_bytes();
                self.store(front, 0, original[..].into(), true, device)
            }
            _ => Err(Status::BadResponse),
        }
    }

    fn store(
        &self,
        front: &Outstanding,
        offset: u32,
        bytes: PayloadBytes<'_>,
        ends: bool,
        device: &DeviceState,
    ) -> Result<(), Status> {
        let Payload::Segments(segments) = &front.request.payload else {
            return Err(Status::LocalOperation);
        };
        let memory = device.objects.memory();
        memory
            .scatter(self.init.domain, segments, u64::from(offset), bytes, ends)
            .map_err(|_| Status::LocalProtection)
    }

    /// IBA 9.7.5.1.2: a response acknowledges all requests before it, except reads and atomics, which their
    /// own responses acknowledge. Acknowledges all PSNs before `end`, and completes requests that end there.
    fn acknowledge_before(
        &mut self,
        end: Psn,
        now: &Now,
        device: &mut DeviceState,
    ) -> Result<(), ResponseMissing> {
        let before = self.requester.oldest;
        let mut outcome = Ok(());
        while let Some(front) = self.send.front() {
            let first = match front.progress {
                Progress::Begun { first, .. } => first,
                Progress::Done => {
                    self.complete_oldest(Status::Success, device);
                    continue;
                }
                Progress::Posted | Progress::Failed(_) => break,
            };
            if end.since(self.requester.oldest) <= 0 {
                break;
            }
            if front.work().has_response() {
                outcome = Err(ResponseMissing);
                break;
            }
            let after = first + front.packets;
            if end.since(after) < 0 {
                self.requester.oldest = end;
                break;
            }
            self.requester.oldest = after;
            self.complete_oldest(Status::Success, device);
        }
        self.advance_cursor();
        if self.requester.oldest != before {
            self.made_progress(now, before, device);
        }
        outcome
    }

    /// Moves the cursor forward to the oldest PSN, and forgets awaited responses before it.
    fn advance_cursor(&mut self) {
        let requester = &mut self.requester;
        if requester.oldest.since(requester.cursor) > 0 {
            requester.cursor = requester.oldest;
            requester.position = 0;
        }
        while requester
            .awaited
            .front()
            .is_some_and(|last| last.since(requester.oldest) < 0)
        {
            requester.awaited.pop_front();
        }
    }

    /// C9-148: an acknowledgement reports completed messages and the credits for further ones.
    pub(in crate::queue_pair) fn update_credits(&mut self, aeth: &Aeth) {
        if let Syndrome::Acknowledge { credits } = aeth.syndrome() {
            self.set_credits(credits, aeth.message_sequence());
        }
    }

    /// The peer has completed so many messages, and has receives for so many more.
    #[inline]
    pub(in crate::queue_pair) fn set_credits(&mut self, credits: Option<u32>, completed: u32) {
        self.requester.credit_limit = credits.map(|count| (completed + count) & 0xff_ffff);
    }

    fn wait_for_receiver(&mut self, now: &Now, timer: RnrTimer, device: &mut DeviceState) {
        if self.requester.rnr_wait_until.is_some() {
            return;
        }
        device.counters.rnr_naks_received += 1;
        self.counters.rnr_naks_received += 1;
        self.note_not_ready(now.get());
        match self.requester.rnr_retries_left {
            0 => {
                device.counters.rnr_retries_exhausted += 1;
                return self.fail_send(Status::ReceiverNotReady, device);
            }
            // 7 means no limit.
            7 => {}
            _ => self.requester.rnr_retries_left -= 1,
        }
        self.requester.begin_rnr_wait(now.get() + timer.delay());
        self.tell_retries(device);
    }
}

const fn status_of(code: NakCode) -> Status {
    match code {
        NakCode::InvalidRequest => Status::RemoteInvalidRequest,
        NakCode::RemoteAccess => Status::RemoteAccess,
        NakCode::RemoteOperational => Status::RemoteOperation,
        NakCode::SequenceError | NakCode::InvalidRdRequest => Status::BadResponse,
    }
}

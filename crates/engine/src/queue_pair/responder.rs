//! The receive side of a reliable connection.
//!
//! A request is first classified by its PSN, then [admitted](QueuePair::validate) by checks that
//! change no state, and only then executed. A rejected request gets the NAK that the specification
//! defines. A duplicate is answered again but never executed again.

mod diagnosis;
mod duplicates;
mod execute;
mod response_queue;
mod validate;

use std::collections::VecDeque;
use std::sync::Arc;

use wire::{HeldPackets, Key, NakCode, Operation, Packet, Psn, Syndrome};

use super::QueuePair;
use super::kept_packets::{KeptPackets, REORDERING};
use super::send_queue::in_packets;
use crate::completion::{CompletionQueue, Status};
use crate::device_state::DeviceState;
use crate::event::{AsyncEvent, Event};
use crate::memory::ProtectionDomain;
use crate::now::Now;
use crate::observation::Observation;
use crate::planted_bug::{Bug, PlantedBug};
use crate::receive_queue::{Contents, SharedReceiveQueue};
use crate::slab::Id;
use crate::state::{QueuePairType, State};
use crate::work_request::ReceiveRequest;
use duplicates::SavedResponse;
use response_queue::Response;
pub(super) use validate::Rejection;

/// The receive side of a reliable connection: its sequence numbers and queued responses.
#[derive(Debug)]
pub(super) struct Responder {
    /// The next PSN to execute.
    pub(super) expected: Psn,
    /// How many messages are complete, modulo 2^24 (the message sequence number).
    completed: u32,
    /// The NAK that was sent for the expected PSN. No further NAK is sent until that packet
    /// arrives.
    nak_sent: Option<Syndrome>,
    /// Packets beyond the expected one.
    pub(super) kept: KeptPackets,
    /// The message whose packets are arriving.
    pub(super) message: Option<Message>,
    responses: VecDeque<Response>,
    /// The responses of the latest reads and atomics, for duplicates.
    saved: VecDeque<SavedResponse>,
    /// Whether the first packet of the peer has arrived.
    established: bool,
    /// For an XRC target: the protection domain of the shared receive queue in the last request.
    pub(super) domain: Option<Id<ProtectionDomain>>,
    /// Whether requests are answered as if no receive were posted, as fault injection asks for.
    pub(super) hides_receives: bool,
}

/// A message of several packets.
#[derive(Debug)]
pub(super) enum Message {
    /// A SEND, which fills a receive.
    Send(Receiving),
    /// A WRITE, which fills memory that the peer named.
    Write(Writing),
}

/// A receive that is being filled.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) request: ReceiveRequest,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) completions: Arc<CompletionQueue>,
    /// The shared receive queue that it came from, if any.
    pub(super) origin: Option<Arc<SharedReceiveQueue>>,
    pub(super) filled: u32,
    /// What was in its memory when it was posted, if that is known.
    pub(super) contents: Contents,
}

/// The address of the next packet of a WRITE.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    pub(super) key: Key,
    pub(super) address: u64,
    pub(super) remaining: u32,
    pub(super) total: u32,
}

/// The position of a request in the sequence.
enum SequencePosition {
    Expected,
    /// The request was executed before.
    Duplicate,
    /// At least one packet before the request is missing.
    Ahead,
}

impl Responder {
    pub(super) fn new() -> Self {
        Self {
            expected: Psn::ZERO,
            completed: 0,
            nak_sent: None,
            kept: KeptPackets::default(),
            message: None,
            responses: VecDeque::new(),
            saved: VecDeque::new(),
            established: false,
            domain: None,
            hides_receives: false,
        }
    }

    pub(super) fn start(&mut self, expected: Psn) {
        self.expected = expected;
    }

    /// Whether it expects this PSN, and nothing is under way. The first packet of the peer has arrived.
    #[inline]
    pub(super) fn is_idle_at(&self, psn: Psn) -> bool {
        self.expected == psn
            && self.established
            && self.nak_sent.is_none()
            && self.kept.is_empty()
            && self.message.is_none()
            && self.responses.is_empty()
            && !self.hides_receives
    }

    fn classify(&self, psn: Psn, planted: PlantedBug) -> SequencePosition {
        let distance = if planted.is(Bug::NoPsnWrap) {
            psn.value() as i32 - self.expected.value() as i32
        } else {
            psn.since(self.expected)
        };
        match distance {
            0 => SequencePosition::Expected,
            1.. if planted.is(Bug::GapAccepted) => SequencePosition::Expected,
            1.. => SequencePosition::Ahead,
            _ => SequencePosition::Duplicate,
        }
    }
}

impl QueuePair {
    pub(crate) fn hide_receives(&mut self, hide: bool) {
        self.responder.hides_receives = hide;
    }

    pub(super) fn handle_request(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        self.set_request_domain(packet, device);
        match self.responder.classify(packet.psn, device.planted) {
            SequencePosition::Duplicate => return self.handle_duplicate(packet, device),
            SequencePosition::Ahead => return self.keep_ahead(packet, device),
            SequencePosition::Expected => self.note_established(device),
        }
        self.handle_expected(packet, device);
        self.handle_kept(device);
    }

    fn handle_expected(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        if let Err(rejection) = self.validate(packet, device) {
            return self.reject(packet, rejection, device);
        }
        if let Err(rejection) = self.execute(packet, device) {
            self.reject(packet, rejection, device);
        }
    }

    /// An XRC target has no protection domain for memory: a request uses the one of the shared
    /// receive queue that it names.
    fn set_request_domain(&mut self, packet: &Packet<'_>, device: &DeviceState) {
        if self.init.kind == QueuePairType::XrcTarget
            && let Some(queue) = self.named_receive_queue(packet, device)
        {
            self.responder.domain = Some(queue.init.domain);
        }
    }

    /// Handles packets that were kept, as far as none is missing. Another gap before the rest of them is reported.
    fn handle_kept(&mut self, device: &mut DeviceState) {
        let gap = self.responder.expected;
        while self.state.receives()
            && let Some(kept) = self.responder.kept.take(self.responder.expected)
        {
            let packet = kept.packet();
            self.set_request_domain(&packet, device);
            self.handle_expected(&packet, device);
        }
        let has_closed_gap = self.responder.expected != gap;
        if has_closed_gap && self.state.receives() && !self.responder.kept.is_empty() {
            self.report_gap(device);
        }
    }

    /// Keeps a packet until those before it have arrived.
    fn keep_ahead(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        device.counters.out_of_sequence += 1;
        self.counters.out_of_sequence += 1;
        // After an RNR NAK the peer sends all of them again. A kept one would be tried in addition.
        let awaits_retry = matches!(self.responder.nak_sent, Some(Syndrome::ReceiverNotReady(_)));
        if !awaits_retry {
            let (span, expected) = (self.span_of(packet), self.responder.expected);
            let total = &device.kept;
            let kept = self.responder.kept.keep(packet, span, expected, total);
            device.kept_is_full |= kept.is_err();
        }
        let is_reported = self.responder.nak_sent.is_some();
        if packet.acknowledge && is_reported && !awaits_retry {
            self.responder.push_held();
        } else if packet.acknowledge || packet.psn.since(self.responder.expected) > REORDERING {
            self.report_gap(device);
        }
    }

    /// How many PSNs a request takes: those of its responses, if it is a read.
    fn span_of(&self, packet: &Packet<'_>) -> u32 {
        match (packet.reth(), self.link) {
            (Some(reth), Some(link)) if packet.opcode.operation() == Operation::ReadRequest => {
                in_packets(reth.dma_length(), link.mtu)
            }
            _ => 1,
        }
    }

    /// What the peer is told to be held behind the expected packet; nothing if it doesn't understand that.
    fn held_packets(&self, now: &Now, device: &mut DeviceState) -> HeldPackets {
        let Some(link) = self.link.filter(|_| !self.responder.kept.is_empty()) else {
            return HeldPackets::default();
        };
        if device.may_list_held(&link.route, now) {
            self.responder.kept.list(self.responder.expected)
        } else {
            HeldPackets::default()
        }
    }

    /// Sends one sequence NAK per gap, and no further one until the expected packet arrives.
    fn report_gap(&mut self, device: &mut DeviceState) {
        if self.responder.nak_sent.is_some() {
            return;
        }
        device.counters.sequence_naks_sent += 1;
        self.push_nak_for_expected(Syndrome::Negative(NakCode::SequenceError));
    }

    fn push_nak_for_expected(&mut self, syndrome: Syndrome) {
        self.responder.nak_sent = Some(syndrome);
        let psn = self.responder.expected;
        self.responder.push_nak(psn, syndrome);
    }

    /// IBA "Responder Error Behavior Summary": a missing receive is an error of class B and changes no
    /// state. An unusable receive is one of class A, an invalid request one of class C; both move the queue
    /// pair to the error state after the NAK.
    fn reject(&mut self, packet: &Packet<'_>, rejection: Rejection, device: &mut DeviceState) {
        match rejection {
            Rejection::NotReady => {
                device.counters.rnr_naks_sent += 1;
                self.counters.rnr_naks_sent += 1;
                let timer = self.attributes.rnr_timer.unwrap_or_default();
                device
                    .observations
                    .note(|| Observation::ReceiverNotReady(self.number, timer));
                self.push_nak_for_expected(Syndrome::ReceiverNotReady(timer));
                self.responder.kept = KeptPackets::default();
            }
            Rejection::Fatal { nak, receive } => {
                device.counters.fatal_naks_sent += 1;
                self.note_rejection(packet, rejection, Some(nak), device);
                if nak == NakCode::RemoteAccess {
                    self.observe_rejection(packet, device);
                }
                // The local access error exists for this receive: that of a WRITE with immediate data to memory that is not accessible.
                let is_unwritten = nak == NakCode::RemoteAccess && packet.immediate().is_some();
                let unwritten = is_unwritten.then_some(Status::LocalAccess);
                if let Some(status) = receive.or(unwritten) {
                    self.fail_receive(packet, status, device);
                }
                self.push_nak_for_expected(Syndrome::Negative(nak));
                device.raise(match nak {
                    // C9-222.1.1: a key violation is also an affiliated asynchronous error.
                    // IBA 9.9.3.1.3: an error of class C that belongs to no receive is an affiliated asynchronous error, too.
                    NakCode::RemoteAccess => AsyncEvent::AccessError(self.number),
                    NakCode::InvalidRequest => AsyncEvent::RequestError(self.number),
                    _ => AsyncEvent::QueuePairFatal(self.number),
                });
                self.fail(device);
            }
        }
    }

    /// Completes the receive of the rejected message with `status`.
    fn fail_receive(&mut self, packet: &Packet<'_>, status: Status, device: &mut DeviceState) {
        if !matches!(self.responder.message, Some(Message::Send(_))) {
            self.responder.message = self.take_receive(packet, device).map(Message::Send);
        }
        self.fail_message(status, device);
    }

    /// Completes the receive of an unfinished message with `status`.
    pub(super) fn fail_message(&mut self, status: Status, device: &mut DeviceState) {
        if let Some(Message::Send(receiving)) = self.responder.message.take() {
            let id = receiving.request.id;
            self.complete_receive_in_error(&receiving.completions, id, status, device);
        }
    }

    /// Reports the first packet from the peer. Only the expected packet counts: other packets may
    /// come from an earlier connection of this queue pair number.
    pub(super) fn note_established(&mut self, device: &mut DeviceState) {
        if self.responder.established {
            return;
        }
        self.responder.established = true;
        device.events.push_back(Event::FirstPacket(self.number));
        if self.state == State::ReadyToReceive {
            device.raise(AsyncEvent::CommunicationEstablished(self.number));
        }
    }

    /// Whether a receive is available for the message that `packet` starts.
    pub(super) fn has_receive(&self, packet: &Packet<'_>, device: &DeviceState) -> bool {
        match self.shared_receive_for(packet, device) {
            Some(queue) => !queue.is_empty(),
            None => !self.receive.is_empty(),
        }
    }

    /// Takes the next receive from the queue pair's own or shared receive queue.
    pub(super) fn take_receive(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Option<Receiving> {
        let own_completions = Arc::clone(&self.attached.receive_completions);
        let Some(queue) = self.shared_receive_for(packet, device) else {
            let (request, contents) = self.receive.take_with_contents()?;
            return Some(Receiving {
                request,
                domain: self.init.domain,
                completions: own_completions,
                origin: None,
                filled: 0,
                contents,
            });
        };
        let (request, below_limit) = queue.take()?;
        let domain = queue.init.domain;
        let completions = match (self.init.kind, queue.init.xrc) {
            (QueuePairType::XrcTarget, Some((_, completions))) => {
                device.objects.completion_queue(completions)?
            }
            _ => own_completions,
        };
        if below_limit {
            device.raise(AsyncEvent::SharedReceiveLimit(queue.id));
        }
        Some(Receiving {
            request,
            domain,
            completions,
            origin: Some(queue),
            filled: 0,
            contents: None,
        })
    }

    /// Returns a receive whose message did not complete.
    pub(super) fn put_back(&mut self, receiving: Receiving) {
        match receiving.origin {
            Some(queue) => queue.put_back(receiving.request),
            None => self.receive.put_back(receiving.request),
        }
    }

    fn shared_receive_for(
        &self,
        packet: &Packet<'_>,
        device: &DeviceState,
    ) -> Option<Arc<SharedReceiveQueue>> {
        match self.init.kind {
            QueuePairType::XrcTarget => self.named_receive_queue(packet, device),
            _ => self.attached.shared_receive.clone(),
        }
    }

    /// The shared receive queue that an XRC request names, if this queue pair may use it.
    fn named_receive_queue(
        &self,
        packet: &Packet<'_>,
        device: &DeviceState,
    ) -> Option<Arc<SharedReceiveQueue>> {
        let number = packet.xrc_srq()?;
        let tables = device.objects.tables();
        let queue = tables.receive_queue(tables.srq_numbers.find(number)?)?;
        let (domain, _) = queue.init.xrc?;
        (Some(domain) == self.init.xrc_domain).then_some(queue)
    }
}

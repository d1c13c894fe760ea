//! The receive side of a reliable connection.
//!
//! A request is first put in its place in the sequence, then [admitted](QueuePair::admit) by named
//! checks that change nothing, and only then executed. What is refused gets the NAK that the
//! specification names, and what was seen before is answered again but never executed again.

mod admit;
mod diagnosis;
mod execute;
mod replay;
mod reply;

use std::collections::VecDeque;

use wire::{Key, NakCode, Packet, Psn, Syndrome};

use super::{Kind, QueuePair, State};
use crate::completion::{CompletionQueue, Status};
use crate::event::AsyncEvent;
use crate::memory::ProtectionDomain;
use crate::receive::SharedReceiveQueue;
use crate::sabotage::{Bug, Sabotage};
use crate::shared::Shared;
use crate::table::Id;
use crate::work::ReceiveRequest;
pub(super) use admit::Refusal;
use replay::Saved;
use reply::Reply;

/// The receive side's place in the sequence, and what it still has to say.
#[derive(Debug)]
pub(super) struct Responder {
    /// The sequence number that must come next.
    pub(super) expected: Psn,
    /// How many messages are complete, modulo 2^24.
    completed: u32,
    /// A NAK was sent for the expected number: silence until it comes.
    silent: bool,
    /// A message of which some packets are still to come.
    pub(super) message: Option<Message>,
    replies: VecDeque<Reply>,
    /// The last reads and atomics, to answer them again.
    saved: VecDeque<Saved>,
    /// Whether the peer has been heard.
    established: bool,
    /// For an XRC target: the domain of the shared receive queue that the last request names.
    pub(super) domain: Option<Id<ProtectionDomain>>,
}

/// A message that arrives in several packets.
#[derive(Debug)]
pub(super) enum Message {
    /// It goes into a receive.
    Send(Receiving),
    /// It goes into memory that the peer named.
    Write(Writing),
}

/// A receive that is being filled.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) request: ReceiveRequest,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) completions: Id<CompletionQueue>,
    /// The shared queue it came from, if any.
    pub(super) origin: Option<Id<SharedReceiveQueue>>,
    pub(super) filled: u32,
}

/// Where the next packet of a WRITE goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    pub(super) key: Key,
    pub(super) address: u64,
    pub(super) remaining: u32,
    pub(super) total: u32,
}

/// Where a request stands in the sequence.
enum Place {
    Expected,
    /// Seen before.
    Duplicate,
    /// Something before it is missing.
    Ahead,
}

impl Responder {
    pub(super) fn new() -> Self {
        Self {
            expected: Psn::ZERO,
            completed: 0,
            silent: false,
            message: None,
            replies: VecDeque::new(),
            saved: VecDeque::new(),
            established: false,
            domain: None,
        }
    }

    pub(super) fn start(&mut self, expected: Psn) {
        self.expected = expected;
    }

    fn place(&self, psn: Psn, sabotage: Sabotage) -> Place {
        let distance = match sabotage.has(Bug::NoPsnWrap) {
            true => psn.value() as i32 - self.expected.value() as i32,
            false => psn.since(self.expected),
        };
        match distance {
            0 => Place::Expected,
            1.. if sabotage.has(Bug::GapAccepted) => Place::Expected,
            1.. => Place::Ahead,
            _ => Place::Duplicate,
        }
    }
}

impl QueuePair {
    pub(super) fn handle_request(&mut self, packet: &Packet<'_>, shared: &mut Shared) {
        self.note_domain(packet, shared);
        match self.responder.place(packet.psn, shared.sabotage) {
            Place::Duplicate => return self.repeat(packet, shared),
            Place::Ahead => return self.report_gap(shared),
            Place::Expected => self.note_contact(shared),
        }
        if let Err(refusal) = self.admit(packet, shared) {
            return self.refuse(packet, refusal, shared);
        }
        if let Err(refusal) = self.execute(packet, shared) {
            self.refuse(packet, refusal, shared);
        }
    }

    /// An XRC target has no memory of its own: a request reaches that of the queue it names.
    fn note_domain(&mut self, packet: &Packet<'_>, shared: &Shared) {
        if self.init.kind == Kind::XrcTarget
            && let Some(id) = self.named_receive_queue(packet, shared)
            && let Some(queue) = shared.receive_queues.get(id)
        {
            self.responder.domain = Some(queue.init.domain);
        }
    }

    /// One sequence NAK per gap, then silence until the expected packet comes.
    fn report_gap(&mut self, shared: &mut Shared) {
        shared.counters.out_of_sequence += 1;
        if self.responder.silent {
            return;
        }
        shared.counters.sequence_naks_sent += 1;
        self.negative(Syndrome::Negative(NakCode::SequenceError));
    }

    fn negative(&mut self, syndrome: Syndrome) {
        self.responder.silent = true;
        let psn = self.responder.expected;
        self.responder.push_verdict(psn, syndrome);
    }

    fn refuse(&mut self, packet: &Packet<'_>, refusal: Refusal, shared: &mut Shared) {
        match refusal {
            Refusal::NotReady => {
                shared.counters.rnr_naks_sent += 1;
                let timer = self.attributes.rnr_timer.unwrap_or_default();
                self.negative(Syndrome::ReceiverNotReady(timer));
            }
            Refusal::Fatal { nak, receive } => {
                shared.counters.fatal_naks_sent += 1;
                self.note_refusal(packet, refusal, Some(nak), shared);
                if let Some(status) = receive {
                    self.spoil_receive(packet, status, shared);
                }
                self.negative(Syndrome::Negative(nak));
                shared.raise(match nak {
                    // C9-222.1.1: a key violation is also an affiliated asynchronous error.
                    NakCode::RemoteAccess => AsyncEvent::AccessError(self.number),
                    NakCode::InvalidRequest => AsyncEvent::RequestError(self.number),
                    _ => AsyncEvent::QueuePairFatal(self.number),
                });
                self.fail(shared);
            }
        }
    }

    /// The receive of the message that was refused ends with `status`.
    fn spoil_receive(&mut self, packet: &Packet<'_>, status: Status, shared: &mut Shared) {
        if self.responder.message.is_none() {
            self.responder.message = self.take_receive(packet, shared).map(Message::Send);
        }
        self.abandon_message(status, shared);
    }

    /// A message that was begun will not be finished: its receive ends with `status`.
    pub(super) fn abandon_message(&mut self, status: Status, shared: &mut Shared) {
        if let Some(Message::Send(receiving)) = self.responder.message.take() {
            let id = receiving.request.id;
            self.complete_receive_in_error(receiving.completions, id, status, shared);
        }
    }

    /// The first packet from the peer tells that it is there. A stray packet of whoever was
    /// connected to this number before tells nothing: it must be the one that is expected.
    pub(super) fn note_contact(&mut self, shared: &mut Shared) {
        if self.state == State::ReadyToReceive && !self.responder.established {
            self.responder.established = true;
            shared.raise(AsyncEvent::CommunicationEstablished(self.number));
        }
    }

    /// Whether there is a receive for a message that `packet` begins.
    pub(super) fn has_receive(&self, packet: &Packet<'_>, shared: &Shared) -> bool {
        match self.shared_receive_for(packet, shared) {
            Some(id) => shared
                .receive_queues
                .get(id)
                .is_some_and(|queue| !queue.is_empty()),
            None => !self.receive.is_empty(),
        }
    }

    /// Takes the next receive from where this queue pair takes them.
    pub(super) fn take_receive(
        &mut self,
        packet: &Packet<'_>,
        shared: &mut Shared,
    ) -> Option<Receiving> {
        let Some(id) = self.shared_receive_for(packet, shared) else {
            return Some(Receiving {
                request: self.receive.take()?,
                domain: self.init.domain,
                completions: self.init.receive_completions,
                origin: None,
                filled: 0,
            });
        };
        let queue = shared.receive_queues.get_mut(id)?;
        let (request, below_limit) = queue.take()?;
        let domain = queue.init.domain;
        let completions = match (self.init.kind, queue.init.extended) {
            (Kind::XrcTarget, Some((_, completions))) => completions,
            _ => self.init.receive_completions,
        };
        if below_limit {
            shared.raise(AsyncEvent::SharedReceiveLimit(id));
        }
        Some(Receiving {
            request,
            domain,
            completions,
            origin: Some(id),
            filled: 0,
        })
    }

    fn shared_receive_for(
        &self,
        packet: &Packet<'_>,
        shared: &Shared,
    ) -> Option<Id<SharedReceiveQueue>> {
        match self.init.kind {
            Kind::XrcTarget => self.named_receive_queue(packet, shared),
            _ => self.init.shared_receive,
        }
    }

    /// The shared receive queue that an XRC request names, if this queue pair may fill it.
    fn named_receive_queue(
        &self,
        packet: &Packet<'_>,
        shared: &Shared,
    ) -> Option<Id<SharedReceiveQueue>> {
        let number = packet.xrc_srq()?;
        let id = shared.receive_numbers.find(number)?;
        let (domain, _) = shared.receive_queues.get(id)?.init.extended?;
        (Some(domain) == self.init.xrc_domain).then_some(id)
    }
}

//! Queue pairs: the two ends of every conversation.
//!
//! [`QueuePair`] holds what all kinds have in common. It is created with an [`init`], told its peer
//! by [`modification`] and its work by [`posting`]; here stands what a device asks of it: to take a
//! packet, to fill one send, to act when time has run out.
//!
//! The send side of a reliable one is the [`requester`], its receive side the [`responder`];
//! unreliable connections ([`unreliable`]) and datagrams ([`datagram`]) are simpler and have files
//! of their own. All take their work from the [`send_queue`] and cut it by [`segmentation`]. The way
//! into the error state is in [`error`], and [`diagnosis`] finds out why.

mod attributes;
mod datagram;
mod diagnosis;
mod error;
mod init;
mod kind;
mod local_work;
mod modification;
mod posting;
mod requester;
mod responder;
mod segmentation;
mod send_queue;
mod state;
mod unreliable;

pub(crate) use datagram::network_header;
pub(crate) use init::Settings;

pub use attributes::{Attribute, Attributes};
pub use init::QueuePairInit;
pub use kind::Kind;
pub use requester::WindowLimits;
pub use state::{ModifyError, State};

use std::time::Instant;

use wire::{Packet, PartitionKey, PathMtu, Psn, Qpn, QueueKey};

use crate::address::{Arrival, GidTable, Route};
use crate::completion::{CompletedWork, CompletionQueue};
use crate::counters::Counters;
use crate::memory::{Access, Party};
use crate::receive::ReceiveQueue;
use crate::shared::Shared;
use crate::table::Id;
use crate::transmit::Batch;
use requester::Requester;
use responder::Responder;
use send_queue::SendQueue;

/// One end of a conversation.
pub struct QueuePair {
    number: Qpn,
    init: QueuePairInit,
    settings: Settings,
    state: State,
    /// The values that it was told; also what a query gives back.
    attributes: Attributes,
    link: Option<Link>,
    send: SendQueue,
    receive: ReceiveQueue,
    requester: Requester,
    responder: Responder,
    /// When the device's timer queue will look at it.
    pub(crate) scheduled: Option<Instant>,
    /// Whether it stands in the device's queue of those with something to send.
    pub(crate) queued: bool,
}

/// Where a connected queue pair's packets go to and come from.
#[derive(Debug, Clone, Copy)]
struct Link {
    route: Route,
    peer: Qpn,
    mtu: PathMtu,
}

impl Link {
    fn mtu(&self) -> usize {
        self.mtu.bytes()
    }
}

/// Slots for the moments at which a queue pair must act by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    /// Something sent is not acknowledged: go back to it.
    Acknowledgement,
    /// The peer had no receive posted: try again after the delay it named.
    ReceiverNotReady,
    /// No other requests have come to go with the few that wait: they go alone.
    Company,
}

impl QueuePair {
    pub(crate) fn new(number: Qpn, init: QueuePairInit, settings: Settings) -> Self {
        Self {
            number,
            init,
            settings,
            state: State::Reset,
            attributes: Attributes::default(),
            link: None,
            send: SendQueue::new(&init),
            receive: ReceiveQueue::new(init.max_receives, init.max_receive_segments),
            requester: Requester::new(settings.window),
            responder: Responder::new(),
            scheduled: None,
            queued: false,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The attributes it was told, the state included.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes {
            state: Some(self.state),
            current_state: Some(self.state),
            ..self.attributes
        }
    }

    /// What it was created with.
    #[must_use]
    pub fn init(&self) -> &QueuePairInit {
        &self.init
    }

    /// How many send requests are outstanding.
    #[must_use]
    pub fn outstanding_sends(&self) -> usize {
        self.send.len()
    }

    /// Which send request a sequence number of ours belongs to, for captures: its number and kind.
    ///
    /// Slow: it looks through the send queue.
    #[must_use]
    pub fn request_at(&self, psn: Psn) -> Option<(u64, CompletedWork)> {
        self.send.find(psn)
    }

    /// Takes a packet that is for this queue pair.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        arrival: &Arrival,
        shared: &mut Shared,
    ) {
        if let Err(count) = self.check_packet(packet, arrival) {
            *count(&mut shared.counters) += 1;
            self.note_stranger(packet, arrival, shared);
            return;
        }
        shared.counters.packets_received += 1;
        match (self.init.kind, packet.opcode.is_response()) {
            (Kind::Uc, false) => self.handle_unreliable(packet, shared),
            (Kind::Rc | Kind::XrcTarget, false) => self.handle_request(packet, shared),
            (Kind::Rc | Kind::XrcInitiator, true) if self.state.transmits() => {
                self.handle_response(now, packet, shared);
            }
            // Nothing was sent yet that could be answered.
            (Kind::Rc | Kind::XrcInitiator, true) => shared.counters.wrong_state += 1,
            _ => shared.counters.wrong_service += 1,
        }
    }

    /// Whether the packet may come here at all; else which counter counts it.
    pub(crate) fn check_packet(
        &self,
        packet: &Packet<'_>,
        arrival: &Arrival,
    ) -> Result<(), fn(&mut Counters) -> &mut u64> {
        if packet.opcode.transport() != self.init.kind.transport() {
            return Err(|counters| &mut counters.wrong_service);
        }
        if !self.state.receives() {
            return Err(|counters| &mut counters.wrong_state);
        }
        if !packet.partition.matches(self.partition()) {
            return Err(|counters| &mut counters.bad_partition_key);
        }
        let from_peer = |link: &Link| {
            let flow = &link.route.flow;
            flow.destination == arrival.flow.source && flow.source == arrival.flow.destination
        };
        if !self.init.kind.is_datagram() && !self.link.as_ref().is_some_and(from_peer) {
            return Err(|counters| &mut counters.wrong_path);
        }
        Ok(())
    }

    /// Whether it may have something to send.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.responder.has_replies() || (self.state.transmits() && self.has_sends_to_transmit())
    }

    fn has_sends_to_transmit(&self) -> bool {
        match self.init.kind.is_reliable() {
            true => self.requester.may_transmit(&self.send),
            false => !self.send.is_empty(),
        }
    }

    /// Puts as much as fits into one send.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        gids: &GidTable,
        batch: &mut Batch<'_>,
        shared: &mut Shared,
    ) {
        // A lone acknowledgement is shorter than what it follows: behind a request it fits into the
        // same send, before it never.
        let replies_last = self.responder.only_acknowledges();
        if !replies_last {
            self.transmit_replies(batch, shared);
        }
        if self.state.transmits() {
            match self.init.kind {
                Kind::Rc | Kind::XrcInitiator => self.transmit_requests(now, batch, shared),
                Kind::XrcTarget => {}
                Kind::Uc => self.transmit_unreliable(batch, shared),
                Kind::Ud | Kind::Management => self.transmit_datagrams(gids, batch, shared),
            }
        }
        if replies_last {
            self.transmit_replies(batch, shared);
        }
    }

    /// When it wants to be looked at again, at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.requester.deadline()
    }

    /// Acts on the timers that ran out. Early or twice is harmless.
    pub(crate) fn handle_timeout(&mut self, now: Instant, shared: &mut Shared) {
        match self.requester.expired(now) {
            Some(Timer::ReceiverNotReady) => self.requester.end_rnr_wait(),
            Some(Timer::Acknowledgement) => self.acknowledgement_timed_out(shared),
            Some(Timer::Company) => self.requester.give_up_company(),
            None => {}
        }
    }

    pub(crate) fn completes_into(&self, queue: Id<CompletionQueue>) -> bool {
        [self.init.send_completions, self.init.receive_completions].contains(&queue)
    }

    fn party(&self) -> Party {
        Party {
            domain: self.responder.domain.unwrap_or(self.init.domain),
            queue_pair: self.number,
        }
    }

    fn access(&self) -> Access {
        self.attributes.access.unwrap_or_default()
    }

    fn queue_key(&self) -> QueueKey {
        match self.init.kind {
            Kind::Management => QueueKey::GSI,
            _ => self.attributes.queue_key.unwrap_or_default(),
        }
    }

    fn partition(&self) -> PartitionKey {
        PartitionKey::default()
    }
}

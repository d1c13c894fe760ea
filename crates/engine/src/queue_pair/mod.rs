//! Queue pairs: the two ends of every conversation.
//!
//! [`QueuePair`] holds what all kinds have in common. The send side of a reliable one is the
//! [`requester`], its receive side the [`responder`]; unreliable connections ([`unreliable`]) and
//! datagrams ([`datagram`]) are simpler and have files of their own.

mod attributes;
mod datagram;
mod diagnosis;
mod error;
mod local_work;
mod requester;
mod responder;
mod segmentation;
mod send_queue;
mod state;
mod unreliable;

pub(crate) use datagram::network_header;

pub use attributes::{Attribute, Attributes};
pub use requester::WindowLimits;
pub use state::{ModifyError, State};

use std::time::{Duration, Instant};

use wire::{Packet, PartitionKey, PathMtu, Psn, Qpn, QueueKey, Transport};

use crate::address::{Arrival, GidTable, Route};
use crate::completion::{CompletedWork, CompletionQueue};
use crate::counters::Counters;
use crate::event::AsyncEvent;
use crate::memory::{Access, Party, ProtectionDomain};
use crate::receive::{PostError, ReceiveQueue, SharedReceiveQueue, XrcDomain};
use crate::shared::Shared;
use crate::table::Id;
use crate::transmit::Batch;
use crate::work::{ReceiveRequest, SendRequest};
use requester::Requester;
use responder::Responder;
use send_queue::SendQueue;

/// The service that a queue pair gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection: everything arrives, once and in order.
    Rc,
    /// Unreliable connection: messages may be lost.
    Uc,
    /// Unreliable datagram: single packets to anybody.
    Ud,
    /// The sending end of an extended reliable connection.
    XrcInitiator,
    /// The receiving end of an extended reliable connection, on shared receive queues.
    XrcTarget,
    /// Queue pair 1, by which connections are managed: datagrams with a well-known key.
    Management,
}

impl Kind {
    const fn transport(self) -> Transport {
        match self {
            Kind::Rc => Transport::Rc,
            Kind::Uc => Transport::Uc,
            Kind::Ud | Kind::Management => Transport::Ud,
            Kind::XrcInitiator | Kind::XrcTarget => Transport::Xrc,
        }
    }

    const fn is_datagram(self) -> bool {
        matches!(self, Kind::Ud | Kind::Management)
    }

    const fn is_reliable(self) -> bool {
        matches!(self, Kind::Rc | Kind::XrcInitiator | Kind::XrcTarget)
    }
}

/// What a queue pair is created with.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairInit {
    /// The service.
    pub kind: Kind,
    /// The domain of the memory it may touch.
    pub domain: Id<ProtectionDomain>,
    /// Where send requests complete.
    pub send_completions: Id<CompletionQueue>,
    /// Where receive requests complete.
    pub receive_completions: Id<CompletionQueue>,
    /// Where receives come from, if not from a queue of its own.
    pub shared_receive: Option<Id<SharedReceiveQueue>>,
    /// For an XRC target: the domain of the shared receive queues it may fill.
    pub xrc_domain: Option<Id<XrcDomain>>,
    /// How many send requests may be outstanding.
    pub max_sends: u32,
    /// How many receive requests may be outstanding.
    pub max_receives: u32,
    /// How many segments a send request may have.
    pub max_send_segments: u32,
    /// How many segments a receive request may have.
    pub max_receive_segments: u32,
    /// How many bytes may be inline in a send request.
    pub max_inline: u32,
    /// Whether every send request is signaled.
    pub signal_all: bool,
}

impl QueuePairInit {
    /// A small queue pair whose requests all complete in one queue.
    #[must_use]
    pub fn new(kind: Kind, domain: Id<ProtectionDomain>, completions: Id<CompletionQueue>) -> Self {
        Self {
            kind,
            domain,
            send_completions: completions,
            receive_completions: completions,
            shared_receive: None,
            xrc_domain: None,
            max_sends: 128,
            max_receives: 128,
            max_send_segments: 4,
            max_receive_segments: 4,
            max_inline: 256,
            signal_all: false,
        }
    }
}

/// What a device gives every queue pair to know of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) active_mtu: PathMtu,
    pub(crate) window: WindowLimits,
    pub(crate) advertise_credits: bool,
    pub(crate) min_ack_timeout: Duration,
    pub(crate) max_responder_resources: u8,
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
}

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

    pub(crate) fn modify(
        &mut self,
        attributes: &Attributes,
        gids: &GidTable,
        shared: &mut Shared,
    ) -> Result<(), ModifyError> {
        let to = state::check(self.init.kind, self.state, attributes)?;
        self.check_values(attributes)?;
        let merged = self.attributes.updated_by(attributes);
        let link = match attributes.path.is_some() {
            true => Some(self.link_for(&merged, gids)?),
            false => self.link,
        };
        self.attributes = merged;
        self.link = link;
        self.enter(to, attributes, shared);
        Ok(())
    }

    fn check_values(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        let out_of_range = |attribute| Err(ModifyError::OutOfRange { attribute });
        if attributes.port.is_some_and(|port| port != 1) {
            return out_of_range(Attribute::PORT);
        }
        if attributes.partition_index.is_some_and(|index| index != 0) {
            return out_of_range(Attribute::PARTITION);
        }
        if attributes
            .path_mtu
            .is_some_and(|mtu| mtu > self.settings.active_mtu)
        {
            return out_of_range(Attribute::PATH_MTU);
        }
        if attributes.retry_count.is_some_and(|count| count > 7) {
            return out_of_range(Attribute::RETRY_COUNT);
        }
        if attributes.rnr_retry.is_some_and(|count| count > 7) {
            return out_of_range(Attribute::RNR_RETRY);
        }
        let max = self.settings.max_responder_resources;
        if attributes
            .responder_resources
            .is_some_and(|count| count > max)
        {
            return out_of_range(Attribute::RESPONDER_RESOURCES);
        }
        if attributes.initiator_depth.is_some_and(|count| count > max) {
            return out_of_range(Attribute::INITIATOR_DEPTH);
        }
        Ok(())
    }

    fn link_for(&self, attributes: &Attributes, gids: &GidTable) -> Result<Link, ModifyError> {
        let missing = |attribute| ModifyError::OutOfRange { attribute };
        let path = attributes.path.ok_or(missing(Attribute::PATH))?;
        let mtu = attributes.path_mtu.ok_or(missing(Attribute::PATH_MTU))?;
        let peer = attributes
            .destination
            .ok_or(missing(Attribute::DESTINATION))?;
        let route = gids.route(&path, self.number, peer)?;
        Ok(Link { route, peer, mtu })
    }

    fn enter(&mut self, to: State, attributes: &Attributes, shared: &mut Shared) {
        let from = std::mem::replace(&mut self.state, to);
        match (from, to) {
            (_, State::Reset) => self.reset(shared),
            (from, State::Error) => {
                self.state = from;
                self.fail(shared);
            }
            (State::Initialized, State::ReadyToReceive) => {
                self.responder
                    .start(attributes.receive_psn.unwrap_or_default());
            }
            (State::ReadyToReceive, State::ReadyToSend) => {
                self.requester
                    .start(attributes.send_psn.unwrap_or_default());
            }
            (State::ReadyToSend, State::SendQueueDrain) => {
                self.requester.announce_drain = attributes.drain_event.unwrap_or(false);
                self.announce_drained(shared);
            }
            _ => {}
        }
        self.requester.renew_retries(&self.attributes);
    }

    /// Back to how it was created: everything outstanding is forgotten without a completion, and
    /// so are completions that nobody has polled, which would look like those of its next life.
    fn reset(&mut self, shared: &mut Shared) {
        for queue in [self.init.send_completions, self.init.receive_completions] {
            if let Some(queue) = shared.completion_queues.get_mut(queue) {
                queue.purge(self.number);
            }
        }
        *self = Self {
            scheduled: self.scheduled,
            queued: self.queued,
            ..Self::new(self.number, self.init, self.settings)
        };
    }

    pub(crate) fn post_send(
        &mut self,
        request: SendRequest,
        gids: &GidTable,
        shared: &mut Shared,
    ) -> Result<(), PostError> {
        if let Err(error) = self.check_send(&request, gids) {
            self.note_refused_post(request.id, request.work.kind(), error, shared);
            return Err(error);
        }
        let mtu = self.link.map_or(self.settings.active_mtu, |link| link.mtu);
        self.send.push(request, mtu);
        if matches!(self.state, State::Error | State::SendQueueError) {
            self.flush_sends(shared);
        }
        Ok(())
    }

    fn check_send(&self, request: &SendRequest, gids: &GidTable) -> Result<(), PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::WrongState(self.state));
        }
        self.send.check_room(1)?;
        self.send.check(request, self.init.kind, gids)
    }

    /// Whether all of these would be taken.
    pub(crate) fn check_sends(
        &self,
        requests: &[SendRequest],
        gids: &GidTable,
    ) -> Result<(), PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::WrongState(self.state));
        }
        self.send.check_room(requests.len())?;
        let mut checks = requests
            .iter()
            .map(|request| self.send.check(request, self.init.kind, gids));
        checks.try_for_each(|check| check)
    }

    pub(crate) fn post_receive(
        &mut self,
        request: ReceiveRequest,
        shared: &mut Shared,
    ) -> Result<(), PostError> {
        let id = request.id;
        let posted = self
            .check_receives()
            .and_then(|()| self.receive.post(request));
        if let Err(error) = posted {
            self.note_refused_post(id, CompletedWork::Receive, error, shared);
            return Err(error);
        }
        if self.state == State::Error {
            self.flush_receives(shared);
        }
        Ok(())
    }

    /// Whether it takes receives of its own at all.
    fn check_receives(&self) -> Result<(), PostError> {
        if self.state == State::Reset {
            return Err(PostError::WrongState(self.state));
        }
        if self.init.shared_receive.is_some() {
            return Err(PostError::SharedReceive);
        }
        if matches!(self.init.kind, Kind::XrcInitiator | Kind::XrcTarget) {
            return Err(PostError::Unsupported);
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
            None => {}
        }
    }

    fn announce_drained(&mut self, shared: &mut Shared) {
        let drained = self.state == State::SendQueueDrain && !self.send.has_begun();
        if drained && std::mem::take(&mut self.requester.announce_drain) {
            shared.raise(AsyncEvent::SendQueueDrained(self.number));
        }
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

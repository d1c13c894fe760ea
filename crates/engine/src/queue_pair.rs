//! Queue pairs of all types.
//!
//! [`QueuePair`] holds the state that all types share. It is created with the values of [`QueuePairInit`], connected by
//! [`modification`] and given work by [`posting`]. This file holds the entry points of the device:
//! handle a packet, fill one send, handle expired timers.
//!
//! The send side of a reliable queue pair is the [`requester`], its receive side the [`responder`].
//! Unreliable connections ([`unreliable_connection`]) and datagrams ([`datagram`]) are simpler and have their
//! own files. All take their work from the [`send_queue`] and divide it into packets by
//! [`segmentation`], except requests within a device ([`direct`]). The transition to the error state is in [`error_state`], and [`diagnosis`] finds out
//! why something failed.

mod congestion_notice;
mod datagram;
mod diagnosis;
mod direct;
mod error_state;
mod kept_packets;
mod local_work;
mod modification;
mod posting;
mod requester;
mod responder;
mod segmentation;
mod send_queue;
mod settings;
mod unpolled;
mod unreliable_connection;
mod usage;

pub(crate) use datagram::network_header;
pub(crate) use direct::Kind;
pub(crate) use kept_packets::KeptTotal;
pub(crate) use settings::Settings;

pub use usage::QueuePairUsage;

use std::time::Instant;

use wire::{Operation, Packet, PartitionKey, PathMtu, Psn, Qpn, QueueKey, Route};

use crate::address::GidTable;
use crate::completion::{CompletedWork, CompletionQueue};
use crate::counters::{Counters, QueuePairCounters};
use crate::device_state::DeviceState;
use crate::memory::{Access, Accessor};
use crate::now::Now;
use crate::paths::{Congestion, Paths};
use crate::queue_pair_init::{AttachedQueues, QueuePairInit};
use crate::receive_queue::ReceiveQueue;
use crate::slab::Id;
use crate::state::{Attributes, QueuePairType, State};
use crate::transmit::{Batch, OwnDelivery};
use congestion_notice::CongestionNotice;
use diagnosis::WithoutReceive;
use direct::InStep;
use kept_packets::KeptPackets;
use requester::Requester;
use responder::Responder;
use send_queue::SendQueue;

/// A queue pair.
pub struct QueuePair {
    number: Qpn,
    init: QueuePairInit,
    attached: AttachedQueues,
    settings: Settings,
    state: State,
    /// The present attributes. A query returns them.
    attributes: Attributes,
    link: Option<PeerRoute>,
    send: SendQueue,
    receive: ReceiveQueue,
    requester: Requester,
    responder: Responder,
    notice: CongestionNotice,
    pub(crate) counters: QueuePairCounters,
    /// Since when every message finds no receive. Only for incidents.
    without_receive: Option<WithoutReceive>,
    in_step: InStep,
    /// The time of its entry in the device's timer queue.
    pub(crate) scheduled: Option<Instant>,
    /// Whether it is in the device's queue of queue pairs that may transmit.
    pub(crate) queued: bool,
}

/// The route to the peer of a connected queue pair.
#[derive(Debug, Clone, Copy)]
struct PeerRoute {
    route: Route,
    peer: Qpn,
    mtu: PathMtu,
    /// The control of congestion on the way to the peer.
    congestion: Congestion,
}

impl PeerRoute {
    fn mtu(&self) -> usize {
        self.mtu.bytes()
    }

    /// Whether a packet on this route comes from the peer.
    fn is_from_peer(&self, route: &Route) -> bool {
        let flow = &self.route.flow;
        flow.destination == route.flow.source && flow.source == route.flow.destination
    }
}

/// The timers of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    /// A sent packet is not acknowledged: go back to it.
    Acknowledgement,
    /// No response came within the estimated time: send the oldest packet again.
    Response,
    /// The peer had no receive posted: retry after the delay in its RNR NAK.
    ReceiverNotReady,
    /// Requests waited to be coalesced, and no more were posted: send them now.
    Coalescing,
}

impl QueuePair {
    pub(crate) fn new(
        number: Qpn,
        init: QueuePairInit,
        attached: AttachedQueues,
        settings: Settings,
    ) -> Self {
        Self {
            number,
            init,
            attached,
            settings,
            state: State::Reset,
            attributes: Attributes::default(),
            link: None,
            send: SendQueue::new(&init),
            receive: ReceiveQueue::new(init.max_receives, init.max_receive_segments),
            requester: Requester::new(settings.window),
            responder: Responder::new(),
            notice: CongestionNotice::default(),
            counters: QueuePairCounters::default(),
            without_receive: None,
            in_step: InStep::default(),
            scheduled: None,
            queued: false,
        }
    }

    /// The queue pair number.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The present attributes, including the state.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes {
            state: Some(self.state),
            current_state: Some(self.state),
            ..self.attributes
        }
    }

    /// The PSN that it expects of its peer next, and the first one that it has not sent.
    #[must_use]
    pub fn next_psns(&self) -> (Psn, Psn) {
        (self.responder.expected, self.requester.first_unsent())
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &QueuePairCounters {
        &self.counters
    }

    /// The values that it was created with.
    #[must_use]
    pub fn init(&self) -> &QueuePairInit {
        &self.init
    }

    /// How many send requests are outstanding.
    #[must_use]
    pub fn outstanding_sends(&self) -> usize {
        self.send.len()
    }

    /// How many send requests have ended with an error, those that were flushed included.
    #[must_use]
    pub fn failed_sends(&self) -> usize {
        self.send.failed
    }

    /// The send request of a PSN, for captures: its id and its kind.
    ///
    /// Slow: it searches the send queue.
    #[must_use]
    pub fn request_at(&self, psn: Psn) -> Option<(u64, CompletedWork)> {
        self.send.find(psn)
    }

    /// Handles a packet to this queue pair.
    pub(crate) fn handle_packet(
        &mut self,
        now: &Now,
        packet: &Packet<'_>,
        route: &Route,
        device: &mut DeviceState,
    ) {
        if let Err(count) = self.check_packet(packet, route) {
            *count(&mut device.counters) += 1;
            self.note_wrong_source(packet, route, device);
            self.note_early_packet(packet, route, device);
            return;
        }
        self.count_received(packet, device);
        self.note_marks(route, now, device);
        match (self.init.kind, packet.opcode.is_response()) {
            (QueuePairType::Uc, false) => self.handle_unreliable(packet, device),
            (QueuePairType::Rc | QueuePairType::XrcTarget, false) => {
                let naks = self.counters.rnr_naks_sent;
                self.handle_request(packet, device);
                if device.incidents.are_recorded() {
                    self.watch_receives(now, naks, device);
                }
            }
            (QueuePairType::Rc | QueuePairType::XrcInitiator, true) if self.state.transmits() => {
                // Its own window limits what a peer sends because of a READ.
                if route.is_marked() && packet.opcode.operation() == Operation::ReadResponse {
                    self.notified_of_congestion(&mut device.paths);
                }
                self.handle_response(now, packet, device);
            }
            // Nothing has been sent that could be answered.
            (QueuePairType::Rc | QueuePairType::XrcInitiator, true) => {
                device.counters.wrong_state += 1;
            }
            _ => device.counters.wrong_service += 1,
        }
    }

    pub(crate) fn count_received(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        let bytes = packet.length() as u64;
        device.counters.packets_received += 1;
        device.counters.bytes_received += bytes;
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes;
    }

    /// Checks whether the packet may be delivered to this queue pair. If not, counts it.
    pub(crate) fn check_packet(
        &self,
        packet: &Packet<'_>,
        route: &Route,
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
        // IBA 9.6.1.2.3: a connected queue pair accepts only packets between its own and its peer's address.
        let from_peer = |link: &PeerRoute| link.is_from_peer(route);
        if !self.init.kind.is_datagram() && !self.link.as_ref().is_some_and(from_peer) {
            return Err(|counters| &mut counters.wrong_path);
        }
        Ok(())
    }

    /// Whether it may have packets to send.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.notice.is_due()
            || self.responder.has_responses()
            || (self.state.transmits() && self.has_sends_to_transmit())
    }

    fn has_sends_to_transmit(&self) -> bool {
        if self.init.kind.is_reliable() {
            self.requester.may_transmit(&self.send) && !self.requester.is_in_line()
        } else {
            !self.send.is_empty()
        }
    }

    /// The route to its peer, and its number, if it is on this host.
    pub(crate) fn peer_within_host(&self) -> Option<(&Route, Qpn)> {
        let link = self
            .link
            .as_ref()
            .filter(|it| it.congestion == Congestion::Local)?;
        Some((&link.route, link.peer))
    }

    /// Whether its next packets leave the device.
    pub(crate) fn sends_out(&self, own: Option<OwnDelivery<'_>>, gids: &GidTable) -> bool {
        let next = match &self.link {
            Some(link) => Some((link.route, link.peer)),
            None => self.next_datagram(gids),
        };
        next.is_some_and(|(route, peer)| !own.is_some_and(|own| own.includes(&route, peer)))
    }

    /// Whether its packets are sent no faster than the port's speed, because nothing acknowledges them.
    pub(crate) fn is_paced(&self) -> bool {
        matches!(self.init.kind, QueuePairType::Uc | QueuePairType::Ud)
    }

    /// Whether the peer acknowledges packets and none is in flight, so that it probably waits for the next ones. The
    /// rest of a read, or one of several reads, is not what it waits for: its beginning was sent before.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.is_paced() && self.requester.in_flight() == 0 && !self.responder.is_streaming()
    }

    /// Adds packets to one send until it is full.
    pub(crate) fn transmit(
        &mut self,
        now: &Now,
        gids: &GidTable,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) {
        // One that has its turn on its path uses it first.
        if self.notice.is_due() && !self.requester.has_turn() {
            return self.transmit_notification(batch, device);
        }
        // A single acknowledgement is shorter than a request. All packets of one send except the
        // last have the same length, so it fits after a request but not before one. The receiver
        // handles it first. A request that does not fit into this send follows it. One with a list may be longer, and comes first.
        let responses_last = self.responder.only_acknowledges() && self.responder.kept.is_empty();
        if responses_last {
            batch.reserve_last(self.acknowledgement_length());
        } else {
            self.transmit_responses(now, batch, device);
        }
        if self.state.transmits() {
            match self.init.kind {
                QueuePairType::Rc | QueuePairType::XrcInitiator => {
                    self.transmit_requests(now, batch, device);
                }
                QueuePairType::XrcTarget => {}
                QueuePairType::Uc => self.transmit_unreliable(batch, device),
                QueuePairType::Ud | QueuePairType::Management => {
                    self.transmit_datagrams(gids, batch, device);
                }
            }
        }
        if responses_last {
            batch.use_reserved();
            self.transmit_responses(now, batch, device);
        }
    }

    /// The peer has received a packet with a congestion mark, if it is this peer that tells so.
    pub(crate) fn handle_notification(&mut self, route: &Route, paths: &mut Paths) {
        let from_peer = |link: &PeerRoute| link.is_from_peer(route);
        if self.link.as_ref().is_some_and(from_peer) {
            self.notified_of_congestion(paths);
        }
    }

    /// The time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.requester.deadline()
    }

    /// Handles expired timers. An early or repeated call has no effect.
    pub(crate) fn handle_timeout(&mut self, now: Instant, device: &mut DeviceState) {
        match self.requester.expired(now) {
            Some(Timer::ReceiverNotReady) => self.requester.end_rnr_wait(),
            Some(Timer::Acknowledgement) => {
                self.note_timeout(now);
                self.acknowledgement_timed_out(now, device);
                self.tell_retries(device);
            }
            Some(Timer::Response) => self.response_overdue(now, &mut device.paths),
            Some(Timer::Coalescing) => self.requester.end_coalescing(),
            None => {}
        }
    }

    /// Drops what it keeps behind gaps. The peer sends it again.
    pub(crate) fn drop_kept(&mut self) {
        self.responder.kept = KeptPackets::default();
        self.requester.drop_kept();
    }

    pub(crate) fn completes_into(&self, queue: Id<CompletionQueue>) -> bool {
        [self.init.send_completions, self.init.receive_completions].contains(&queue)
    }

    /// Discards its unpolled completions.
    pub(crate) fn purge_completions(&self) {
        for queue in self.completion_queues() {
            queue.purge(self.number);
        }
    }

    fn completion_queues(&self) -> [&CompletionQueue; 2] {
        let attached = &self.attached;
        [&attached.send_completions, &attached.receive_completions]
    }

    #[inline]
    fn accessor(&self) -> Accessor {
        Accessor {
            domain: self.responder.domain.unwrap_or(self.init.domain),
            queue_pair: self.number,
        }
    }

    fn access(&self) -> Access {
        self.attributes.access.unwrap_or_default()
    }

    fn queue_key(&self) -> QueueKey {
        match self.init.kind {
            QueuePairType::Management => QueueKey::GSI,
            _ => self.attributes.queue_key.unwrap_or_default(),
        }
    }

    fn partition(&self) -> PartitionKey {
        PartitionKey::default()
    }
}

//! The device: its objects, and how packets enter and leave it.

mod create_destroy;
mod direct;
mod moves;
mod multicast;
mod pacing;
mod peers;
mod queue_pairs;
mod timers;
mod turns;

pub use moves::MovingQueuePairs;
pub use multicast::MulticastError;

use std::borrow::BorrowMut;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

use wire::{
    Fragmentation, Gid, IcrcChecker, IcrcGenerator, Packet, PathMtu, Qpn, Route, Transport,
};

use crate::address::{Address, AddressError, GidTable, SourcePort, is_unicast};
use crate::checksums::Readings;
use crate::completion::{ArmOutcome, Completion, CompletionQueue, Notify};
use crate::counters::Counters;
use crate::device_state::DeviceState;
use crate::event::{AsyncEvent, Event};
use crate::incident::{Incident, Incidents};
use crate::limits::{Limits, MAX_RESPONDER_RESOURCES};
use crate::now::Now;
use crate::object_counts::ObjectCounts;
use crate::observation::{Observation, Observations, ReceiveQueueId};
use crate::paths::{Congestion, Paths, WindowLimits};
use crate::peers::HeldLists;
use crate::planted_bug::{Bug, PlantedBug};
use crate::qpn_range::QpnRange;
use crate::queue_pair::{QueuePair, Settings, network_header};
use crate::random::Random;
use crate::receive_queue::{PostError, SharedReceiveQueue};
use crate::shared_objects::{DeviceObjects, SharedObjects};
use crate::slab::Id;
use crate::state::{Attributes, ModifyError, State};
use crate::transmit::{Batch, BatchLimits, OwnDelivery, SharedRoom, Transmit, packets_to_handle};
use crate::work_request::{ReceiveRequest, SendRequest};
use multicast::Groups;
use pacing::Pacing;
use queue_pairs::QueuePairs;
use timers::Timers;

/// The configuration of a device.
#[derive(Debug, Clone)]
pub struct Config {
    /// The local GIDs by index. An all-zero entry is empty.
    pub gids: Vec<Gid>,
    /// The largest path MTU that the network supports.
    pub active_mtu: PathMtu,
    /// The range of queue pair numbers.
    pub numbers: QpnRange,
    /// How the UDP source port of packets is chosen.
    pub source_port: SourcePort,
    /// How many packets may go into one send.
    pub batch: BatchLimits,
    /// The limits of the send window.
    pub window: WindowLimits,
    /// The control of congestion for peers on other hosts.
    pub congestion: Congestion,
    /// How many bytes of UC and UD packets may be sent at once. Further ones are sent at the speed of the port.
    /// `None`: they are not paced.
    pub unreliable_burst: Option<u32>,
    /// Whether acknowledgements report end-to-end credits: how many receives are posted.
    pub advertise_credits: bool,
    /// Which peers are told what this device holds behind a gap.
    pub held_lists: HeldLists,
    /// The minimum acknowledgement timeout. It overrides shorter timeouts of queue pairs.
    pub min_ack_timeout: Duration,
    /// The maximum number of outstanding reads and atomics of a queue pair, in each direction.
    pub max_responder_resources: u8,
    /// How many objects of each kind there may be.
    pub limits: Limits,
    /// Whether incidents are recorded.
    pub incidents: bool,
    /// Whether observations are recorded.
    pub observations: bool,
    /// The seed of memory keys and queue pair numbers. The driver takes it from the system.
    pub seed: [u8; 32],
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gids: Vec::new(),
            active_mtu: PathMtu::Mtu1024,
            numbers: QpnRange::default(),
            source_port: SourcePort::OfFlow,
            batch: BatchLimits::default(),
            window: WindowLimits::default(),
            congestion: Congestion::default(),
            unreliable_burst: None,
            advertise_credits: true,
            held_lists: HeldLists::default(),
            min_ack_timeout: Duration::ZERO,
            max_responder_resources: MAX_RESPONDER_RESOURCES,
            limits: Limits::default(),
            incidents: false,
            observations: false,
            seed: [0; 32],
        }
    }
}

/// A RoCEv2 device without I/O or clock.
///
/// The caller passes the time and received datagrams, and polls for packets to send, the next
/// deadline and events. [`handle_datagram`](Self::handle_datagram),
/// [`handle_timeout`](Self::handle_timeout) and the post functions change the device.
/// [`poll_transmit`](Self::poll_transmit), [`poll_timeout`](Self::poll_timeout),
/// [`poll_event`](Self::poll_event) and [`poll_completion`](Self::poll_completion) return the
/// results.
pub struct Device {
    gids: GidTable,
    settings: Settings,
    batch: BatchLimits,
    limits: Limits,
    queue_pairs: QueuePairs,
    groups: Groups,
    state: DeviceState,
    /// The objects of the program.
    object_counts: ObjectCounts,
    checker: IcrcChecker,
    icrc_generator: IcrcGenerator,
    timers: Timers,
    /// Queue pairs that may have packets to send, in round-robin order.
    ready: VecDeque<Qpn>,
    /// Queue pairs that wait for room: for that of their peer on this host, or for any.
    without_room: Vec<Qpn>,
    /// Whether only packets to own queue pairs could be sent last.
    is_closed: bool,
    /// Whether a queue pair that waited for its path is next, if there is one.
    turn_is_next: bool,
    pacing: Pacing,
    /// Numbers of the range that belong to other devices which share the objects of this one.
    given: Vec<QpnRange>,
    /// Whether it gives no more numbers away.
    keeps_numbers: bool,
    /// Whether packets are built without ICRC.
    icrc_left_out: bool,
    /// Whether packets to own queue pairs are handled at once instead of being sent.
    own_delivery: bool,
    /// Whether requests to own queue pairs are executed without packets, where that is possible.
    executes_directly: bool,
    /// The queue pairs between which this call has delivered packets at once. Their timers start at its end, if they are still
    /// needed.
    delivered: Vec<Qpn>,
    /// A part of a message that is copied within the device.
    piece: Vec<u8>,
    /// How many bytes posts may still deliver to own queue pairs.
    own_delivery_left: usize,
    /// Whether the device rejects every call.
    opened_before_fork: bool,
}

/// How many bytes are delivered to own queue pairs by one call of [`Device::poll_transmit`], and by the posts since
/// [`Device::begin_posts`]. The caller holds a lock, and a request may have gigabytes.
const MAX_OWN_DELIVERY: usize = 1 << 20;

impl Device {
    /// A device without objects.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::over(config, None)
    }

    /// A device whose queue pairs use the objects of another one.
    #[must_use]
    pub fn sharing(config: Config, objects: Arc<SharedObjects>) -> Self {
        Self::over(config, Some(objects))
    }

    fn over(config: Config, objects: Option<Arc<SharedObjects>>) -> Self {
        let mut random = Random::new(config.seed);
        let limits = config.limits;
        let queue_pair_numbers = random.fork();
        let objects = objects.unwrap_or_else(|| Arc::new(SharedObjects::new(random, limits)));
        Self {
            gids: GidTable::new(config.gids, config.source_port),
            settings: Settings {
                active_mtu: config.active_mtu,
                window: config.window,
                congestion: config.congestion,
                advertise_credits: config.advertise_credits,
                min_ack_timeout: config.min_ack_timeout,
                max_responder_resources: config.max_responder_resources,
            },
            batch: config.batch,
            limits,
            queue_pairs: QueuePairs::new(config.numbers, queue_pair_numbers),
            groups: Groups::new(limits),
            state: DeviceState {
                objects: DeviceObjects::new(objects),
                events: VecDeque::new(),
                incidents: Incidents::new(config.incidents),
                observations: Observations::new(config.observations),
                unread: Vec::new(),
                uncompared: BTreeSet::new(),
                counters: Counters::default(),
                paths: Paths::default(),
                held_lists: config.held_lists,
                questions: VecDeque::new(),
                planted: PlantedBug::default(),
                kept: Arc::default(),
                kept_is_full: false,
                overrun: Vec::new(),
                overrun_before: Vec::new(),
            },
            object_counts: ObjectCounts::default(),
            checker: IcrcChecker::new(),
            icrc_generator: IcrcGenerator::new(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            without_room: Vec::new(),
            is_closed: false,
            turn_is_next: false,
            pacing: Pacing::new(config.unreliable_burst),
            given: Vec::new(),
            keeps_numbers: false,
            icrc_left_out: false,
            own_delivery: false,
            executes_directly: false,
            delivered: Vec::new(),
            piece: Vec::new(),
            own_delivery_left: MAX_OWN_DELIVERY,
            opened_before_fork: false,
        }
    }

    /// A device that rejects every call: a forked child's copy of its parent's device.
    #[must_use]
    pub fn opened_before_fork() -> Self {
        Self {
            opened_before_fork: true,
            ..Self::new(Config::default())
        }
    }

    /// Plants a bug, to prove that a test detects it.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.state.planted.plant(bug);
        self.set_own_delivery(self.own_delivery);
    }

    /// The local GIDs by index.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        self.gids.entries()
    }

    /// Checks whether packets can be sent to an address.
    pub fn check_address(&self, address: &Address) -> Result<(), AddressError> {
        self.gids.resolve(address).map(drop)
    }

    /// Counts a new address handle, if packets can be sent to its address.
    ///
    /// The handle consists of its address only; the device stores nothing else.
    pub fn create_address_handle(&mut self, address: &Address) -> Result<(), AddressError> {
        self.check_address(address)?;
        let handles = &mut self.state.objects.tables().address_handles;
        if *handles >= self.limits.address_handles {
            return Err(AddressError::Exhausted);
        }
        *handles += 1;
        Ok(())
    }

    /// Counts one address handle less.
    pub fn destroy_address_handle(&mut self) {
        let handles = &mut self.state.objects.tables().address_handles;
        *handles = handles.saturating_sub(1);
    }

    /// How many objects of each kind there may be.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes how many packets may go into one send, for example when a socket cannot segment.
    pub fn set_batch_limits(&mut self, limits: BatchLimits) {
        self.batch = limits;
    }

    /// The counters of the device.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// All queue pairs; queue pair 1 is the last.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.queue_pairs.iter()
    }

    /// A queue pair, read-only.
    #[must_use]
    pub fn queue_pair(&self, number: Qpn) -> Option<&QueuePair> {
        self.queue_pairs.get(number)
    }

    /// For fault injection: while this is set, a queue pair answers SENDs as if no receive were posted.
    pub fn hide_receives(&mut self, number: Qpn, hide: bool) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
            queue_pair.hide_receives(hide);
        }
    }

    /// Changes the state and attributes of a queue pair.
    pub fn modify(&mut self, number: Qpn, attributes: &Attributes) -> Result<(), ModifyError> {
        let queue_pair = self
            .queue_pairs
            .get_mut(number)
            .ok_or(if self.opened_before_fork {
                ModifyError::OpenedBeforeFork
            } else {
                ModifyError::Unknown
            })?;
        if let Err(error) = queue_pair.modify(attributes, &self.gids, &mut self.state) {
            queue_pair.note_rejected_change(attributes, error, &mut self.state);
            return Err(error);
        }
        // It may have another peer now, whose ring has room.
        self.note_room_for(number);
        self.reschedule(number);
        Ok(())
    }

    /// Moves a queue pair to the error state. A queue pair in Reset stays in Reset.
    pub fn move_to_error(&mut self, number: Qpn) -> Result<(), ModifyError> {
        if self.queue_pair(number).map(QueuePair::state) == Some(State::Reset) {
            return Ok(());
        }
        let broken = Attributes {
            state: Some(State::Error),
            ..Attributes::default()
        };
        self.modify(number, &broken)
    }

    /// Posts a request to the send queue of a queue pair. One between idle queue pairs of this device completes at once.
    /// One that is passed by reference loses its data, unless it
    /// is executed at once.
    #[inline]
    pub fn post_send(
        &mut self,
        number: Qpn,
        mut request: impl BorrowMut<SendRequest>,
    ) -> Result<(), PostError> {
        let request = request.borrow_mut();
        match self.execute_directly(number, request) {
            Some(()) => Ok(()),
            None => self.queue_send(number, request.take()),
        }
    }

    fn queue_send(&mut self, number: Qpn, request: SendRequest) -> Result<(), PostError> {
        let unknown = self.unknown();
        let queue_pair = self.queue_pairs.get_mut(number).ok_or(unknown)?;
        queue_pair.post_send(request, &self.gids, &mut self.state)?;
        self.reschedule(number);
        Ok(())
    }

    /// Posts several requests, all of them or none. Drains `requests` on success.
    pub fn post_sends(
        &mut self,
        number: Qpn,
        requests: &mut Vec<SendRequest>,
    ) -> Result<(), PostError> {
        let unknown = self.unknown();
        let queue_pair = self.queue_pairs.get_mut(number).ok_or(unknown)?;
        if let Err(error) = queue_pair.check_sends(requests, &self.gids) {
            if let Some(first) = requests.first() {
                let work = first.work.kind();
                queue_pair.note_rejected_post(first.id, work, error, &mut self.state);
            }
            return Err(error);
        }
        let mut are_queued = false;
        for request in requests.drain(..) {
            if !are_queued && self.execute_directly(number, &request).is_some() {
                continue;
            }
            are_queued = true;
            let queue_pair = self.queue_pairs.get_mut(number).ok_or(unknown)?;
            queue_pair.post_send(request, &self.gids, &mut self.state)?;
        }
        if are_queued {
            self.reschedule(number);
        }
        Ok(())
    }

    /// Posts a request to the receive queue of a queue pair.
    #[inline]
    pub fn post_receive(&mut self, number: Qpn, request: ReceiveRequest) -> Result<(), PostError> {
        let unknown = self.unknown();
        let queue_pair = self.queue_pairs.get_to_receive(number).ok_or(unknown)?;
        queue_pair.post_receive(request, &mut self.state)?;
        // In the error state it has completed.
        self.fail_users_of_overrun_queues();
        Ok(())
    }

    /// Posts a request to a shared receive queue.
    pub fn post_shared_receive(
        &mut self,
        queue: Id<SharedReceiveQueue>,
        request: ReceiveRequest,
    ) -> Result<(), PostError> {
        let unknown = self.unknown();
        let entry = self.shared_receive_queue(queue).ok_or(unknown)?;
        let noted = self.state.observations.are_recorded().then(|| {
            let (id, segments) = (request.id, request.segments.clone());
            let queue = ReceiveQueueId::Shared(queue);
            Observation::ReceivePosted {
                queue,
                id,
                segments,
            }
        });
        entry.post(request)?;
        if let Some(noted) = noted {
            self.state.observations.note(|| noted);
        }
        Ok(())
    }

    fn unknown(&self) -> PostError {
        if self.opened_before_fork {
            PostError::OpenedBeforeFork
        } else {
            PostError::Unknown
        }
    }

    /// Removes and returns the oldest completion.
    pub fn poll_completion(&mut self, queue: Id<CompletionQueue>) -> Option<Completion> {
        self.poll_completions(queue).next()
    }

    /// Removes and returns completions, oldest first, that the program polls at once.
    pub fn poll_completions(
        &mut self,
        queue: Id<CompletionQueue>,
    ) -> impl Iterator<Item = Completion> {
        let completions = self.completion_queue(queue);
        let mut readings = None;
        std::iter::from_fn(move || {
            let completion = completions.as_ref()?.pop()?;
            if self.state.observations.are_recorded() {
                let readings = readings.get_or_insert_default();
                self.observe_poll(queue, completion, readings);
            }
            Some(completion)
        })
    }

    #[cold]
    fn observe_poll(
        &mut self,
        queue: Id<CompletionQueue>,
        completion: Completion,
        readings: &mut Readings,
    ) {
        let number = completion.queue_pair;
        if !completion.work.is_receive() {
            if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
                queue_pair.compare_covered(readings, &mut self.state);
            }
        } else {
            for number in self.answered_by(number) {
                self.state.uncompared.remove(&number);
                if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
                    queue_pair.compare_ended(readings, &mut self.state);
                }
            }
        }
        let polled = Observation::Polled(queue, completion);
        self.state.observations.note(|| polled);
    }

    /// The queue pairs whose requests a message for this one may tell of: its peer has executed them, and the message
    /// can be an answer. After the poll, the program may change their messages.
    fn answered_by(&self, number: Qpn) -> Vec<Qpn> {
        let peer_of = |number| self.queue_pairs.get(number)?.peer_address();
        let peer = peer_of(number);
        let uncompared = self.state.uncompared.iter().copied();
        let of_peer = |it: &Qpn| *it == number || peer.is_some() && peer_of(*it) == peer;
        uncompared.filter(of_peer).collect()
    }

    /// Requests one [`Event::Completion`] for the next completion, or for one that is in the queue already, unless the last event
    /// told of it: no poll followed that event.
    pub fn arm(&mut self, queue: Id<CompletionQueue>, notify: Notify) {
        let found = self.completion_queue(queue);
        if found.is_some_and(|queue| queue.arm(notify) == ArmOutcome::Notify) {
            self.state.events.push_back(Event::Completion(queue));
        }
    }

    /// Requests one [`Event::CompletionAdded`] for the next completion. Returns false if there is one already.
    ///
    /// It is independent of [`arm`](Self::arm): a driver can wake its own waiting threads without
    /// consuming a notification that the application requested.
    pub fn watch_completions(&mut self, queue: Id<CompletionQueue>) -> bool {
        let queue = self.completion_queue(queue);
        queue.is_none_or(|queue| queue.watch_if_empty())
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.state.events.pop_front()
    }

    /// Whether there is an event.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.state.events.is_empty()
    }

    /// Notes that the program took an asynchronous event, for the [observations](Config::observations).
    pub fn note_fetched(&mut self, event: AsyncEvent) {
        let fetched = Observation::EventFetched(event);
        self.state.observations.note(|| fetched);
    }

    /// Notes that the connection manager has an event for the program, for the [observations](Config::observations).
    pub fn note_connection_event(&mut self) {
        (self.state.observations).note(|| Observation::ConnectionEvent);
    }

    /// Whether an incident is recorded.
    #[must_use]
    pub fn has_incidents(&self) -> bool {
        !self.state.incidents.is_empty()
    }

    /// The next incident, if incidents are [recorded](Config::incidents).
    #[must_use]
    pub fn poll_incident(&mut self) -> Option<Incident> {
        self.state.incidents.pop()
    }

    /// Whether observations [are recorded](Config::observations).
    #[must_use]
    pub fn records_observations(&self) -> bool {
        self.state.observations.are_recorded()
    }

    /// Whether an observation is recorded.
    #[must_use]
    pub fn has_observations(&self) -> bool {
        !self.state.observations.is_empty()
    }

    /// Removes and returns all observations, if they are [recorded](Config::observations). From now on, the program may
    /// change messages that it has posted before; this is noticed.
    #[must_use]
    pub fn take_observations(&mut self) -> VecDeque<Observation> {
        for number in self.state.unread.drain(..) {
            if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
                queue_pair.add_checksums(&self.state.objects.memory());
            }
        }
        self.state.observations.take()
    }

    /// Handles a datagram that arrived at the RoCEv2 port: a UDP payload with its ICRC.
    ///
    /// A datagram that is not a valid packet, or has a wrong ICRC, is counted and dropped silently (CA17-24).
    /// An invalid request in a valid packet is answered where the protocol requires it.
    pub fn handle_datagram(&mut self, now: Instant, route: &Route, datagram: &[u8]) {
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(_) => {
                self.state.counters.malformed += 1;
                return;
            }
        };
        let fragmentation = match self.checker.check(&route.flow, datagram) {
            Ok(fragmentation) => fragmentation,
            Err(_) if self.state.planted.is(Bug::IcrcUnchecked) => Fragmentation::NONE,
            Err(_) => {
                self.state.counters.bad_checksum += 1;
                return;
            }
        };
        self.deliver(&now.into(), route, &packet, fragmentation);
    }

    /// Handles a datagram that has not left the machine's memory: its place for the ICRC is not read.
    pub fn handle_without_icrc(&mut self, now: Instant, route: &Route, datagram: &[u8]) {
        self.deliver_without_icrc(&now.into(), route, datagram);
    }

    fn deliver_without_icrc(&mut self, now: &Now, route: &Route, datagram: &[u8]) {
        match Packet::parse(datagram) {
            Ok(packet) => self.deliver(now, route, &packet, Fragmentation::NONE),
            Err(_) => self.state.counters.malformed += 1,
        }
    }

    /// As [`handle_without_icrc`](Self::handle_without_icrc), for a datagram in memory that another process can change. `head`
    /// is a copy of its first bytes: all headers, or more.
    pub fn handle_shared(
        &mut self,
        now: Instant,
        route: &Route,
        head: &[u8],
        datagram: &[AtomicU8],
    ) {
        match Packet::parse_shared(head, datagram) {
            Ok(packet) => self.deliver(&now.into(), route, &packet, Fragmentation::NONE),
            Err(_) => self.state.counters.malformed += 1,
        }
    }

    fn deliver(
        &mut self,
        now: &Now,
        route: &Route,
        packet: &Packet<'_>,
        fragmentation: Fragmentation,
    ) {
        if !is_unicast(route.flow.source) {
            self.state.counters.wrong_path += 1;
            return;
        }
        match packet.opcode.transport() {
            Transport::Cnp => {
                self.state.counters.congestion_notifications += 1;
                if let Some(queue_pair) = self.queue_pairs.get_mut(packet.destination) {
                    queue_pair.handle_notification(route, &mut self.state.paths);
                }
            }
            Transport::Ud => {
                let header = network_header(route, fragmentation, packet);
                self.deliver_datagram(packet, route, &header);
            }
            _ => self.deliver_packet(now, packet, route),
        }
    }

    /// Handles packets of this device to its own queue pairs. They have no ICRC, because they never left.
    fn deliver_to_self(&mut self, now: &Now, transmit: &Transmit, buffer: &[u8]) {
        let route = &transmit.route;
        for datagram in packets_to_handle(transmit, buffer) {
            self.state.counters.delivered_to_self += 1;
            self.deliver_without_icrc(now, route, datagram);
        }
    }

    fn deliver_packet(&mut self, now: &Now, packet: &Packet<'_>, route: &Route) {
        let Some(queue_pair) = self.queue_pairs.get_mut(packet.destination) else {
            self.count_unknown(packet, route);
            return;
        };
        queue_pair.handle_packet(now, packet, route, &mut self.state);
        if self.state.kept_is_full {
            self.drop_kept();
        }
        self.reschedule(packet.destination);
    }

    /// Drops what all queue pairs keep behind gaps.
    #[cold]
    fn drop_kept(&mut self) {
        self.state.kept_is_full = false;
        let numbers: Vec<Qpn> = self.queue_pairs.numbers().collect();
        for number in numbers {
            if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
                queue_pair.drop_kept();
            }
        }
    }

    #[cold]
    fn count_unknown(&mut self, packet: &Packet<'_>, route: &Route) {
        self.state.counters.unknown_queue_pair += 1;
        let number = packet.destination;
        if packet.opcode.is_request() && !self.queue_pairs.was_used(number) {
            self.state.incidents.note(|| Incident::UnknownQueuePair {
                number,
                from: route.flow.source,
            });
        }
    }

    fn deliver_datagram(&mut self, packet: &Packet<'_>, route: &Route, header: &[u8; 40]) {
        if packet.destination != Qpn::MULTICAST {
            return self.deliver_datagram_to(packet.destination, packet, route, header);
        }
        let members = self.groups.members(route.flow.destination.into());
        if members.is_empty() {
            self.state.counters.unknown_group += 1;
        } else {
            self.state.counters.multicast_received += 1;
        }
        for member in members {
            self.deliver_datagram_to(member, packet, route, header);
        }
    }

    fn deliver_datagram_to(
        &mut self,
        number: Qpn,
        packet: &Packet<'_>,
        route: &Route,
        header: &[u8; 40],
    ) {
        let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
            self.count_unknown(packet, route);
            return;
        };
        if let Err(count) = queue_pair.check_packet(packet, route) {
            *count(&mut self.state.counters) += 1;
            return;
        }
        queue_pair.count_received(packet, &mut self.state);
        queue_pair.handle_datagram(packet, route, header, &mut self.state);
        self.reschedule(number);
    }

    /// Sets whether packets are built without ICRC, because the driver adds it to those that leave the machine's
    /// memory. See [`Transmit::has_icrc`].
    pub fn leave_out_icrc(&mut self, left_out: bool) {
        self.icrc_left_out = left_out;
    }

    /// Handles packets to own queue pairs, until one has packets that leave.
    fn deliver_or_transmit(
        &mut self,
        now: &Now,
        buffer: &mut Vec<u8>,
        shared_room: &mut dyn SharedRoom,
    ) -> Option<Transmit> {
        self.begin_posts();
        self.ready.extend(self.pacing.take_due(now));
        self.is_closed = shared_room.is_closed();
        let mut delivered = 0;
        while delivered < MAX_OWN_DELIVERY
            && let Some((number, is_turn)) = self.next_queue_pair(now)
        {
            let numbers = self.queue_pairs.space();
            let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
                continue;
            };
            let own_delivery = self.own_delivery.then_some(OwnDelivery {
                gids: &self.gids,
                numbers,
                given: &self.given,
            });
            let peer = queue_pair.peer_within_host();
            if peer.is_some_and(|(route, peer)| shared_room.is_full(route, peer))
                || self.is_closed && queue_pair.sends_out(own_delivery, &self.gids)
            {
                self.without_room.push(number);
                continue;
            }
            let paced = queue_pair.is_paced();
            if paced && self.pacing.is_full(now) {
                self.pacing.wait(number);
                continue;
            }
            queue_pair.queued &= is_turn;
            let generator = &mut self.icrc_generator;
            let generator = (!self.icrc_left_out).then_some(generator);
            let limits = if queue_pair.is_at_rest() {
                self.batch.first()
            } else {
                self.batch
            };
            let mut batch = Batch::new(buffer, shared_room, generator, limits, own_delivery);
            queue_pair.transmit(now, &self.gids, &mut batch, &mut self.state);
            let (sent, bytes) = (batch.packets() as u64, batch.bytes());
            let to_self = batch.is_to_self();
            let transmit = batch.finish(number);
            if is_turn {
                queue_pair.end_turn(sent > 0, &mut self.state.paths);
            }
            if let Some(transmit) = &transmit {
                count_sent(&mut self.state.counters, transmit, sent, bytes);
                queue_pair.counters.packets_sent += sent;
                queue_pair.counters.bytes_sent += bytes as u64;
            }
            if sent > 0 {
                // It may have more packets, but other queue pairs have their turn first.
                self.reschedule(number);
                if to_self && let Some(transmit) = transmit {
                    self.delivered.extend([number, transmit.destination]);
                    self.deliver_to_self(now, &transmit, buffer);
                    delivered += buffer.len();
                    continue;
                }
                if paced {
                    self.pacing.note_sent(now.get(), bytes);
                }
                return transmit;
            }
            self.settle(number);
            self.fail_users_of_overrun_queues();
        }
        None
    }

    /// The latest time at which [`handle_timeout`](Self::handle_timeout) must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.timers.next(),
            self.pacing.next(),
            self.state.paths.next_timer(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Handles expired timers. An early or repeated call has no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, number)) = self.timers.pop_due(now) {
            let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
                continue;
            };
            if queue_pair.scheduled != Some(at) {
                continue;
            }
            queue_pair.scheduled = None;
            queue_pair.handle_timeout(now, &mut self.state);
            self.reschedule(number);
        }
        self.state.paths.handle_timeout(now);
        self.ready.extend(self.pacing.take_due(&now.into()));
    }

    /// Queues a changed queue pair for transmission if it has packets, and updates its timer.
    fn reschedule(&mut self, number: Qpn) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
            if !queue_pair.queued && queue_pair.wants_transmit() {
                queue_pair.queued = true;
                self.ready.push_back(number);
            }
            // If it waits for its path, it may need less of it than before, for example after it went back.
            queue_pair.ask_for_turn(&mut self.state.paths);
        }
        self.settle(number);
        self.fail_users_of_overrun_queues();
    }

    /// Moves every queue pair of an overrun completion queue to the error state.
    #[inline]
    fn fail_users_of_overrun_queues(&mut self) {
        if !self.state.overrun.is_empty() {
            self.fail_users();
        }
    }

    #[cold]
    fn fail_users(&mut self) {
        while let Some(queue) = self.state.overrun.pop() {
            self.state.overrun_before.push(queue);
            let numbers: Vec<Qpn> = self.queue_pairs.numbers().collect();
            for number in numbers {
                if let Some(queue_pair) = self.queue_pairs.get_mut(number)
                    && queue_pair.completes_into(queue)
                {
                    queue_pair.fail(&mut self.state);
                    queue_pair.settle_path(&mut self.state.paths);
                }
            }
        }
    }
}

fn count_sent(counters: &mut Counters, transmit: &Transmit, packets: u64, bytes: usize) {
    counters.packets_sent += packets;
    counters.bytes_sent += bytes as u64;
    if transmit.route.flow.destination.is_multicast() {
        counters.multicast_sent += packets;
    }
}

//! The device: all objects, and the way of packets in and out.

mod limits;
mod multicast;
mod objects;
mod queue_pairs;
mod timers;

pub use limits::{Limits, MAX_COMPLETIONS, MAX_INLINE, MAX_REQUESTS};
pub use multicast::MulticastError;
pub use objects::ObjectError;
pub use queue_pairs::NumberSpace;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::{Checker, Fragmentation, Gid, Packet, PathMtu, Qpn, Sealer, Transport};

use crate::address::{Address, AddressError, Arrival, GidTable, SourcePort};
use crate::completion::{Completion, CompletionQueue, Notify};
use crate::counters::Counters;
use crate::event::Event;
use crate::incident::{Incident, Incidents};
use crate::memory::{Memory, ProtectionDomain};
use crate::queue_pair::{
    Attributes, ModifyError, QueuePair, Settings, State, WindowLimits, network_header,
};
use crate::random::Random;
use crate::receive::{PostError, ReceiveNumbers, SharedReceiveQueue, XrcDomain};
use crate::sabotage::{Bug, Sabotage};
use crate::shared::Shared;
use crate::table::{Id, Table};
use crate::transmit::{Batch, BatchLimits, Transmit};
use crate::work::{ReceiveRequest, SendRequest};
use multicast::Groups;
use queue_pairs::QueuePairs;
use timers::Timers;

/// How a device is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Our own addresses by index; an all-zero entry is empty.
    pub gids: Vec<Gid>,
    /// The largest packet payload that the network takes.
    pub active_mtu: PathMtu,
    /// The numbers for queue pairs.
    pub numbers: NumberSpace,
    /// The UDP source port of packets.
    pub source_port: SourcePort,
    /// How many packets may go into one send.
    pub batch: BatchLimits,
    /// How much may be under way without an acknowledgement.
    pub window: WindowLimits,
    /// Whether acknowledgements tell the peer how many receives are posted.
    pub advertise_credits: bool,
    /// No shorter ACK timeout is used, whatever a queue pair asks for.
    pub min_ack_timeout: Duration,
    /// The most reads and atomics that a queue pair may have outstanding, each way.
    pub max_responder_resources: u8,
    /// How many objects of each kind there may be.
    pub limits: Limits,
    /// Whether what goes wrong is recorded, to be explained.
    pub incidents: bool,
    /// Where memory keys and queue pair numbers come from; the driver asks the system for it.
    pub seed: [u8; 32],
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gids: Vec::new(),
            active_mtu: PathMtu::Mtu1024,
            numbers: NumberSpace::default(),
            source_port: SourcePort::OfFlow,
            batch: BatchLimits::default(),
            window: WindowLimits::default(),
            advertise_credits: true,
            min_ack_timeout: Duration::ZERO,
            max_responder_resources: 128,
            limits: Limits::default(),
            incidents: false,
            seed: [0; 32],
        }
    }
}

/// A RoCEv2 device without I/O or clock.
///
/// It is told the time and the datagrams that came, and asked for what to send, when to be called
/// again, and what happened:
/// [`handle_datagram`](Self::handle_datagram), [`handle_timeout`](Self::handle_timeout) and the
/// posts change it; [`poll_transmit`](Self::poll_transmit), [`poll_timeout`](Self::poll_timeout),
/// [`poll_event`](Self::poll_event) and [`poll_completion`](Self::poll_completion) give the outcome.
pub struct Device {
    gids: GidTable,
    settings: Settings,
    batch: BatchLimits,
    limits: Limits,
    domains: Table<ProtectionDomain>,
    xrc_domains: Table<XrcDomain>,
    queue_pairs: QueuePairs,
    groups: Groups,
    address_handles: u32,
    shared: Shared,
    checker: Checker,
    sealer: Sealer,
    timers: Timers,
    /// Queue pairs that may have something to send, in turn.
    ready: VecDeque<Qpn>,
    /// Whether it takes nothing any more.
    abandoned: bool,
}

impl Device {
    /// A device without any objects.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut random = Random::new(config.seed);
        let limits = config.limits;
        Self {
            gids: GidTable::new(config.gids, config.source_port),
            settings: Settings {
                active_mtu: config.active_mtu,
                window: config.window,
                advertise_credits: config.advertise_credits,
                min_ack_timeout: config.min_ack_timeout,
                max_responder_resources: config.max_responder_resources,
            },
            batch: config.batch,
            limits,
            domains: Table::with_capacity(limits.domains),
            xrc_domains: Table::with_capacity(limits.xrc_domains),
            queue_pairs: QueuePairs::new(config.numbers, random.fork()),
            groups: Groups::new(limits),
            address_handles: 0,
            shared: Shared {
                receive_numbers: ReceiveNumbers::new(random.fork()),
                memory: Memory::new(random, limits),
                completion_queues: Table::with_capacity(limits.completion_queues),
                receive_queues: Table::with_capacity(limits.shared_receive_queues),
                events: VecDeque::new(),
                incidents: Incidents::new(config.incidents),
                counters: Counters::default(),
                sabotage: Sabotage::default(),
                overrun: Vec::new(),
            },
            checker: Checker::new(),
            sealer: Sealer::new(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            abandoned: false,
        }
    }

    /// A device that refuses everything: what a forked child has of its parent's.
    #[must_use]
    pub fn abandoned() -> Self {
        Self {
            abandoned: true,
            ..Self::new(Config::default())
        }
    }

    /// Plants a bug, to prove that a test finds it.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, bug: Bug) {
        self.shared.sabotage.plant(bug);
    }

    /// Our own addresses by index.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        self.gids.entries()
    }

    /// Whether packets could be sent to an address.
    pub fn check_address(&self, address: &Address) -> Result<(), AddressError> {
        self.gids.resolve(address).map(drop)
    }

    /// Counts a new address handle, if packets could be sent to its address.
    ///
    /// The handle itself is its address: nothing else is kept.
    pub fn create_address_handle(&mut self, address: &Address) -> Result<(), AddressError> {
        self.check_address(address)?;
        if self.address_handles >= self.limits.address_handles {
            return Err(AddressError::Exhausted);
        }
        self.address_handles += 1;
        Ok(())
    }

    /// Counts an address handle less.
    pub fn destroy_address_handle(&mut self) {
        self.address_handles = self.address_handles.saturating_sub(1);
    }

    /// How many objects of each kind there may be.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes how many packets may go into one send, as when a socket turns out not to segment.
    pub fn set_batch_limits(&mut self, limits: BatchLimits) {
        self.batch = limits;
    }

    /// What happened on the wire.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// A queue pair, to look at.
    #[must_use]
    pub fn queue_pair(&self, number: Qpn) -> Option<&QueuePair> {
        self.queue_pairs.get(number)
    }

    /// Changes the state and attributes of a queue pair.
    pub fn modify(&mut self, number: Qpn, attributes: &Attributes) -> Result<(), ModifyError> {
        let queue_pair = self
            .queue_pairs
            .get_mut(number)
            .ok_or(match self.abandoned {
                true => ModifyError::Abandoned,
                false => ModifyError::Unknown,
            })?;
        if let Err(error) = queue_pair.modify(attributes, &self.gids, &mut self.shared) {
            queue_pair.note_refused_change(attributes, error, &mut self.shared);
            return Err(error);
        }
        self.look_after(number);
        Ok(())
    }

    /// Breaks a queue pair. One in Reset has nothing to break, and stays there.
    pub fn break_queue_pair(&mut self, number: Qpn) -> Result<(), ModifyError> {
        if self.queue_pair(number).map(QueuePair::state) == Some(State::Reset) {
            return Ok(());
        }
        let broken = Attributes {
            state: Some(State::Error),
            ..Attributes::default()
        };
        self.modify(number, &broken)
    }

    /// Asks a queue pair to do something.
    pub fn post_send(&mut self, number: Qpn, request: SendRequest) -> Result<(), PostError> {
        let unknown = self.unknown();
        let queue_pair = self.queue_pairs.get_mut(number).ok_or(unknown)?;
        queue_pair.post_send(request, &self.gids, &mut self.shared)?;
        self.look_after(number);
        Ok(())
    }

    /// Asks a queue pair to do several things, all of them or none; takes the requests.
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
                queue_pair.note_refused_post(first.id, work, error, &mut self.shared);
            }
            return Err(error);
        }
        for request in requests.drain(..) {
            queue_pair.post_send(request, &self.gids, &mut self.shared)?;
        }
        self.look_after(number);
        Ok(())
    }

    /// Gives a queue pair room for a message.
    pub fn post_receive(&mut self, number: Qpn, request: ReceiveRequest) -> Result<(), PostError> {
        let unknown = self.unknown();
        let queue_pair = self.queue_pairs.get_mut(number).ok_or(unknown)?;
        queue_pair.post_receive(request, &mut self.shared)?;
        self.look_after(number);
        Ok(())
    }

    /// Gives the queue pairs of a shared receive queue room for a message.
    pub fn post_shared_receive(
        &mut self,
        queue: Id<SharedReceiveQueue>,
        request: ReceiveRequest,
    ) -> Result<(), PostError> {
        let unknown = self.unknown();
        self.shared
            .receive_queues
            .get_mut(queue)
            .ok_or(unknown)?
            .queue
            .post(request)
    }

    fn unknown(&self) -> PostError {
        match self.abandoned {
            true => PostError::Abandoned,
            false => PostError::Unknown,
        }
    }

    /// The oldest completion.
    pub fn poll_completion(&mut self, queue: Id<CompletionQueue>) -> Option<Completion> {
        self.shared.completion_queues.get_mut(queue)?.pop()
    }

    /// Asks for one [`Event::Completion`] when the next completion comes.
    ///
    /// Completions that are there already do not count: poll once more after arming.
    pub fn arm(&mut self, queue: Id<CompletionQueue>, notify: Notify) {
        if let Some(queue) = self.shared.completion_queues.get_mut(queue) {
            queue.arm(notify);
        }
    }

    /// Asks for one [`Event::Filled`] when the next completion comes.
    ///
    /// It is independent of [`arm`](Self::arm): a driver can wake its own waiting threads without
    /// using up a notification that the application asked for.
    pub fn watch_completions(&mut self, queue: Id<CompletionQueue>) {
        if let Some(queue) = self.shared.completion_queues.get_mut(queue) {
            queue.watch();
        }
    }

    /// What happened that nobody polls for.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Whether something went wrong that can be explained.
    #[must_use]
    pub fn has_incidents(&self) -> bool {
        !self.shared.incidents.is_empty()
    }

    /// What went wrong, if it is [recorded](Config::incidents).
    #[must_use]
    pub fn poll_incident(&mut self) -> Option<Incident> {
        self.shared.incidents.pop()
    }

    /// Takes a datagram that came to the RoCEv2 port: a UDP payload with its ICRC.
    ///
    /// What is wrong with it is counted, and answered where the protocol says so.
    pub fn handle_datagram(&mut self, now: Instant, arrival: &Arrival, datagram: &[u8]) {
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(_) => {
                self.shared.counters.malformed += 1;
                return;
            }
        };
        let fragmentation = match self.checker.check(&arrival.flow, datagram) {
            Ok(fragmentation) => fragmentation,
            Err(_) if self.shared.sabotage.has(Bug::IcrcUnchecked) => Fragmentation::NONE,
            Err(_) => {
                self.shared.counters.bad_checksum += 1;
                return;
            }
        };
        match packet.opcode.transport() {
            Transport::Cnp => self.shared.counters.congestion_notifications += 1,
            Transport::Ud => {
                let header = network_header(arrival, fragmentation, datagram);
                self.deliver_datagram(&packet, arrival, &header);
            }
            _ => self.deliver_packet(now, &packet, arrival),
        }
    }

    fn deliver_packet(&mut self, now: Instant, packet: &Packet<'_>, arrival: &Arrival) {
        let Some(queue_pair) = self.queue_pairs.get_mut(packet.destination) else {
            self.count_unknown(packet, arrival);
            return;
        };
        queue_pair.handle_packet(now, packet, arrival, &mut self.shared);
        self.look_after(packet.destination);
    }

    #[cold]
    fn count_unknown(&mut self, packet: &Packet<'_>, arrival: &Arrival) {
        self.shared.counters.unknown_queue_pair += 1;
        let number = packet.destination;
        if packet.opcode.is_request() && !self.queue_pairs.has_been(number) {
            self.shared.incidents.note(|| Incident::UnknownQueuePair {
                number,
                from: arrival.flow.source,
            });
        }
    }

    fn deliver_datagram(&mut self, packet: &Packet<'_>, arrival: &Arrival, header: &[u8; 40]) {
        if packet.destination != Qpn::MULTICAST {
            return self.deliver_datagram_to(packet.destination, packet, arrival, header);
        }
        let members = self.groups.members(arrival.flow.destination.into());
        if members.is_empty() {
            self.shared.counters.unknown_group += 1;
        }
        for member in members {
            self.deliver_datagram_to(member, packet, arrival, header);
        }
    }

    fn deliver_datagram_to(
        &mut self,
        number: Qpn,
        packet: &Packet<'_>,
        arrival: &Arrival,
        header: &[u8; 40],
    ) {
        let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
            self.count_unknown(packet, arrival);
            return;
        };
        if let Err(count) = queue_pair.check_packet(packet, arrival) {
            *count(&mut self.shared.counters) += 1;
            return;
        }
        self.shared.counters.packets_received += 1;
        queue_pair.handle_datagram(packet, arrival, header, &mut self.shared);
        self.look_after(number);
    }

    /// Fills `buffer` with the packets of one send, if there is something to send.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(number) = self.ready.pop_front() {
            let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
                continue;
            };
            queue_pair.queued = false;
            let mut batch = Batch::new(buffer, &mut self.sealer, self.batch);
            queue_pair.transmit(now, &self.gids, &mut batch, &mut self.shared);
            let sent = !batch.is_empty();
            self.shared.counters.packets_sent += batch.packets() as u64;
            let transmit = batch.finish(number);
            if sent {
                // It may have more; others have their turn first.
                self.look_after(number);
                return transmit;
            }
            self.watch(number);
            self.break_overrun();
        }
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Acts on timers that ran out. Early or twice is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, number)) = self.timers.pop_due(now) {
            let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
                continue;
            };
            if queue_pair.scheduled != Some(at) {
                continue;
            }
            queue_pair.scheduled = None;
            queue_pair.handle_timeout(now, &mut self.shared);
            self.look_after(number);
        }
    }

    /// After anything happened to a queue pair: does it want to send, and when to be called?
    fn look_after(&mut self, number: Qpn) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(number)
            && !queue_pair.queued
            && queue_pair.wants_transmit()
        {
            queue_pair.queued = true;
            self.ready.push_back(number);
        }
        self.watch(number);
        self.break_overrun();
    }

    fn watch(&mut self, number: Qpn) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(number)
            && let Some(deadline) = queue_pair.deadline()
            && queue_pair.scheduled.is_none_or(|at| deadline < at)
        {
            queue_pair.scheduled = Some(deadline);
            self.timers.push(deadline, number);
        }
    }

    /// A completion queue that overran breaks every queue pair that completes into it.
    fn break_overrun(&mut self) {
        while let Some(queue) = self.shared.overrun.pop() {
            let numbers: Vec<Qpn> = self.queue_pairs.numbers().collect();
            for number in numbers {
                if let Some(queue_pair) = self.queue_pairs.get_mut(number)
                    && queue_pair.completes_into(queue)
                {
                    queue_pair.fail(&mut self.shared);
                }
            }
        }
    }
}

//! The manager: all ids of one process, and the tables to look them up.

mod active;
mod bind;
mod disconnect;
mod multicast;
mod passive;
mod queue_pair;
mod receive;
mod resolve;
mod sidr;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use wire::cm::{CommunicationId, Message, PortSpace};
use wire::{AckTimeout, Psn, Qpn, RnrTimer, mad};

use crate::config::Config;
use crate::counters::Counters;
use crate::error::{CallError, TooManyIds};
use crate::event::{Event, EventKind, Instruction, MtuLimit, Unanswered};
use crate::exchange::{Exchange, OutstandingMessage, Peer};
use crate::exchange_state::ExchangeState;
use crate::exit_notice::ExitNotice;
use crate::id::{Id, IdEntry, State};
use crate::id_table::IdTable;
use crate::planted_bug::{Bug, PlantedBug};
use crate::random::Random;
use crate::retained_state::{
    FinalResponses, HalfOpen, RecentIds, RemoteConnection, RemoteDevice, TimeWaitTable,
};
use crate::service_type::ServiceType;
use crate::timing;
use crate::transmit::Transmit;

/// The addresses of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The sender's address.
    pub source: IpAddr,
    /// Our address.
    pub destination: IpAddr,
}

impl Addresses {
    fn device(self, guid: u64) -> RemoteDevice {
        RemoteDevice {
            address: self.source,
            guid,
        }
    }

    fn remote_connection(self, guid: u64, id: CommunicationId) -> RemoteConnection {
        RemoteConnection {
            device: self.device(guid),
            id,
        }
    }
}

/// The sizes of a manager's tables. All are zero in a new manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSizes {
    /// Ids, and destroyed ids whose DREQ is not answered.
    pub ids: usize,
    /// Communication ids in use.
    pub communication_ids: usize,
    /// Communication ids and queue pairs of peers.
    pub peers: usize,
    /// Requests for datagram services that the application has not answered.
    pub services: usize,
    /// Queue pairs of accepted connections.
    pub queue_pairs: usize,
    /// Ports.
    pub ports: usize,
    /// Timers.
    pub timers: usize,
    /// Connections in time-wait whose id is destroyed.
    pub time_wait: usize,
    /// Final responses, kept for duplicate requests.
    pub responses: usize,
    /// Requests of peers that are half-open.
    pub half_open: usize,
    /// Datagrams, events and instructions that the driver has not fetched.
    pub waiting: usize,
    /// Exit notices that the driver has, plus those that may have changed since.
    pub exit_notices: usize,
}

/// The connection manager of one process.
///
/// The driver passes in the application's calls, received datagrams and the current time. It fetches
/// events, datagrams to send, instructions, and the time of the next call.
#[derive(Debug)]
pub struct Manager {
    config: Config,
    random: Random,
    id_table: IdTable,
    /// How many of them the application has destroyed.
    destroyed: usize,
    ids_given: u64,
    addresses: BTreeSet<IpAddr>,
    /// The ids of a port, by port space and port.
    ports: BTreeMap<(u16, u16), Vec<Id>>,
    last_port: u16,
    by_local_id: BTreeMap<CommunicationId, Id>,
    recent: RecentIds,
    by_remote_connection: BTreeMap<RemoteConnection, Id>,
    by_remote_qpn: BTreeMap<(RemoteDevice, Qpn), Id>,
    by_local_qpn: BTreeMap<Qpn, Id>,
    services: BTreeMap<(IpAddr, CommunicationId), Id>,
    half_open: HalfOpen,
    time_wait: TimeWaitTable,
    responses: FinalResponses,
    timers: BTreeSet<(Instant, Id)>,
    outbox: VecDeque<Transmit>,
    events: VecDeque<Event>,
    instructions: VecDeque<Instruction>,
    /// Requests that were retransmitted.
    unanswered: VecDeque<Unanswered>,
    /// Requests whose path MTU was too large.
    mtu_limits: VecDeque<MtuLimit>,
    counters: Counters,
    planted: PlantedBug,
}

impl Manager {
    /// The most datagrams that wait to be fetched. Further ones are dropped.
    const MAX_OUTBOX: usize = 4096;

    /// A manager without addresses and ids.
    pub fn new(mut config: Config) -> Self {
        config.max_ids = config.max_ids.min(Config::MAX_IDS);
        Manager {
            random: Random::new(config.seed),
            recent: RecentIds::default(),
            id_table: IdTable::new(config.exit_notices),
            half_open: HalfOpen::new(config.max_half_open, config.max_half_open_per_source),
            config,
            destroyed: 0,
            ids_given: 0,
            addresses: BTreeSet::new(),
            ports: BTreeMap::new(),
            last_port: 0,
            by_local_id: BTreeMap::new(),
            by_remote_connection: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            by_local_qpn: BTreeMap::new(),
            services: BTreeMap::new(),
            time_wait: TimeWaitTable::default(),
            responses: FinalResponses::default(),
            timers: BTreeSet::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            instructions: VecDeque::new(),
            unanswered: VecDeque::new(),
            mtu_limits: VecDeque::new(),
            counters: Counters::default(),
            planted: PlantedBug::default(),
        }
    }

    /// Plants a bug, to prove that a test detects it.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted.plant(bug);
    }

    /// Creates an id, like `rdma_create_id`. [`ServiceType::of`] returns the default kind of a port space.
    pub fn create_id(&mut self, space: PortSpace, kind: ServiceType) -> Result<Id, TooManyIds> {
        if self.id_count() >= self.config.max_ids {
            return Err(TooManyIds(self.id_count()));
        }
        Ok(self.create_unchecked(space, kind))
    }

    /// The state of an id; none if it does not exist.
    pub fn state(&self, id: Id) -> Option<State> {
        Some(self.entry(id).ok()?.state)
    }

    /// The phase of an id's exchange with its peer; none if there is no exchange.
    pub fn phase(&self, id: Id) -> Option<ExchangeState> {
        self.entry(id).ok()?.phase()
    }

    /// The port space and queue pair type of an id.
    pub fn port_space_and_type(&self, id: Id) -> Result<(PortSpace, ServiceType), CallError> {
        let entry = self.entry(id)?;
        Ok((entry.space, entry.kind))
    }

    /// The local address of an id.
    pub fn local_address(&self, id: Id) -> Option<SocketAddr> {
        self.entry(id).ok()?.source
    }

    /// The peer's address of an id.
    pub fn peer_address(&self, id: Id) -> Option<SocketAddr> {
        self.entry(id).ok()?.destination
    }

    /// Whether a request of the peer created the id.
    #[must_use]
    pub fn is_child(&self, id: Id) -> bool {
        // An id that connects owns its port; a child id uses that of its listener.
        let entry = self.entry(id);
        entry.is_ok_and(|entry| entry.destination.is_some() && !entry.owns_port)
    }

    /// Sets the traffic class (ToS) of everything that the id sends, like
    /// `RDMA_OPTION_ID_TOS`.
    pub fn set_traffic_class(&mut self, id: Id, traffic_class: u8) -> Result<(), CallError> {
        self.entry_mut(id)?.options.traffic_class = traffic_class;
        Ok(())
    }

    /// Sets the acknowledge timeout of the queue pair, like `RDMA_OPTION_ID_ACK_TIMEOUT`.
    pub fn set_ack_timeout(&mut self, id: Id, timeout: AckTimeout) -> Result<(), CallError> {
        self.entry_mut(id)?.options.ack_timeout = Some(timeout);
        Ok(())
    }

    /// Sets how long the peer waits before it retries when no receive is posted.
    pub fn set_min_rnr_timer(&mut self, id: Id, timer: RnrTimer) -> Result<(), CallError> {
        self.entry_mut(id)?.options.min_rnr_timer = Some(timer);
        Ok(())
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next datagram to send.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.pop_front()
    }

    /// The next instruction for the driver.
    #[must_use]
    pub fn poll_instruction(&mut self) -> Option<Instruction> {
        self.instructions.pop_front()
    }

    /// The next exit notice that changed: the message that the kernel would send when it destroys the
    /// id of a dead process. Several changes of one id since the last call are reported once. None
    /// unless [`Config::exit_notices`] is set.
    #[must_use]
    pub fn poll_exit_notice(&mut self) -> Option<ExitNotice> {
        let (id, message) = self.id_table.next_changed()?;
        let exchange = self.id_table.get(id).and_then(|it| it.exchange.as_deref());
        let is_established =
            exchange.is_some_and(|exchange| exchange.phase == ExchangeState::Established);
        if is_established && self.planted.is(Bug::ExitNoticeNotUpdated) {
            return None;
        }
        let transmit = message.zip(exchange).map(|(message, exchange)| {
            let datagram = message.emit(exchange, self.config.guid);
            Transmit::new(exchange.peer, &datagram)
        });
        Some(ExitNotice { id, transmit })
    }

    /// Whether there may be an event, a datagram, an instruction or an exit notice.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !(self.events.is_empty()
            && self.outbox.is_empty()
            && self.instructions.is_empty()
            && !self.id_table.has_touched())
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The sizes of the manager's tables.
    pub fn table_sizes(&self) -> TableSizes {
        TableSizes {
            ids: self.id_table.len(),
            communication_ids: self.by_local_id.len(),
            peers: self.by_remote_connection.len() + self.by_remote_qpn.len(),
            services: self.services.len(),
            queue_pairs: self.by_local_qpn.len(),
            ports: self.ports.len(),
            timers: self.timers.len(),
            time_wait: self.time_wait.len(),
            responses: self.responses.len(),
            half_open: self.half_open.len(),
            waiting: self.outbox.len() + self.events.len() + self.instructions.len(),
            exit_notices: self.id_table.notices(),
        }
    }

    fn create_unchecked(&mut self, space: PortSpace, kind: ServiceType) -> Id {
        let id = Id(self.ids_given);
        self.ids_given += 1;
        let first_psn = Psn::new(self.random.next());
        self.id_table
            .insert(id, IdEntry::new(space, kind, first_psn));
        id
    }

    /// How many ids the application has, with those of requests that it has not taken yet.
    pub fn id_count(&self) -> usize {
        self.id_table.len() - self.destroyed
    }

    fn entry(&self, id: Id) -> Result<&IdEntry, CallError> {
        let entry = self.id_table.get(id).filter(|it| !it.destroyed);
        entry.ok_or(CallError::UnknownId)
    }

    fn entry_mut(&mut self, id: Id) -> Result<&mut IdEntry, CallError> {
        let entry = self.id_table.get_mut(id).filter(|it| !it.destroyed);
        entry.ok_or(CallError::UnknownId)
    }

    /// The entry of an id from one of the tables.
    fn known(&mut self, id: Id) -> &mut IdEntry {
        let entry = self.id_table.get_mut(id);
        entry.expect("tables contain only existing ids")
    }

    /// The exchange of an id from one of the tables.
    fn exchange(&mut self, id: Id) -> &mut Exchange {
        let exchange = self.known(id).exchange.as_mut();
        exchange.expect("the id has an exchange")
    }

    fn emit(&mut self, id: Id, kind: EventKind) {
        self.events.push_back(Event { id, kind });
    }

    /// Sends a message that expects no response.
    fn send_to(&mut self, peer: Peer, transaction: u64, message: impl Into<Message>) {
        let message = message.into();
        self.counters.sent.count(&message);
        self.enqueue(peer, &message.emit(transaction));
    }

    /// Sends a message of an exchange that expects no response.
    fn send(&mut self, id: Id, message: impl Into<Message>) {
        let exchange = self.exchange(id);
        let (peer, transaction) = (exchange.peer, exchange.transaction);
        self.send_to(peer, transaction, message);
    }

    /// Sends a message, and retransmits it until [`stop_retransmitting`](Self::stop_retransmitting).
    fn send_until_response(
        &mut self,
        now: Instant,
        id: Id,
        transaction: u64,
        message: impl Into<Message>,
    ) {
        let message = message.into();
        let datagram = message.emit(transaction);
        let no_retries = self.planted.is(Bug::NoRetransmissions);
        let exchange = self.exchange(id);
        let interval = exchange.response_interval;
        let outstanding = OutstandingMessage {
            datagram: Box::new(datagram),
            attribute: message.attribute(),
            interval,
            retransmissions: 0,
            early: if no_retries {
                &[]
            } else {
                &timing::EARLY_RETRANSMISSIONS
            },
            since: now,
            retries_left: if no_retries { 0 } else { exchange.max_retries },
            until: None,
        };
        let next = outstanding.next();
        exchange.outstanding = Some(outstanding);
        let peer = exchange.peer;
        self.counters.sent.count(&message);
        self.enqueue(peer, &datagram);
        self.set_timer(id, next);
    }

    fn stop_retransmitting(&mut self, id: Id) {
        self.exchange(id).outstanding = None;
        self.clear_timer(id);
        self.end_half_open(id);
    }

    /// The peer has confirmed its request, or the request has ended.
    fn end_half_open(&mut self, id: Id) {
        if let Some(source) = self.known(id).half_open.take() {
            self.half_open.remove(source);
        }
    }

    fn enqueue(&mut self, peer: Peer, datagram: &[u8; mad::LENGTH]) {
        if self.outbox.len() >= Self::MAX_OUTBOX {
            self.counters.outbox_full += 1;
            return;
        }
        self.outbox.push_back(Transmit::new(peer, datagram));
    }

    /// A random communication id, so that others can't guess it. Zero means "none" on the wire.
    fn new_communication_id(&mut self, id: Id) -> CommunicationId {
        loop {
            let communication_id = self.config.id_range.communication_id(self.random.next());
            let taken = communication_id.value() == 0
                || self.by_local_id.contains_key(&communication_id)
                || self.recent.contains(communication_id)
                || self.time_wait.contains(communication_id);
            if !taken {
                self.by_local_id.insert(communication_id, id);
                return communication_id;
            }
        }
    }

    /// Frees a communication id. It is not reused soon, because late messages may still name it.
    fn release_communication_id(&mut self, communication_id: CommunicationId) {
        if self.by_local_id.remove(&communication_id).is_some() {
            self.recent.add(communication_id);
        }
    }

    /// Ends an exchange without a message. The id stays.
    fn remove_exchange(&mut self, id: Id) -> Option<Box<Exchange>> {
        self.clear_timer(id);
        self.end_half_open(id);
        let exchange = self.known(id).exchange.take()?;
        self.remove_queue_pairs(id, &exchange);
        self.release_communication_id(exchange.local_id);
        let service = (exchange.peer.destination, exchange.remote_id);
        if self.services.get(&service) == Some(&id) {
            self.services.remove(&service);
        }
        let name = exchange.remote_connection();
        if self.by_remote_connection.get(&name) == Some(&id) {
            self.by_remote_connection.remove(&name);
        }
        Some(exchange)
    }

    /// The queue pairs of a connection are no longer connected.
    fn remove_queue_pairs(&mut self, id: Id, exchange: &Exchange) {
        let remote = (exchange.remote_device(), exchange.remote_qpn);
        if self.by_remote_qpn.get(&remote) == Some(&id) {
            self.by_remote_qpn.remove(&remote);
        }
        if self.by_local_qpn.get(&exchange.local_qpn) == Some(&id) {
            self.by_local_qpn.remove(&exchange.local_qpn);
        }
    }
}

/// How many notes for the driver of one kind are kept.
const MAX_NOTES: usize = 1024;

/// Keeps the newest notes only: nobody may fetch them.
fn note<T>(notes: &mut VecDeque<T>, new: T) {
    if notes.len() >= MAX_NOTES {
        notes.pop_front();
    }
    notes.push_back(new);
}

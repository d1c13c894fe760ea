//! The manager: all ids of one process, and the tables that find them.

mod active;
mod bind;
mod datagram;
mod leave;
mod multicast;
mod passive;
mod queue_pair;
mod receive;
mod resolve;
mod time;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use wire::cm::{CommunicationId, Message, PortSpace};
use wire::{AckTimeout, Psn, Qpn, RnrTimer, mad};

use crate::config::Config;
use crate::counters::Counters;
use crate::endpoints::Endpoints;
use crate::error::{CallError, TooManyIds};
use crate::event::{Event, EventKind, Instruction};
use crate::exit::ExitNotice;
use crate::id::{Endpoint, Id, Kind, Phase, State};
use crate::link::{InFlight, Link, Peer};
use crate::memory::{Answers, Ghosts, HalfOpen, Recent, RemoteDevice, RemoteName};
use crate::random::Random;
use crate::sabotage::{Bug, Sabotage};

/// A management datagram to send from queue pair 1 to queue pair 1, with Q_Key
/// [`QueueKey::GSI`](wire::QueueKey::GSI).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The local address to send it from.
    pub source: IpAddr,
    /// The peer.
    pub destination: IpAddr,
    /// Traffic class (ToS) of the packet.
    pub traffic_class: u8,
    /// Hop limit of the packet.
    pub hop_limit: u8,
    /// The datagram.
    pub datagram: Box<[u8; mad::LENGTH]>,
}

impl Transmit {
    fn new(peer: Peer, datagram: &[u8; mad::LENGTH]) -> Self {
        Transmit {
            source: peer.source,
            destination: peer.destination,
            traffic_class: peer.traffic_class,
            hop_limit: peer.hop_limit,
            datagram: Box::new(*datagram),
        }
    }
}

/// Between which addresses a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The sender.
    pub source: IpAddr,
    /// Ours.
    pub destination: IpAddr,
}

impl Arrival {
    fn device(self, guid: u64) -> RemoteDevice {
        RemoteDevice {
            address: self.source,
            guid,
        }
    }

    fn name(self, guid: u64, id: CommunicationId) -> RemoteName {
        RemoteName {
            device: self.device(guid),
            id,
        }
    }
}

/// How much a manager remembers at the moment. All zero means: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Ids.
    pub ids: usize,
    /// Conversations with peers.
    pub conversations: usize,
    /// Names that peers gave to connections, and their queue pairs.
    pub peers: usize,
    /// Requests for datagram services that wait for the application.
    pub services: usize,
    /// Queue pairs of accepted connections.
    pub queue_pairs: usize,
    /// Ports.
    pub ports: usize,
    /// Timers.
    pub timers: usize,
    /// Connections of destroyed ids, until their packets have died.
    pub ghosts: usize,
    /// Final answers that may be asked for again.
    pub answers: usize,
    /// Requests of peers that are half-open.
    pub half_open: usize,
    /// Datagrams, events and instructions that wait to be fetched.
    pub waiting: usize,
    /// Exit notices that the driver has, and those that may have changed since.
    pub exit_notices: usize,
}

/// The connection manager of one process.
///
/// It is told what the application wants, what came from the network and what time it is; it is
/// asked for events, for datagrams to send, for instructions and for when to be called again.
#[derive(Debug)]
pub struct Manager {
    config: Config,
    random: Random,
    endpoints: Endpoints,
    ids_given: u64,
    addresses: BTreeSet<IpAddr>,
    /// Who has a port: the port space's number and the port.
    ports: BTreeMap<(u16, u16), Vec<Id>>,
    last_port: u16,
    conversations: BTreeMap<CommunicationId, Id>,
    recent: Recent,
    by_remote_name: BTreeMap<RemoteName, Id>,
    by_remote_qpn: BTreeMap<(RemoteDevice, Qpn), Id>,
    by_local_qpn: BTreeMap<Qpn, Id>,
    services: BTreeMap<(IpAddr, CommunicationId), Id>,
    half_open: HalfOpen,
    ghosts: Ghosts,
    answers: Answers,
    timers: BTreeSet<(Instant, Id)>,
    outbox: VecDeque<Transmit>,
    events: VecDeque<Event>,
    instructions: VecDeque<Instruction>,
    counters: Counters,
    sabotage: Sabotage,
}

impl Manager {
    /// How many answers may wait to be fetched before further ones are left out.
    const MOST_WAITING: usize = 4096;

    /// A manager without addresses and ids.
    pub fn new(mut config: Config) -> Self {
        config.max_ids = config.max_ids.min(Config::MOST_IDS);
        Manager {
            random: Random::new(config.seed),
            recent: Recent::default(),
            endpoints: Endpoints::new(config.exit_notices),
            config,
            ids_given: 0,
            addresses: BTreeSet::new(),
            ports: BTreeMap::new(),
            last_port: 0,
            conversations: BTreeMap::new(),
            by_remote_name: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            by_local_qpn: BTreeMap::new(),
            services: BTreeMap::new(),
            half_open: HalfOpen::default(),
            ghosts: Ghosts::default(),
            answers: Answers::default(),
            timers: BTreeSet::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            instructions: VecDeque::new(),
            counters: Counters::default(),
            sabotage: Sabotage::default(),
        }
    }

    /// Plants a bug, to prove that a test finds it.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, bug: Bug) {
        self.sabotage.plant(bug);
    }

    /// A new id, like `rdma_create_id`. [`Kind::of`] gives the kind that goes with a port space.
    pub fn create(&mut self, space: PortSpace, kind: Kind) -> Result<Id, TooManyIds> {
        if self.endpoints.len() >= self.config.max_ids {
            return Err(TooManyIds(self.endpoints.len()));
        }
        Ok(self.create_unchecked(space, kind))
    }

    /// How far an id has come; none if it does not exist.
    pub fn state(&self, id: Id) -> Option<State> {
        self.endpoints.get(id).map(|endpoint| endpoint.state)
    }

    /// How far its conversation with the peer has come; none if there is no conversation.
    pub fn phase(&self, id: Id) -> Option<Phase> {
        self.endpoints.get(id)?.phase()
    }

    /// What an id was made for.
    pub fn described(&self, id: Id) -> Result<(PortSpace, Kind), CallError> {
        let endpoint = self.endpoint(id)?;
        Ok((endpoint.space, endpoint.kind))
    }

    /// The local address of an id.
    pub fn local_address(&self, id: Id) -> Option<SocketAddr> {
        self.endpoints.get(id)?.source
    }

    /// The peer's address of an id.
    pub fn peer_address(&self, id: Id) -> Option<SocketAddr> {
        self.endpoints.get(id)?.destination
    }

    /// Sets the traffic class (ToS) of everything that the id sends, like
    /// `RDMA_OPTION_ID_TOS`.
    pub fn set_traffic_class(&mut self, id: Id, traffic_class: u8) -> Result<(), CallError> {
        self.endpoint_mut(id)?.options.traffic_class = traffic_class;
        Ok(())
    }

    /// Sets the acknowledge timeout of the queue pair, like `RDMA_OPTION_ID_ACK_TIMEOUT`.
    pub fn set_ack_timeout(&mut self, id: Id, timeout: AckTimeout) -> Result<(), CallError> {
        self.endpoint_mut(id)?.options.ack_timeout = Some(timeout);
        Ok(())
    }

    /// Sets how long the peer has to wait when no receive is posted.
    pub fn set_min_rnr_timer(&mut self, id: Id, timer: RnrTimer) -> Result<(), CallError> {
        self.endpoint_mut(id)?.options.min_rnr_timer = Some(timer);
        Ok(())
    }

    /// What happened since the last call.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next datagram to send.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.pop_front()
    }

    /// What the driver should do next.
    #[must_use]
    pub fn poll_instruction(&mut self) -> Option<Instruction> {
        self.instructions.pop_front()
    }

    /// The next change of what is to be sent if this process dies: the message with which the
    /// kernel would destroy the id. Several changes of one id since the last call are one. Nothing
    /// unless [`Config::exit_notices`] is set.
    #[must_use]
    pub fn poll_exit_notice(&mut self) -> Option<ExitNotice> {
        let (id, message) = self.endpoints.next_changed()?;
        let link = self.endpoints.get(id).and_then(|it| it.link.as_deref());
        let is_established = link.is_some_and(|link| link.phase == Phase::Established);
        if is_established && self.sabotage.has(Bug::ExitNoticeNotUpdated) {
            return None;
        }
        let transmit = message.zip(link).map(|(message, link)| {
            let datagram = message.emit(link, self.config.guid);
            Transmit::new(link.peer, &datagram)
        });
        Some(ExitNotice { id, transmit })
    }

    /// Whether there may be an event, a datagram, an instruction or an exit notice.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !(self.events.is_empty()
            && self.outbox.is_empty()
            && self.instructions.is_empty()
            && !self.endpoints.has_touched())
    }

    /// What happened so far, in numbers.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How much is remembered.
    pub fn load(&self) -> Load {
        Load {
            ids: self.endpoints.len(),
            conversations: self.conversations.len(),
            peers: self.by_remote_name.len() + self.by_remote_qpn.len(),
            services: self.services.len(),
            queue_pairs: self.by_local_qpn.len(),
            ports: self.ports.len(),
            timers: self.timers.len(),
            ghosts: self.ghosts.len(),
            answers: self.answers.len(),
            half_open: self.half_open.len(),
            waiting: self.outbox.len() + self.events.len() + self.instructions.len(),
            exit_notices: self.endpoints.notices(),
        }
    }

    fn create_unchecked(&mut self, space: PortSpace, kind: Kind) -> Id {
        let id = Id(self.ids_given);
        self.ids_given += 1;
        let first_psn = Psn::new(self.random.next());
        self.endpoints
            .insert(id, Endpoint::new(space, kind, first_psn));
        id
    }

    fn endpoint(&self, id: Id) -> Result<&Endpoint, CallError> {
        self.endpoints.get(id).ok_or(CallError::UnknownId)
    }

    fn endpoint_mut(&mut self, id: Id) -> Result<&mut Endpoint, CallError> {
        self.endpoints.get_mut(id).ok_or(CallError::UnknownId)
    }

    /// The endpoint of an id that a table names.
    fn known(&mut self, id: Id) -> &mut Endpoint {
        let endpoint = self.endpoints.get_mut(id);
        endpoint.expect("tables name only ids that exist")
    }

    /// The conversation of an id that a table names.
    fn link(&mut self, id: Id) -> &mut Link {
        let link = self.known(id).link.as_mut();
        link.expect("tables name only ids with a conversation")
    }

    fn emit(&mut self, id: Id, kind: EventKind) {
        self.events.push_back(Event { id, kind });
    }

    /// Sends a message that expects no answer.
    fn send(&mut self, peer: Peer, transaction: u64, message: impl Into<Message>) {
        let message = message.into();
        self.counters.sent.count(&message);
        self.post(peer, &message.emit(transaction));
    }

    /// Sends a message of a conversation that expects no answer.
    fn say(&mut self, id: Id, message: impl Into<Message>) {
        let link = self.link(id);
        let (peer, transaction) = (link.peer, link.transaction);
        self.send(peer, transaction, message);
    }

    /// Sends a message, and again and again until [`stop_asking`](Self::stop_asking).
    fn ask(&mut self, now: Instant, id: Id, transaction: u64, message: impl Into<Message>) {
        let message = message.into();
        let datagram = message.emit(transaction);
        let tires_at_once = self.sabotage.has(Bug::NothingRepeated);
        let link = self.link(id);
        let interval = link.response_interval;
        link.in_flight = Some(InFlight {
            datagram: Box::new(datagram),
            attribute: message.attribute(),
            interval,
            retries_left: if tires_at_once { 0 } else { link.max_retries },
            until: None,
        });
        let peer = link.peer;
        self.counters.sent.count(&message);
        self.post(peer, &datagram);
        self.set_timer(id, now + interval);
    }

    fn stop_asking(&mut self, id: Id) {
        self.link(id).in_flight = None;
        self.clear_timer(id);
        self.end_half_open(id);
    }

    /// The peer has confirmed its request, or the request is over.
    fn end_half_open(&mut self, id: Id) {
        if let Some(source) = self.known(id).half_open.take() {
            self.half_open.remove(source);
        }
    }

    fn post(&mut self, peer: Peer, datagram: &[u8; mad::LENGTH]) {
        if self.outbox.len() >= Self::MOST_WAITING {
            self.counters.outbox_full += 1;
            return;
        }
        self.outbox.push_back(Transmit::new(peer, datagram));
    }

    /// A communication identifier that strangers can't guess. Zero means "none" on the wire.
    fn new_identifier(&mut self, id: Id) -> CommunicationId {
        loop {
            let identifier = self.config.slice.identifier(self.random.next());
            let taken = identifier.value() == 0
                || self.conversations.contains_key(&identifier)
                || self.recent.contains(identifier)
                || self.ghosts.contains(identifier);
            if !taken {
                self.conversations.insert(identifier, id);
                return identifier;
            }
        }
    }

    /// The identifier is free, but not used again soon: late messages may still name it.
    fn release_identifier(&mut self, identifier: CommunicationId) {
        if self.conversations.remove(&identifier).is_some() {
            self.recent.add(identifier);
        }
    }

    /// Ends a conversation without a word. The id stays.
    fn forget_link(&mut self, id: Id) -> Option<Box<Link>> {
        self.clear_timer(id);
        self.end_half_open(id);
        let link = self.known(id).link.take()?;
        self.forget_remote(id, &link);
        self.release_identifier(link.local_id);
        let service = (link.peer.destination, link.remote_id);
        if self.services.get(&service) == Some(&id) {
            self.services.remove(&service);
        }
        let name = link.remote_name();
        if self.by_remote_name.get(&name) == Some(&id) {
            self.by_remote_name.remove(&name);
        }
        Some(link)
    }

    /// The queue pairs of a connection are no longer connected.
    fn forget_remote(&mut self, id: Id, link: &Link) {
        let remote = (link.remote_device(), link.remote_qpn);
        if self.by_remote_qpn.get(&remote) == Some(&id) {
            self.by_remote_qpn.remove(&remote);
        }
        if self.by_local_qpn.get(&link.local_qpn) == Some(&id) {
            self.by_local_qpn.remove(&link.local_qpn);
        }
    }
}

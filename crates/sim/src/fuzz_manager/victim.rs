//! The manager under attack, its application and its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use cm::{
    Addresses, Config, EventKind, Id, IdRange, Instruction, Manager, ResolvedRoute, Transmit,
};
use wire::cm::{CommunicationId, Message, PortSpace, ServiceId};
use wire::{PathMtu, Qpn};

use super::oracle::{Expected, expected};
use super::{LONGER_THAN_ANY_TIMER, OURS, nothing};
use crate::fuzz_input::Input;

/// Our GUID, and the GUID of all peers.
pub(super) const GUID: u64 = 0x0a00_00ff_fe00_0001;
pub(super) const THEIR_GUID: u64 = 0x0a00_00ff_fe00_0002;

/// Few, so that the limits are reached.
const MAX_IDS: usize = 48;

/// The limits of remembered responses and of datagrams that wait to be sent.
const MAX_RESPONSES: usize = 1024;
const MAX_OUTBOX: usize = 4096;

/// Bounds the events and instructions of one id.
const MAX_WAITING_OF_ID: usize = 16;

/// An exchange, as the peer knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) addresses: Addresses,
    pub(super) ours: CommunicationId,
    pub(super) theirs: CommunicationId,
    pub(super) our_qpn: Qpn,
    /// The attribute ID of the last message to the peer.
    pub(super) heard: u16,
}

/// The manager, and the state that the checks need.
pub(super) struct Victim {
    pub(super) manager: Manager,
    pub(super) now: Instant,
    pub(super) id_range: IdRange,
    pub(super) ids: Vec<Id>,
    /// Exchanges that the attackers know, oldest first.
    pub(super) known: Vec<Known>,
    /// For how many steps the driver fetches no output.
    pub(super) late_for: usize,
    /// The number of events by kind.
    pub(super) events: BTreeMap<&'static str, u32>,
    /// Addresses that may receive datagrams: those of senders, and those that the application named.
    pub(super) allowed: BTreeSet<IpAddr>,
    /// Communication ids that peers have used.
    pub(super) used: BTreeSet<(IpAddr, u32)>,
    /// Services that had a listener.
    pub(super) services: BTreeSet<ServiceId>,
    /// Child ids that the application has not taken, and the backlogs of their listeners.
    pub(super) waiting: BTreeMap<Id, Id>,
    pub(super) backlogs: BTreeMap<Id, usize>,
    /// Ids that called connect or accept, and ids whose connection was reported as ended.
    pub(super) connecting: BTreeSet<Id>,
    pub(super) accepted: BTreeSet<Id>,
    pub(super) ended: BTreeSet<Id>,
    pub(super) next_qpn: u32,
    /// The number of calls of the application.
    pub(super) calls: usize,
    /// How many datagrams arrived.
    pub(super) datagrams: u64,
}

impl Victim {
    pub(super) fn new() -> Self {
        let id_range = IdRange::new(4, 3).expect("a range");
        let mut config = Config::new(GUID, [7; 32]);
        config.id_range = id_range;
        config.max_ids = MAX_IDS;
        let mut manager = Manager::new(config);
        manager.add_address(OURS);
        Victim {
            manager,
            // All times are relative to it.
            now: Instant::now(),
            id_range,
            ids: Vec::new(),
            known: Vec::new(),
            late_for: 0,
            events: BTreeMap::new(),
            allowed: BTreeSet::new(),
            used: BTreeSet::new(),
            services: BTreeSet::new(),
            waiting: BTreeMap::new(),
            backlogs: BTreeMap::new(),
            connecting: BTreeSet::new(),
            accepted: BTreeSet::new(),
            ended: BTreeSet::new(),
            next_qpn: 0x20,
            calls: 0,
            datagrams: 0,
        }
    }

    /// One of three services, or one without a listener.
    pub(super) fn draw_service(&self, input: &mut Input<'_>) -> ServiceId {
        input.pick(&[
            service(PortSpace::Tcp),
            service(PortSpace::Udp),
            service(PortSpace::Infiniband),
            ServiceId::of_port(PortSpace::Tcp, 9),
            ServiceId::new(0x1234_5678_9abc_def0),
        ])
    }

    /// Receives an arbitrary datagram.
    pub(super) fn receive(&mut self, addresses: Addresses, datagram: &[u8]) {
        let whole = datagram.first_chunk().filter(|_| datagram.len() == 256);
        if let Some(Ok((header, message))) = whole.map(Message::parse) {
            return self.receive_message(addresses, header.transaction(), &message);
        }
        self.pump();
        self.datagrams += 1;
        let before = self.manager.table_sizes().waiting;
        self.manager.handle_datagram(self.now, addresses, datagram);
        let after = self.manager.table_sizes().waiting;
        assert_eq!(before, after, "an invalid message has no effect");
    }

    /// Receives a message. Its response must follow the specification.
    pub(super) fn receive_message(
        &mut self,
        addresses: Addresses,
        transaction: u64,
        message: &Message,
    ) {
        self.pump();
        self.datagrams += 1;
        let is_new =
            remote_id_of(message).is_none_or(|name| self.used.insert((addresses.source, name)));
        let is_listened = service_of(message).is_some_and(|s| self.services.contains(&s));
        self.allowed.insert(addresses.source);
        let manager = &mut self.manager;
        manager.handle_datagram(self.now, addresses, &message.emit(transaction));
        if self.late_for > 0 {
            return;
        }
        let responses: Vec<Transmit> =
            std::iter::from_fn(|| self.manager.poll_transmit()).collect();
        let messages: Vec<Message> = responses.iter().map(|sent| self.learn(sent)).collect();
        match expected(message, self.id_range, is_listened, is_new) {
            Expected::Silence => {
                assert!(messages.is_empty(), "{message} is answered: {messages:?}");
            }
            Expected::One(fits) => assert!(
                matches!(&messages[..], [only] if fits(message, only)),
                "{message} is answered with {messages:?}"
            ),
            Expected::First(fits) => assert!(
                matches!(&messages[..], [first] | [first, Message::DisconnectRequest(_)]
                    if fits(message, first)),
                "{message} is answered with {messages:?}"
            ),
            Expected::Anything => assert!(
                messages.len() <= 2,
                "{message} is answered with {messages:?}"
            ),
        }
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.manager.handle_timeout(self.now);
        self.pump();
        let due = self.manager.poll_timeout();
        assert!(
            due.is_none_or(|at| at > self.now),
            "an expired timer stays set"
        );
    }

    pub(super) fn wait_for_timer(&mut self) {
        if let Some(at) = self.manager.poll_timeout() {
            self.wait(at.saturating_duration_since(self.now));
        }
    }

    /// Fetches all outputs, unless the driver is slow.
    pub(super) fn pump(&mut self) {
        if self.late_for > 0 {
            return;
        }
        while let Some(sent) = self.manager.poll_transmit() {
            self.learn(&sent);
        }
        while let Some(instruction) = self.manager.poll_instruction() {
            self.carry_out(instruction);
        }
        while let Some(event) = self.manager.poll_event() {
            self.handle_event(event.id, &event.kind);
        }
    }

    fn carry_out(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::ResolveAddress { id, .. } => self.manager.address_resolved(id, Ok(OURS)),
            Instruction::ResolveRoute { id, .. } => {
                let route = ResolvedRoute::new(PathMtu::Mtu1024);
                self.manager.route_resolved(id, Ok(route));
            }
            Instruction::JoinMulticast { id, group, .. } => {
                self.manager.multicast_joined(id, group, Ok(()));
            }
            Instruction::LeaveMulticast { .. } | Instruction::MoveToError { .. } => {}
        }
    }

    /// An event must be possible in the state of its id, and the id must exist.
    fn handle_event(&mut self, id: Id, kind: &EventKind) {
        assert!(
            self.manager.state(id).is_some(),
            "{kind:?} for an unknown id"
        );
        let what = match kind {
            EventKind::ConnectRequest { listener, .. } => {
                assert!(!self.ids.contains(&id), "a request is delivered once");
                self.ids.push(id);
                self.waiting.insert(id, *listener);
                "request"
            }
            EventKind::ConnectResponse(_) => {
                assert!(self.connecting.contains(&id), "{id:?} never connected");
                "response"
            }
            EventKind::ServiceFound(_) => {
                assert!(self.connecting.contains(&id), "{id:?} never connected");
                "service found"
            }
            EventKind::Established => {
                assert!(self.accepted.contains(&id), "{id:?} was never accepted");
                "established"
            }
            EventKind::Disconnected { .. } => {
                assert!(self.ended.insert(id), "{id:?} ends twice");
                "disconnected"
            }
            EventKind::TimewaitExit => {
                assert!(self.ended.contains(&id), "{id:?} has not ended");
                "timewait exit"
            }
            EventKind::Rejected { .. } => "rejected",
            EventKind::Unreachable(_) => "unreachable",
            _ => "something else",
        };
        *self.events.entry(what).or_default() += 1;
    }

    /// A sent datagram is a valid message to an allowed address. The attackers learn its ids.
    fn learn(&mut self, sent: &Transmit) -> Message {
        assert!(
            self.allowed.contains(&sent.destination),
            "{sent:?} goes to an unknown address"
        );
        assert_eq!(sent.source, OURS);
        let (_, message) = Message::parse(&sent.datagram).expect("a manager sends messages");
        let (ours, theirs, our_qpn) = match &message {
            Message::ConnectRequest(m) => (m.local_id, CommunicationId::default(), m.local_qpn),
            Message::ConnectReply(m) => (m.local_id, m.remote_id, m.local_qpn),
            Message::ReadyToUse(m) => (m.local_id, m.remote_id, Qpn::default()),
            Message::ReceiptAcknowledge(m) => (m.local_id, m.remote_id, Qpn::default()),
            Message::ServiceRequest(m) => (m.request_id, m.request_id, Qpn::default()),
            Message::DisconnectRequest(m) => (m.local_id, m.remote_id, Qpn::default()),
            _ => return message,
        };
        let our_qpn = match our_qpn.value() {
            0 => self.qpn_of(ours),
            _ => our_qpn,
        };
        let addresses = Addresses {
            source: sent.destination,
            destination: sent.source,
        };
        self.known.push(Known {
            addresses,
            ours,
            theirs,
            our_qpn,
            heard: message.attribute(),
        });
        message
    }

    fn qpn_of(&self, ours: CommunicationId) -> Qpn {
        let mut known = self.known.iter().rev();
        let found = known.find(|known| known.ours == ours);
        found.map(|known| known.our_qpn).unwrap_or_default()
    }

    /// The tables stay within their limits.
    pub(super) fn check_load(&self) {
        let load = self.manager.table_sizes();
        // As many again are destroyed and wait for the response to their DREQ.
        assert!(load.ids <= 2 * MAX_IDS, "{load:?}");
        for count in [
            load.communication_ids,
            load.services,
            load.queue_pairs,
            load.ports,
            load.timers,
        ] {
            assert!(count <= load.ids, "{load:?}");
        }
        assert!(load.peers <= 2 * load.ids, "{load:?}");
        assert!(load.time_wait <= MAX_IDS, "{load:?}");
        assert!(load.responses <= MAX_RESPONSES, "{load:?}");
        let most = MAX_OUTBOX + MAX_WAITING_OF_ID * MAX_IDS + MAX_IDS * self.calls;
        assert!(load.waiting <= most, "{load:?}");
        for (listener, &backlog) in &self.backlogs {
            let waiting = self.waiting.values().filter(|at| *at == listener);
            assert!(waiting.count() <= backlog, "a backlog exceeds its limit");
        }
    }

    /// Destroys all ids and lets all timers expire: the tables must be empty.
    pub(super) fn finish(&mut self) {
        self.late_for = 0;
        self.pump();
        while let Some(id) = self.ids.pop() {
            if self.manager.state(id).is_some() {
                self.manager.destroy(self.now, id).expect("the id exists");
            }
        }
        self.pump();
        // The unanswered DREQ of a destroyed id ends first, and then its time-wait.
        for _ in 0..2 {
            self.now += LONGER_THAN_ANY_TIMER;
            self.manager.handle_timeout(self.now);
            self.pump();
        }
        assert_eq!(
            self.manager.table_sizes(),
            nothing(),
            "an entry is never removed"
        );
    }
}

pub(super) const PORT: u16 = 7174;

pub(super) fn service(space: PortSpace) -> ServiceId {
    ServiceId::of_port(space, PORT)
}

/// The peer's communication id in a message that introduces it.
fn remote_id_of(message: &Message) -> Option<u32> {
    match message {
        Message::ConnectReply(m) => Some(m.local_id.value()),
        Message::ConnectRequest(m) => Some(m.local_id.value()),
        Message::ServiceRequest(m) => Some(m.request_id.value()),
        _ => None,
    }
}

fn service_of(message: &Message) -> Option<ServiceId> {
    match message {
        Message::ConnectRequest(m) => Some(m.service_id),
        Message::ServiceRequest(m) => Some(m.service_id),
        _ => None,
    }
}

//! A conversation: one manager and a scripted peer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cm::{
    Addresses, Config, EventKind, Id, Instruction, Manager, Parameters, ResolvedRoute, ServiceType,
};
use wire::cm::{
    AddressHeader, CommunicationId, ConnectReply, ConnectRequest, DisconnectReply,
    DisconnectRequest, Message, Path, PortSpace, PrivateData, ReadyToUse, ReceiptAcknowledge,
    Reject, RejectReason, Service, ServiceId, Timeout,
};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn};

pub(crate) const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const OUR_GUID: u64 = 0x1111;
pub(crate) const PEER_GUID: u64 = 0x2222;
pub(crate) const OUR_QPN: Qpn = Qpn::new(0x11);
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x22);
pub(crate) const PEER_ID: CommunicationId = CommunicationId::new(0xabcd);
pub(crate) const PORT: u16 = 7174;
pub(crate) const TRANSACTION: u64 = 0x0002_0000_1234;

/// How long the active and the passive side wait for a response, and how long time-wait takes, in
/// milliseconds. The values are those of Linux.
pub(crate) const REQUEST_INTERVAL: u64 = 6144;
pub(crate) const REPLY_INTERVAL: u64 = 4096;
pub(crate) const TIMEWAIT: u64 = 2048;

/// When an unanswered message is sent again before the first of these intervals ends, in milliseconds.
pub(crate) const EARLY_RETRANSMISSIONS: [u64; 2] = [1500, 3000];

/// A time in milliseconds after the start of the test.
pub(crate) fn at(millis: u64) -> Instant {
    start() + Duration::from_millis(millis)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` has no constant; any value will do"
)]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// The manager under test, and its scripted peer.
pub(crate) struct Conversation {
    pub(crate) manager: Manager,
}

impl Conversation {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(OUR_GUID, [0x5e; 32]);
        change(&mut config);
        let mut manager = Manager::new(config);
        manager.add_address(US);
        Conversation { manager }
    }

    pub(crate) fn peer_sends(&mut self, millis: u64, message: impl Into<Message>) {
        self.peer_sends_from(PEER, millis, message);
    }

    pub(crate) fn peer_sends_from(
        &mut self,
        who: IpAddr,
        millis: u64,
        message: impl Into<Message>,
    ) {
        let addresses = Addresses {
            source: who,
            destination: US,
        };
        let datagram = message.into().emit(TRANSACTION);
        self.manager.handle_timeout(at(millis));
        self.manager
            .handle_datagram(at(millis), addresses, &datagram);
    }

    /// All messages that the manager sends up to this time.
    pub(crate) fn peer_receives(&mut self, millis: u64) -> Vec<Message> {
        self.manager.handle_timeout(at(millis));
        let sent = std::iter::from_fn(|| self.manager.poll_transmit());
        let messages = sent.map(|transmit| {
            assert_eq!(transmit.source, US);
            let (_, message) = Message::parse(&transmit.datagram).expect("a message");
            message
        });
        messages.collect()
    }

    pub(crate) fn peer_receives_one(&mut self, millis: u64) -> Message {
        let messages = self.peer_receives(millis);
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages[0]
    }

    pub(crate) fn peer_receives_nothing(&mut self, millis: u64) {
        assert_eq!(self.peer_receives(millis), [], "at {millis} ms");
    }

    /// The events since the last call.
    pub(crate) fn events(&mut self) -> Vec<EventKind> {
        let events = std::iter::from_fn(|| self.manager.poll_event());
        events.map(|event| event.kind).collect()
    }

    pub(crate) fn one_event(&mut self) -> EventKind {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    pub(crate) fn no_events(&mut self) {
        assert_eq!(self.events(), []);
    }

    pub(crate) fn instructions(&mut self) -> Vec<Instruction> {
        std::iter::from_fn(|| self.manager.poll_instruction()).collect()
    }

    /// An id that is ready to connect to the peer.
    pub(crate) fn resolved(&mut self, space: PortSpace) -> Id {
        self.resolved_for(space, ServiceType::of(space))
    }

    /// The same for another kind.
    pub(crate) fn resolved_for(&mut self, space: PortSpace, kind: ServiceType) -> Id {
        let manager = &mut self.manager;
        let id = manager.create_id(space, kind).expect("an id");
        let second = Duration::from_secs(1);
        let peer = (PEER, PORT).into();
        let asked = manager.resolve_address(at(0), id, None, peer, second);
        asked.expect("a bound id");
        manager.address_resolved(id, Ok(US));
        let asked = manager.resolve_route(at(0), id, second);
        asked.expect("a resolved address");
        manager.route_resolved(id, Ok(ResolvedRoute::new(PathMtu::Mtu1024)));
        let resolved = [EventKind::AddressResolved, EventKind::RouteResolved];
        assert_eq!(self.events(), resolved);
        self.instructions();
        id
    }

    /// An id that has sent its REQ at time 0, and that REQ.
    pub(crate) fn connecting(&mut self) -> (Id, ConnectRequest) {
        let id = self.resolved(PortSpace::Tcp);
        let connected = self.manager.connect(at(0), id, &Parameters::new(OUR_QPN));
        connected.expect("a resolved id");
        (id, as_request(self.peer_receives_one(0)))
    }

    /// An id that is connected since time 0 on the active side, and the peer's REP.
    pub(crate) fn connected(&mut self) -> (Id, ConnectReply) {
        let (id, request) = self.connecting();
        let reply = reply_to(&request);
        self.peer_sends(0, reply);
        self.manager.establish(id).expect("a response");
        assert_eq!(self.peer_receives_one(0).name(), "RTU");
        assert_eq!(self.events().len(), 1);
        (id, reply)
    }

    pub(crate) fn listening(&mut self, space: PortSpace, backlog: usize) -> Id {
        let manager = &mut self.manager;
        let id = manager
            .create_id(space, ServiceType::of(space))
            .expect("an id");
        manager.bind(id, (US, PORT).into()).expect("a free port");
        manager.listen(id, backlog).expect("a bound id");
        id
    }

    /// The child id of the peer's request.
    pub(crate) fn child_id(&mut self) -> Id {
        let event = self.manager.poll_event().expect("a request");
        assert!(matches!(event.kind, EventKind::ConnectRequest { .. }));
        event.id
    }

    /// An id that accepted the peer's request at time 0, and its REP.
    pub(crate) fn accepting(&mut self) -> (Id, ConnectReply) {
        self.listening(PortSpace::Tcp, 0);
        self.peer_sends(0, request());
        let id = self.child_id();
        let accepted = self.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
        accepted.expect("a request");
        (id, as_reply(self.peer_receives_one(0)))
    }

    /// An id that is connected since time 0 on the passive side, and its REP.
    pub(crate) fn accepted(&mut self) -> (Id, ConnectReply) {
        let (id, reply) = self.accepting();
        self.peer_sends(0, ready_for(&reply));
        assert_eq!(self.events(), [EventKind::Established]);
        (id, reply)
    }
}

/// The REQ of a Linux peer that connects to [`PORT`].
pub(crate) fn request() -> ConnectRequest {
    let header = AddressHeader {
        source_port: 0x8765,
        source: PEER,
        destination: US,
    };
    ConnectRequest {
        local_id: PEER_ID,
        service_id: ServiceId::of_port(PortSpace::Tcp, PORT),
        local_guid: PEER_GUID,
        local_qpn: PEER_QPN,
        responder_resources: 3,
        initiator_depth: 2,
        remote_response_timeout: timeout(20),
        service: Service::ReliableConnection,
        starting_psn: Psn::new(0x1234),
        local_response_timeout: timeout(20),
        retry_count: 6,
        path_mtu: Some(PathMtu::Mtu1024),
        rnr_retry_count: 5,
        max_cm_retries: 15,
        primary: Path {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: Gid::from(PEER),
            remote_gid: Gid::from(US),
            flow_label: 0x4_5678,
            traffic_class: 0x20,
            hop_limit: 64,
            local_ack_timeout: AckTimeout::new(19).expect("a code"),
            ..Path::default()
        },
        private_data: PrivateData::new(&[&header.emit()[..], b"hello"].concat()).expect("room"),
        ..ConnectRequest::default()
    }
}

/// The REP of a Linux peer.
pub(crate) fn reply_to(request: &ConnectRequest) -> ConnectReply {
    ConnectReply {
        local_id: PEER_ID,
        remote_id: request.local_id,
        local_qpn: PEER_QPN,
        starting_psn: Psn::new(0x4321),
        responder_resources: 4,
        initiator_depth: 5,
        target_ack_delay: timeout(15),
        rnr_retry_count: 6,
        local_guid: PEER_GUID,
        private_data: PrivateData::new(b"welcome").expect("room"),
        ..ConnectReply::default()
    }
}

pub(crate) fn ready_for(reply: &ConnectReply) -> ReadyToUse {
    ReadyToUse {
        local_id: reply.remote_id,
        remote_id: reply.local_id,
        ..ReadyToUse::default()
    }
}

/// The peer's DREQ: `local` is the peer's communication id, `remote` is ours.
pub(crate) fn dreq(local: CommunicationId, remote: CommunicationId) -> DisconnectRequest {
    DisconnectRequest {
        local_id: local,
        remote_id: remote,
        remote_qpn: OUR_QPN,
        ..DisconnectRequest::default()
    }
}

pub(crate) fn drep(local: CommunicationId, remote: CommunicationId) -> DisconnectReply {
    DisconnectReply {
        local_id: local,
        remote_id: remote,
        ..DisconnectReply::default()
    }
}

pub(crate) fn timeout(code: u8) -> Timeout {
    Timeout::new(code).expect("five bits")
}

macro_rules! unwrap_message {
    ($($function:ident: $message:ident,)+) => {$(
        pub(crate) fn $function(message: Message) -> $message {
            match message {
                Message::$message(message) => message,
                other => panic!("{other}"),
            }
        }
    )+};
}

unwrap_message! {
    as_request: ConnectRequest,
    as_reply: ConnectReply,
    as_reject: Reject,
    as_receipt: ReceiptAcknowledge,
    as_dreq: DisconnectRequest,
    as_drep: DisconnectReply,
}

/// Why the peer rejected the connection, if the event says that it did.
pub(crate) fn rejection(event: &EventKind) -> Option<RejectReason> {
    match event {
        EventKind::Rejected { reason, .. } => Some(*reason),
        _ => None,
    }
}

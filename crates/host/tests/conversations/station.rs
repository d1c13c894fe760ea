//! A host with an address of its own, and the packets between two of them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cm::{EventKind, Id, Instruction, Parameters, ResolvedRoute, ServiceType};
use engine::transmit::packets;
use engine::{
    Access, Address, Attributes, Buffer, CompletionQueue, ProtectionDomain, QueuePairInit,
    QueuePairType, ReceiveRequest, Registration, Segment, SendRequest, State, Work,
};
use host::{Config, Host};
use wire::cm::{Message, PortSpace};
use wire::{AckTimeout, Gid, Packet, PathMtu, Psn, Qpn, RnrTimer, Route};

pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const PORT: u16 = 7174;
/// The hop limit of the routes; not the usual one.
pub(crate) const HOP_LIMIT: u8 = 7;

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

/// A packet on its way.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) route: Route,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    /// The connection manager's message in it.
    pub(crate) fn message(&self) -> Option<Message> {
        let packet = Packet::parse(&self.bytes).ok()?;
        let (_, message) = Message::parse(packet.payload.private()?.try_into().ok()?).ok()?;
        Some(message)
    }
}

/// A host, and the address that it has.
pub(crate) struct Station {
    pub(crate) host: Host,
    pub(crate) address: IpAddr,
}

impl Station {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self::with(address, |_| {})
    }

    pub(crate) fn with(address: IpAddr, change: impl FnOnce(&mut Config)) -> Self {
        let IpAddr::V4(v4) = address else {
            panic!("the tests have IPv4 addresses");
        };
        let last = v4.octets()[3];
        let mut config = Config {
            device: engine::Config {
                gids: vec![Gid::from(address)],
                ..engine::Config::default()
            },
            manager: cm::Config::new(last.into(), [last; 32]),
            shares_addresses: false,
            objects: None,
        };
        change(&mut config);
        let mut host = Host::new(config).expect("a new device has room");
        host.manager().add_address(address);
        Self { host, address }
    }

    pub(crate) fn listen(&mut self) -> Id {
        let manager = self.host.manager();
        let id = manager
            .create_id(PortSpace::Tcp, ServiceType::ReliableConnection)
            .expect("an id");
        let address = (self.address, PORT).into();
        manager.bind(id, address).expect("a free port");
        manager.listen(id, 1024).expect("a bound id");
        id
    }

    /// Asks the server for a connection of this queue pair.
    pub(crate) fn connect(&mut self, millis: u64, number: Qpn) -> Id {
        let created =
            (self.host.manager()).create_id(PortSpace::Tcp, ServiceType::ReliableConnection);
        let id = created.expect("an id");
        self.connect_with(millis, id, number);
        id
    }

    /// Does so with this id.
    pub(crate) fn connect_with(&mut self, millis: u64, id: Id, number: Qpn) {
        let (now, address) = (at(millis), self.address);
        let manager = self.host.manager();
        let timeout = Duration::from_secs(2);
        manager
            .resolve_address(now, id, None, (SERVER, PORT).into(), timeout)
            .expect("a new id");
        let instruction = self.host.poll_instruction();
        assert!(matches!(
            instruction,
            Some(Instruction::ResolveAddress { .. })
        ));
        let manager = self.host.manager();
        manager.address_resolved(id, Ok(address));
        manager.resolve_route(now, id, timeout).expect("an address");
        let instruction = self.host.poll_instruction();
        assert!(matches!(
            instruction,
            Some(Instruction::ResolveRoute { .. })
        ));
        let manager = self.host.manager();
        let route = ResolvedRoute {
            hop_limit: HOP_LIMIT,
            ..ResolvedRoute::new(PathMtu::Mtu1024)
        };
        manager.route_resolved(id, Ok(route));
        manager
            .connect(now, id, &Parameters::new(number))
            .expect("a route");
        self.events();
    }

    /// Accepts the one request that has come.
    pub(crate) fn accept(&mut self, millis: u64, number: Qpn) -> Id {
        let [(id, EventKind::ConnectRequest { .. })] = self.events()[..] else {
            panic!("one request");
        };
        let parameters = Parameters::new(number);
        let accepted = self.host.manager().accept(at(millis), id, &parameters);
        accepted.expect("a request");
        id
    }

    /// The events of the connection manager since the last call.
    pub(crate) fn events(&mut self) -> Vec<(Id, EventKind)> {
        let events = std::iter::from_fn(|| self.host.poll_connection_event());
        events.map(|event| (event.id, event.kind)).collect()
    }

    /// All packets that it sends up to this time, of which the timers are due.
    pub(crate) fn sends(&mut self, millis: u64) -> Vec<Sent> {
        self.sends_at(at(millis))
    }

    pub(crate) fn sends_at(&mut self, now: Instant) -> Vec<Sent> {
        self.host.handle_timeout(now);
        let (mut sent, mut buffer) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.host.poll_transmit(now, &mut buffer) {
            sent.extend(packets(&transmit, &buffer).map(|bytes| Sent {
                route: transmit.route,
                bytes: bytes.to_vec(),
            }));
        }
        sent
    }

    /// The messages of the connection manager that it sends up to this time.
    pub(crate) fn messages(&mut self, millis: u64) -> Vec<Message> {
        let sent = self.sends(millis);
        sent.iter().filter_map(Sent::message).collect()
    }

    pub(crate) fn receives(&mut self, millis: u64, sent: &[Sent]) {
        for packet in sent {
            self.host
                .handle_datagram(at(millis), &packet.route, &packet.bytes);
        }
    }

    /// An RC queue pair with one receive, and where that receive writes.
    pub(crate) fn queue_pair(&mut self) -> Pair {
        let device = self.host.device_mut();
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(16).expect("room");
        let buffer = Buffer::zeroed(4096);
        let registration = device
            .register(domain, Arc::clone(&buffer), 0, Access::LOCAL_WRITE)
            .expect("memory");
        let init = QueuePairInit {
            max_sends: 8,
            max_receives: 8,
            max_inline: 64,
            ..QueuePairInit::new(QueuePairType::Rc, domain, completions)
        };
        let number = device.create_queue_pair(init).expect("room");
        Pair {
            number,
            domain,
            completions,
            buffer,
            registration,
        }
    }

    pub(crate) fn state(&self, number: Qpn) -> State {
        let queue_pair = self.host.device().queue_pair(number);
        queue_pair.expect("a queue pair").state()
    }
}

/// A queue pair, its completions and its memory.
pub(crate) struct Pair {
    pub(crate) number: Qpn,
    pub(crate) domain: engine::Id<ProtectionDomain>,
    pub(crate) completions: engine::Id<CompletionQueue>,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) registration: Registration,
}

impl Pair {
    pub(crate) fn segment(&self, length: u32) -> Segment {
        Segment {
            address: self.registration.address,
            length,
            key: self.registration.local_key,
        }
    }

    /// Moves it to Ready to Send, with a receive of its whole memory.
    pub(crate) fn connect(&self, station: &mut Station, peer: IpAddr, destination: Qpn) {
        let to = |state| Attributes {
            state: Some(state),
            ..Attributes::default()
        };
        let steps = [
            Attributes {
                port: Some(1),
                partition_index: Some(0),
                access: Some(Access::REMOTE_WRITE),
                ..to(State::Initialized)
            },
            Attributes {
                path: Some(Address::new(Gid::from(peer), 0)),
                path_mtu: Some(PathMtu::Mtu1024),
                destination: Some(destination),
                receive_psn: Some(Psn::ZERO),
                responder_resources: Some(1),
                rnr_timer: RnrTimer::new(1),
                ..to(State::ReadyToReceive)
            },
            Attributes {
                send_psn: Some(Psn::ZERO),
                ack_timeout: AckTimeout::new(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                initiator_depth: Some(1),
                ..to(State::ReadyToSend)
            },
        ];
        let device = station.host.device_mut();
        for step in steps {
            device.modify(self.number, &step).expect("a step");
        }
        let receive = ReceiveRequest::new(7, [self.segment(4096)]);
        device.post_receive(self.number, receive).expect("room");
    }

    /// Sends the first bytes of its memory.
    pub(crate) fn send(&self, station: &mut Station, length: u32) {
        let request = SendRequest::new(1, Work::Send).with([self.segment(length)]);
        let device = station.host.device_mut();
        device.post_send(self.number, request).expect("room");
    }
}

/// Carries packets both ways until both stations are silent. Returns the messages of the connection manager.
pub(crate) fn carry(millis: u64, one: &mut Station, other: &mut Station) -> Vec<Message> {
    let mut messages = Vec::new();
    loop {
        let (there, back) = (one.sends(millis), other.sends(millis));
        if there.is_empty() && back.is_empty() {
            return messages;
        }
        messages.extend(there.iter().chain(&back).filter_map(Sent::message));
        other.receives(millis, &there);
        one.receives(millis, &back);
    }
}

//! Ids before they connect: addresses, ports, options, limits.

use std::net::SocketAddr;
use std::time::Duration;

use cm::{
    BindError, CallError, EventKind, Failure, IdRange, Instruction, Parameters, Recipient,
    ResolvedRoute, ServiceType, State, TooManyIds, owner_of, private_data,
};
use wire::cm::{Message, PortSpace, RejectReason};
use wire::{PathMtu, Qpn};

use crate::conversation::{Conversation, OUR_QPN, PEER, PORT, US, at, request};

const SECOND: Duration = Duration::from_secs(1);

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn tcp(conversation: &mut Conversation) -> cm::Id {
    let created = conversation
        .manager
        .create_id(PortSpace::Tcp, ServiceType::ReliableConnection);
    created.expect("an id")
}

#[test]
fn bind_chooses_a_port_and_rejects_conflicts() {
    let mut conversation = Conversation::new();
    let first = tcp(&mut conversation);
    let bound = conversation.manager.bind(first, socket("10.0.0.1:0"));
    let port = bound.expect("a port").port();
    assert!((32768..=60999).contains(&port));
    let second = tcp(&mut conversation);
    let same = SocketAddr::new(US, port);
    let taken = conversation.manager.bind(second, same);
    assert_eq!(taken, Err(BindError::AddressInUse(same)));
    let any = SocketAddr::new([0, 0, 0, 0].into(), port);
    let overlapping = conversation.manager.bind(second, any);
    assert_eq!(overlapping, Err(BindError::AddressNotAvailable(any)));
    let foreign = socket("10.9.9.9:1");
    let not_ours = conversation.manager.bind(second, foreign);
    assert_eq!(not_ours, Err(BindError::AddressNotAvailable(foreign)));
    conversation.manager.destroy(at(0), first).expect("an id");
    conversation.manager.bind(second, same).expect("free again");
    let twice = conversation.manager.bind(second, same);
    assert_eq!(twice, Err(BindError::WrongState(State::AddressBound)));
}

#[test]
fn port_spaces_are_independent() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.listening(PortSpace::Udp, 0);
    conversation.listening(PortSpace::Infiniband, 0);
    let names: Vec<_> = conversation
        .manager
        .listening()
        .map(|(s, _)| s.to_string())
        .collect();
    assert_eq!(names, ["tcp/7174", "udp/7174", "ib/7174"]);
}

#[test]
fn bind_fails_when_no_port_is_left() {
    let mut conversation = Conversation::with(|config| config.ephemeral_ports = 5000..=5001);
    for _ in 0..2 {
        let id = tcp(&mut conversation);
        conversation
            .manager
            .bind(id, socket("0.0.0.0:0"))
            .expect("a port");
    }
    let id = tcp(&mut conversation);
    let none = conversation.manager.bind(id, socket("0.0.0.0:0"));
    assert_eq!(none, Err(BindError::NoPortLeft));
}

#[test]
fn reuse_address_shares_a_port_until_an_id_listens() {
    let mut conversation = Conversation::new();
    let address = SocketAddr::new(US, PORT);
    let ids = [tcp(&mut conversation), tcp(&mut conversation)];
    for id in ids {
        conversation
            .manager
            .set_reuse_address(id, true)
            .expect("idle");
        conversation.manager.bind(id, address).expect("shared");
    }
    let second = conversation.manager.listen(ids[0], 0);
    assert_eq!(second, Err(BindError::AddressInUse(address).into()));
    let late = conversation.manager.set_reuse_address(ids[0], false);
    assert_eq!(late, Err(CallError::WrongState(State::AddressBound)));
    conversation.manager.destroy(at(0), ids[1]).expect("an id");
    conversation.manager.listen(ids[0], 0).expect("alone");
    let third = tcp(&mut conversation);
    conversation
        .manager
        .set_reuse_address(third, true)
        .expect("idle");
    let beside = conversation.manager.bind(third, address);
    assert_eq!(beside, Err(BindError::AddressInUse(address)));
}

#[test]
fn family_only_ids_share_a_port() {
    let mut conversation = Conversation::new();
    let four = tcp(&mut conversation);
    conversation
        .manager
        .bind(four, socket("0.0.0.0:7174"))
        .expect("free");
    let six = tcp(&mut conversation);
    let both = socket("[::]:7174");
    let dual = conversation.manager.bind(six, both);
    assert_eq!(dual, Err(BindError::AddressNotAvailable(both)));
    conversation
        .manager
        .set_family_only(six, true)
        .expect("idle");
    conversation.manager.bind(six, both).expect("IPv6 only");
}

#[test]
fn listener_on_all_ipv6_addresses_accepts_ipv4() {
    let mut conversation = Conversation::new();
    let id = tcp(&mut conversation);
    conversation
        .manager
        .bind(id, socket("[::]:7174"))
        .expect("free");
    conversation.manager.listen(id, 0).expect("bound");
    conversation.peer_sends(0, request());
    conversation.child_id();
}

#[test]
fn listener_on_an_address_takes_precedence_over_all_addresses() {
    let mut conversation = Conversation::new();
    let ids = [tcp(&mut conversation), tcp(&mut conversation)];
    let addresses = ["[::]:7174", "10.0.0.1:7174"];
    for (id, address) in ids.into_iter().zip(addresses) {
        conversation
            .manager
            .set_reuse_address(id, true)
            .expect("idle");
        conversation
            .manager
            .bind(id, socket(address))
            .expect("free");
    }
    conversation
        .manager
        .listen(ids[1], 0)
        .expect_err("the addresses overlap");
    conversation
        .manager
        .set_family_only(ids[0], true)
        .expect("bound");
    conversation
        .manager
        .listen(ids[1], 0)
        .expect("different families");
    conversation
        .manager
        .listen(ids[0], 0)
        .expect("different families");
    conversation.peer_sends(0, request());
    let event = conversation.manager.poll_event().expect("a request");
    let EventKind::ConnectRequest { listener, .. } = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(listener, ids[1]);
}

#[test]
fn listen_binds_an_idle_id() {
    let mut conversation = Conversation::new();
    let id = tcp(&mut conversation);
    conversation.manager.listen(id, 0).expect("a port");
    let address = conversation.manager.local_address(id).expect("bound");
    assert!(address.ip().is_unspecified() && address.port() != 0);
    let twice = conversation.manager.listen(id, 0);
    assert_eq!(twice, Err(CallError::WrongState(State::Listening)));
}

#[test]
fn driver_resolves_addresses_and_routes() {
    let mut conversation = Conversation::new();
    let id = tcp(&mut conversation);
    let peer = SocketAddr::new(PEER, PORT);
    let asked = conversation
        .manager
        .resolve_address(at(0), id, None, peer, SECOND);
    asked.expect("idle");
    assert_eq!(conversation.manager.state(id), Some(State::AddressQuery));
    let [Instruction::ResolveAddress { destination, .. }] = conversation.instructions()[..] else {
        panic!("one instruction");
    };
    assert_eq!(destination, peer);
    conversation
        .manager
        .address_resolved(id, Err(Failure::Os(113)));
    let failed = EventKind::AddressError(Failure::Os(113));
    assert_eq!(conversation.one_event(), failed);
    assert_eq!(conversation.manager.state(id), Some(State::AddressBound));
    let again = conversation
        .manager
        .resolve_address(at(0), id, None, peer, SECOND);
    again.expect("bound");
    conversation.manager.address_resolved(id, Ok(US));
    assert_eq!(conversation.events(), [EventKind::AddressResolved]);
    assert_eq!(
        conversation.manager.local_address(id).map(|a| a.ip()),
        Some(US)
    );
    conversation
        .manager
        .resolve_route(at(0), id, SECOND)
        .expect("next");
    conversation
        .manager
        .route_resolved(id, Err(Failure::Os(101)));
    let failed = EventKind::RouteError(Failure::Os(101));
    assert_eq!(conversation.one_event(), failed);
    assert_eq!(conversation.manager.state(id), Some(State::AddressResolved));
}

#[test]
fn resolution_times_out_without_a_result() {
    let mut conversation = Conversation::new();
    let id = tcp(&mut conversation);
    let peer = SocketAddr::new(PEER, PORT);
    let asked = conversation
        .manager
        .resolve_address(at(0), id, None, peer, SECOND);
    asked.expect("idle");
    conversation.peer_receives_nothing(1000);
    let late = EventKind::AddressError(Failure::TimedOut);
    assert_eq!(conversation.events(), [late]);
    conversation.manager.address_resolved(id, Ok(US));
    conversation.no_events();
    let asked = conversation
        .manager
        .resolve_address(at(1000), id, None, peer, SECOND);
    asked.expect("bound");
    conversation.manager.address_resolved(id, Ok(US));
    let asked = conversation.manager.resolve_route(at(1000), id, SECOND);
    asked.expect("resolved");
    conversation.peer_receives_nothing(2000);
    let late = EventKind::RouteError(Failure::TimedOut);
    assert_eq!(conversation.events(), [EventKind::AddressResolved, late]);
    let route = Ok(ResolvedRoute::new(PathMtu::Mtu256));
    conversation.manager.route_resolved(id, route);
    conversation.no_events();
}

#[test]
fn calls_out_of_order_fail() {
    let mut conversation = Conversation::new();
    let id = tcp(&mut conversation);
    let manager = &mut conversation.manager;
    let idle = Err(CallError::WrongState(State::Idle));
    assert_eq!(manager.resolve_route(at(0), id, SECOND), idle);
    let parameters = Parameters::new(OUR_QPN);
    assert_eq!(manager.connect(at(0), id, &parameters), idle);
    assert_eq!(manager.accept(at(0), id, &parameters), idle);
    let reason = RejectReason::Consumer;
    assert_eq!(manager.reject(at(0), id, reason, &[]), idle);
    assert_eq!(manager.establish(id), idle);
    let mixed = socket("[fe80::2]:1");
    manager.bind(id, socket("10.0.0.1:0")).expect("a port");
    let resolved = manager.resolve_address(at(0), id, None, mixed, SECOND);
    assert_eq!(resolved, Err(CallError::FamilyMismatch));
}

#[test]
fn private_data_is_limited() {
    let bytes = [7; 256];
    let parameters = |length: usize| Parameters {
        private_data: &bytes[..length],
        ..Parameters::new(OUR_QPN)
    };
    let limits = [
        (PortSpace::Tcp, private_data::REQUEST, 56),
        (PortSpace::Udp, private_data::SERVICE_REQUEST, 180),
    ];
    for (space, limit, expected) in limits {
        let mut conversation = Conversation::new();
        assert_eq!(limit, expected);
        let id = conversation.resolved(space);
        let manager = &mut conversation.manager;
        let long = manager.connect(at(0), id, &parameters(limit + 1));
        assert!(matches!(long, Err(CallError::PrivateData(_))), "{long:?}");
        let fits = manager.connect(at(0), id, &parameters(limit));
        fits.expect("private data of the maximum length");
    }
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    let manager = &mut conversation.manager;
    let long = manager.accept(at(0), id, &parameters(private_data::REPLY + 1));
    assert!(matches!(long, Err(CallError::PrivateData(_))));
    let long = &bytes[..=private_data::REJECT];
    let rejected = manager.reject(at(0), id, RejectReason::Consumer, long);
    assert!(matches!(rejected, Err(CallError::PrivateData(_))));
    let fits = manager.accept(at(0), id, &parameters(private_data::REPLY));
    fits.expect("private data of the maximum length");
}

#[test]
fn max_ids_limits_ids() {
    let mut conversation = Conversation::with(|config| config.max_ids = 2);
    conversation.listening(PortSpace::Tcp, 0);
    let id = tcp(&mut conversation);
    let third = conversation
        .manager
        .create_id(PortSpace::Tcp, ServiceType::ReliableConnection);
    assert_eq!(third, Err(TooManyIds(2)));
    conversation.peer_sends(0, request());
    conversation.peer_receives_nothing(0);
    conversation.no_events();
    assert_eq!(conversation.manager.counters().too_many_ids, 1);
    conversation.manager.destroy(at(0), id).expect("an id");
    conversation.peer_sends(6144, request());
    conversation.child_id();
}

#[test]
fn communication_ids_belong_to_the_slice() {
    let id_range = IdRange::new(8, 0x5a).expect("a range");
    let mut conversation = Conversation::with(|config| config.id_range = id_range);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let (_, request) = conversation.connecting();
        assert!(id_range.contains(request.local_id));
        assert!(seen.insert(request.local_id), "each only once");
        let reply = Message::from(crate::conversation::reply_to(&request));
        let owner = Recipient::CommunicationId(request.local_id);
        assert_eq!(owner_of(&reply), owner);
    }
}

#[test]
fn smallest_slice_does_not_reuse_communication_ids_soon() {
    let id_range = IdRange::new(IdRange::MAX_BITS, 0x1234).expect("a range");
    let mut conversation = Conversation::with(|config| config.id_range = id_range);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let (id, request) = conversation.connecting();
        assert!(id_range.contains(request.local_id));
        assert!(seen.insert(request.local_id), "none was used recently");
        conversation.manager.destroy(at(0), id).expect("an id");
        conversation.peer_receives(0);
    }
}

#[test]
fn ids_psns_and_ports_are_unpredictable() {
    let mut conversation = Conversation::new();
    let requests: Vec<_> = (0..64).map(|_| conversation.connecting().1).collect();
    let distinct = |numbers: Vec<u32>| {
        let steps = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        steps.collect::<std::collections::BTreeSet<u32>>().len()
    };
    let ids = requests.iter().map(|request| request.local_id.value());
    assert_eq!(distinct(ids.collect()), 63);
    let psns = requests.iter().map(|request| request.starting_psn.value());
    assert!(distinct(psns.collect()) > 60);
    let ports = requests.iter().map(|request| {
        let data = request.private_data.bytes();
        u32::from(u16::from_be_bytes([data[2], data[3]]))
    });
    assert!(distinct(ports.collect()) > 55);
}

#[test]
fn device_removal_ends_its_ids_without_messages() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    let manager = &mut conversation.manager;
    manager.address_changed(US);
    let changed = [EventKind::AddressChange, EventKind::AddressChange];
    assert_eq!(conversation.events(), changed);
    conversation.manager.device_removed();
    conversation.manager.device_removed();
    let removed = [EventKind::DeviceRemoval, EventKind::DeviceRemoval];
    assert_eq!(conversation.events(), removed);
    conversation.peer_receives_nothing(10);
    let state = conversation.manager.state(id);
    assert_eq!(state, Some(State::DeviceRemoved));
    let late = conversation.manager.disconnect(at(10), id);
    assert_eq!(late, Err(CallError::WrongState(State::DeviceRemoved)));
    conversation.manager.destroy(at(10), id).expect("an id");
    conversation.peer_receives_nothing(10);
    assert_eq!(reply.local_qpn, OUR_QPN);
    assert!(!conversation.manager.notify_established(Qpn::new(5)));
}

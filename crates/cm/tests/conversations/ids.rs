//! Ids before they talk to anyone: addresses, ports, options, limits.

use std::net::SocketAddr;
use std::time::Duration;

use cm::{
    BindError, CallError, EventKind, Failure, Instruction, Kind, Parameters, Recipient, Route,
    Slice, State, TooManyIds, owner_of, private_data,
};
use wire::cm::{Message, PortSpace, RejectReason};
use wire::{PathMtu, Qpn};

use crate::talk::{OUR_QPN, PEER, PORT, Talk, US, at, request};

const SECOND: Duration = Duration::from_secs(1);

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn tcp(talk: &mut Talk) -> cm::Id {
    let created = talk
        .manager
        .create(PortSpace::Tcp, Kind::ReliableConnection);
    created.expect("an id")
}

#[test]
fn a_port_is_chosen_or_taken() {
    let mut talk = Talk::new();
    let first = tcp(&mut talk);
    let bound = talk.manager.bind(first, socket("10.0.0.1:0"));
    let port = bound.expect("a port").port();
    assert!((32768..=60999).contains(&port));
    let second = tcp(&mut talk);
    let same = SocketAddr::new(US, port);
    let taken = talk.manager.bind(second, same);
    assert_eq!(taken, Err(BindError::AddressInUse(same)));
    let any = SocketAddr::new([0, 0, 0, 0].into(), port);
    let overlapping = talk.manager.bind(second, any);
    assert_eq!(overlapping, Err(BindError::AddressNotAvailable(any)));
    let foreign = socket("10.9.9.9:1");
    let not_ours = talk.manager.bind(second, foreign);
    assert_eq!(not_ours, Err(BindError::AddressNotAvailable(foreign)));
    talk.manager.destroy(at(0), first).expect("an id");
    talk.manager.bind(second, same).expect("free again");
    let twice = talk.manager.bind(second, same);
    assert_eq!(twice, Err(BindError::WrongState(State::AddressBound)));
}

#[test]
fn port_spaces_are_apart() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.listening(PortSpace::Udp, 0);
    talk.listening(PortSpace::Infiniband, 0);
    let names: Vec<_> = talk
        .manager
        .listening()
        .map(|(s, _)| s.to_string())
        .collect();
    assert_eq!(names, ["tcp/7174", "udp/7174", "ib/7174"]);
}

#[test]
fn ports_run_out() {
    let mut talk = Talk::with(|config| config.ephemeral_ports = 5000..=5001);
    for _ in 0..2 {
        let id = tcp(&mut talk);
        talk.manager.bind(id, socket("0.0.0.0:0")).expect("a port");
    }
    let id = tcp(&mut talk);
    let none = talk.manager.bind(id, socket("0.0.0.0:0"));
    assert_eq!(none, Err(BindError::NoPortLeft));
}

#[test]
fn ids_that_agree_share_a_port_but_only_one_listens() {
    let mut talk = Talk::new();
    let address = SocketAddr::new(US, PORT);
    let ids = [tcp(&mut talk), tcp(&mut talk)];
    for id in ids {
        talk.manager.set_reuse_address(id, true).expect("idle");
        talk.manager.bind(id, address).expect("shared");
    }
    let second = talk.manager.listen(ids[0], 0);
    assert_eq!(second, Err(BindError::AddressInUse(address).into()));
    let late = talk.manager.set_reuse_address(ids[0], false);
    assert_eq!(late, Err(CallError::WrongState(State::AddressBound)));
    talk.manager.destroy(at(0), ids[1]).expect("an id");
    talk.manager.listen(ids[0], 0).expect("alone");
    let third = tcp(&mut talk);
    talk.manager.set_reuse_address(third, true).expect("idle");
    let beside = talk.manager.bind(third, address);
    assert_eq!(beside, Err(BindError::AddressInUse(address)));
}

#[test]
fn both_families_can_have_one_port() {
    let mut talk = Talk::new();
    let four = tcp(&mut talk);
    talk.manager
        .bind(four, socket("0.0.0.0:7174"))
        .expect("free");
    let six = tcp(&mut talk);
    let both = socket("[::]:7174");
    let dual = talk.manager.bind(six, both);
    assert_eq!(dual, Err(BindError::AddressNotAvailable(both)));
    talk.manager.set_family_only(six, true).expect("idle");
    talk.manager.bind(six, both).expect("IPv6 only");
}

#[test]
fn a_listener_on_all_ipv6_addresses_takes_ipv4() {
    let mut talk = Talk::new();
    let id = tcp(&mut talk);
    talk.manager.bind(id, socket("[::]:7174")).expect("free");
    talk.manager.listen(id, 0).expect("bound");
    talk.says(0, request());
    talk.asked();
}

#[test]
fn the_listener_of_the_address_goes_before_the_one_of_all() {
    let mut talk = Talk::new();
    let ids = [tcp(&mut talk), tcp(&mut talk)];
    let addresses = ["[::]:7174", "10.0.0.1:7174"];
    for (id, address) in ids.into_iter().zip(addresses) {
        talk.manager.set_reuse_address(id, true).expect("idle");
        talk.manager.bind(id, socket(address)).expect("free");
    }
    talk.manager.listen(ids[1], 0).expect_err("they overlap");
    talk.manager.set_family_only(ids[0], true).expect("bound");
    talk.manager.listen(ids[1], 0).expect("apart");
    talk.manager.listen(ids[0], 0).expect("apart");
    talk.says(0, request());
    let event = talk.manager.poll_event().expect("a request");
    let EventKind::ConnectRequest { listener, .. } = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(listener, ids[1]);
}

#[test]
fn an_idle_id_that_listens_gets_a_port() {
    let mut talk = Talk::new();
    let id = tcp(&mut talk);
    talk.manager.listen(id, 0).expect("a port");
    let address = talk.manager.local_address(id).expect("bound");
    assert!(address.ip().is_unspecified() && address.port() != 0);
    let twice = talk.manager.listen(id, 0);
    assert_eq!(twice, Err(CallError::WrongState(State::Listening)));
}

#[test]
fn addresses_and_routes_are_the_drivers_business() {
    let mut talk = Talk::new();
    let id = tcp(&mut talk);
    let peer = SocketAddr::new(PEER, PORT);
    let asked = talk.manager.resolve_address(at(0), id, None, peer, SECOND);
    asked.expect("idle");
    assert_eq!(talk.manager.state(id), Some(State::AddressQuery));
    let [Instruction::ResolveAddress { destination, .. }] = talk.is_told_to()[..] else {
        panic!("one thing to do");
    };
    assert_eq!(destination, peer);
    talk.manager.address_resolved(id, Err(Failure::Os(113)));
    assert_eq!(talk.learns_one().status(), -113);
    assert_eq!(talk.manager.state(id), Some(State::AddressBound));
    let again = talk.manager.resolve_address(at(0), id, None, peer, SECOND);
    again.expect("bound");
    talk.manager.address_resolved(id, Ok(US));
    assert_eq!(talk.learns(), [EventKind::AddressResolved]);
    assert_eq!(talk.manager.local_address(id).map(|a| a.ip()), Some(US));
    talk.manager.resolve_route(at(0), id, SECOND).expect("next");
    talk.manager.route_resolved(id, Err(Failure::Os(101)));
    assert_eq!(talk.learns_one().status(), -101);
    assert_eq!(talk.manager.state(id), Some(State::AddressResolved));
}

#[test]
fn a_driver_that_does_not_answer_is_an_error() {
    let mut talk = Talk::new();
    let id = tcp(&mut talk);
    let peer = SocketAddr::new(PEER, PORT);
    let asked = talk.manager.resolve_address(at(0), id, None, peer, SECOND);
    asked.expect("idle");
    talk.hears_nothing(1000);
    let late = EventKind::AddressError(Failure::TimedOut);
    assert_eq!(talk.learns(), [late]);
    talk.manager.address_resolved(id, Ok(US));
    talk.learns_nothing();
    let asked = talk
        .manager
        .resolve_address(at(1000), id, None, peer, SECOND);
    asked.expect("bound");
    talk.manager.address_resolved(id, Ok(US));
    let asked = talk.manager.resolve_route(at(1000), id, SECOND);
    asked.expect("resolved");
    talk.hears_nothing(2000);
    let late = EventKind::RouteError(Failure::TimedOut);
    assert_eq!(talk.learns(), [EventKind::AddressResolved, late]);
    let route = Ok(Route::new(PathMtu::Mtu256));
    talk.manager.route_resolved(id, route);
    talk.learns_nothing();
}

#[test]
fn steps_cannot_be_left_out() {
    let mut talk = Talk::new();
    let id = tcp(&mut talk);
    let manager = &mut talk.manager;
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
fn private_data_has_its_limits() {
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
        let mut talk = Talk::new();
        assert_eq!(limit, expected);
        let id = talk.resolved(space);
        let manager = &mut talk.manager;
        let long = manager.connect(at(0), id, &parameters(limit + 1));
        assert!(matches!(long, Err(CallError::PrivateData(_))), "{long:?}");
        let fits = manager.connect(at(0), id, &parameters(limit));
        fits.expect("as much as there is room");
    }
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    let manager = &mut talk.manager;
    let long = manager.accept(at(0), id, &parameters(private_data::REPLY + 1));
    assert!(matches!(long, Err(CallError::PrivateData(_))));
    let long = &bytes[..=private_data::REJECT];
    let rejected = manager.reject(at(0), id, RejectReason::Consumer, long);
    assert!(matches!(rejected, Err(CallError::PrivateData(_))));
    let fits = manager.accept(at(0), id, &parameters(private_data::REPLY));
    fits.expect("as much as there is room");
}

#[test]
fn there_are_only_so_many_ids() {
    let mut talk = Talk::with(|config| config.max_ids = 2);
    talk.listening(PortSpace::Tcp, 0);
    let id = tcp(&mut talk);
    let third = talk
        .manager
        .create(PortSpace::Tcp, Kind::ReliableConnection);
    assert_eq!(third, Err(TooManyIds(2)));
    talk.says(0, request());
    talk.hears_nothing(0);
    talk.learns_nothing();
    assert_eq!(talk.manager.counters().too_many_ids, 1);
    talk.manager.destroy(at(0), id).expect("an id");
    talk.says(6144, request());
    talk.asked();
}

#[test]
fn identifiers_name_their_process() {
    let slice = Slice::new(8, 0x5a).expect("a slice");
    let mut talk = Talk::with(|config| config.slice = slice);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let (_, request) = talk.connecting();
        assert!(slice.contains(request.local_id));
        assert!(seen.insert(request.local_id), "each only once");
        let reply = Message::from(crate::talk::reply_to(&request));
        let owner = Recipient::Identifier(request.local_id);
        assert_eq!(owner_of(&reply), owner);
    }
}

#[test]
fn the_smallest_slice_has_identifiers_for_all_ids() {
    let slice = Slice::new(Slice::MOST_BITS, 0x1234).expect("a slice");
    let mut talk = Talk::with(|config| config.slice = slice);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let (id, request) = talk.connecting();
        assert!(slice.contains(request.local_id));
        assert!(seen.insert(request.local_id), "none was used recently");
        talk.manager.destroy(at(0), id).expect("an id");
        talk.hears(0);
    }
}

#[test]
fn numbers_do_not_tell_the_next_ones() {
    let mut talk = Talk::new();
    let requests: Vec<_> = (0..64).map(|_| talk.connecting().1).collect();
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
fn a_device_that_goes_takes_its_ids_along() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    let manager = &mut talk.manager;
    manager.address_changed(US);
    let changed = [EventKind::AddressChange, EventKind::AddressChange];
    assert_eq!(talk.learns(), changed);
    talk.manager.device_removed();
    talk.manager.device_removed();
    let removed = [EventKind::DeviceRemoval, EventKind::DeviceRemoval];
    assert_eq!(talk.learns(), removed);
    talk.hears_nothing(10);
    let state = talk.manager.state(id);
    assert_eq!(state, Some(State::DeviceRemoved));
    let late = talk.manager.disconnect(at(10), id);
    assert_eq!(late, Err(CallError::WrongState(State::DeviceRemoved)));
    talk.manager.destroy(at(10), id).expect("an id");
    talk.hears_nothing(10);
    assert_eq!(reply.local_qpn, OUR_QPN);
    assert!(!talk.manager.notify_established(Qpn::new(5)));
}

#[test]
fn an_address_that_is_gone_cannot_be_bound() {
    let mut talk = Talk::new();
    talk.manager.remove_address(US);
    let id = tcp(&mut talk);
    let address = SocketAddr::new(US, PORT);
    let bound = talk.manager.bind(id, address);
    assert_eq!(bound, Err(BindError::AddressNotAvailable(address)));
}

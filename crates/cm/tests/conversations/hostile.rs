//! Peers that mean no good: floods, and whatever fits in 256 bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cm::{Arrival, Config, EventKind, Kind, Load, Manager, Parameters, Phase};
use proptest::prelude::*;
use wire::cm::{
    AddressHeader, AnsweredMessage, CommunicationId, ConnectRequest, Message, PortSpace,
    PrivateData, ReceiptAcknowledge, RejectReason, ServiceId, ServiceRequest,
};
use wire::{AckTimeout, Gid, Qpn, mad};

use crate::talk::{
    OUR_QPN, PEER, PEER_ID, PORT, REPLY_INTERVAL, Talk, US, as_reject, as_reply, at, part,
    ready_for, request, timeout,
};

fn stranger(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0b00_0000 + number).into()
}

fn request_of(who: IpAddr, number: u32) -> ConnectRequest {
    let arrival = Arrival {
        source: who,
        destination: US,
    };
    request_to(arrival, number)
}

fn request_to(arrival: Arrival, number: u32) -> ConnectRequest {
    let header = AddressHeader {
        source_port: 1,
        source: arrival.source,
        destination: arrival.destination,
    };
    let mut request = request();
    request.local_id = CommunicationId::new(number);
    request.local_qpn = Qpn::new(number);
    request.primary.local_gid = Gid::from(arrival.source);
    request.primary.remote_gid = Gid::from(arrival.destination);
    request.private_data = PrivateData::new(&header.emit()).expect("room");
    request
}

fn total(load: Load) -> usize {
    load.ids + load.conversations + load.peers + load.services + load.timers + load.answers
}

#[test]
fn a_flood_from_many_addresses_stops_at_the_backlog() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 16);
    for number in 0..20_000 {
        let who = stranger(number);
        talk.says_from(who, 0, request_of(who, number));
    }
    let load = talk.manager.load();
    assert_eq!(load.ids, 1 + 16);
    assert_eq!((load.conversations, load.peers), (16, 32));
    talk.hears_nothing(0);
    assert_eq!(talk.manager.counters().backlog_full, 20_000 - 16);
}

/// Accepts every request at once, as a busy server does.
fn accept_all(talk: &mut Talk, millis: u64) {
    while let Some(event) = talk.manager.poll_event() {
        if !matches!(event.kind, EventKind::ConnectRequest { .. }) {
            continue;
        }
        let qpn = Qpn::new(1000 + talk.manager.load().ids as u32);
        let accepted = talk
            .manager
            .accept(at(millis), event.id, &Parameters::new(qpn));
        accepted.expect("a request");
    }
    talk.hears(millis);
}

#[test]
fn a_flood_from_one_address_leaves_room_for_another() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 16);
    for number in 0..5000 {
        talk.says(0, request_of(PEER, number));
        accept_all(&mut talk, 0);
    }
    assert_eq!(talk.manager.load().half_open, 1024);
    assert_eq!(talk.manager.load().ids, 1 + 1024);
    assert_eq!(talk.manager.counters().half_open_full, 5000 - 1024);
    let other = stranger(1);
    talk.says_from(other, 0, request_of(other, 1));
    accept_all(&mut talk, 0);
    assert_eq!(talk.manager.load().half_open, 1025);
}

#[test]
fn a_flood_from_one_ipv6_network_leaves_room_for_another() {
    let ours: IpAddr = Ipv6Addr::LOCALHOST.into();
    let address = |network: u16, host: u16| {
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host))
    };
    let mut talk = Talk::with(|config| config.max_half_open_per_source = 8);
    talk.manager.add_address(ours);
    let listener = talk
        .manager
        .create(PortSpace::Tcp, Kind::ReliableConnection);
    let listener = listener.expect("an id");
    let bound = talk.manager.bind(listener, (ours, PORT).into());
    bound.expect("an address of ours");
    talk.manager.listen(listener, 0).expect("a bound id");
    let mut ask = |network, host| {
        let arrival = Arrival {
            source: address(network, host),
            destination: ours,
        };
        let request = Message::from(request_to(arrival, host.into()));
        let datagram = request.emit(1);
        talk.manager.handle_datagram(at(0), arrival, &datagram);
        talk.manager.load().half_open
    };
    for host in 1..100 {
        ask(1, host);
    }
    assert_eq!(ask(1, 100), 8);
    assert_eq!(ask(2, 101), 9);
}

#[test]
fn floods_from_many_addresses_stop_at_the_limit_of_half_open_requests() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 16);
    for number in 0..10_000 {
        let who = stranger(number % 100);
        talk.says_from(who, 0, request_of(who, number));
        accept_all(&mut talk, 0);
    }
    assert_eq!(talk.manager.load().half_open, 4096);
    let load = talk.manager.load();
    assert_eq!(
        (load.ids, load.conversations, load.timers),
        (4097, 4096, 4096)
    );
}

#[test]
fn a_confirmed_request_is_not_half_open() {
    let mut talk = Talk::with(|config| config.max_half_open_per_source = 1);
    let (_, reply) = talk.accepting();
    assert_eq!(talk.manager.load().half_open, 1);
    talk.says(0, ready_for(&reply));
    talk.learns();
    assert_eq!(talk.manager.load().half_open, 0);
    talk.says(1, request_of(PEER, 7));
    talk.asked();
}

#[test]
fn a_refused_request_is_not_half_open() {
    let mut talk = Talk::with(|config| config.max_half_open = 1);
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    talk.says(0, request_of(PEER, 7));
    talk.learns_nothing();
    talk.manager.destroy(at(0), id).expect("an id");
    assert_eq!(talk.manager.load().half_open, 0);
    talk.says(0, request_of(PEER, 7));
    talk.asked();
}

#[test]
fn a_request_that_ends_before_it_is_confirmed_is_not_half_open() {
    let mut talk = Talk::new();
    let (_, reply) = talk.accepting();
    talk.says(0, part(PEER_ID, reply.local_id));
    assert_eq!(talk.manager.load().half_open, 0);
}

/// The longest that an accepted request waits for its RTU.
const LONGEST: u64 = 16 * 8192;

#[test]
fn a_peer_can_not_make_an_accepted_request_wait_for_hours() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut patient = request();
    patient.local_response_timeout = timeout(31);
    patient.max_cm_retries = 15;
    talk.says(0, patient);
    let id = talk.asked();
    let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    talk.hears_one(0);
    for repetition in 1..16 {
        talk.hears_one(repetition * 8192);
    }
    talk.learns_nothing();
    talk.hears_nothing(LONGEST);
    assert_eq!(talk.learns_one().status(), -110);
    assert_eq!(talk.manager.load().half_open, 0);
}

#[test]
fn a_peer_that_asks_for_delays_waits_no_longer() {
    let mut talk = Talk::new();
    let (_, reply) = talk.accepting();
    let delay = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: AnsweredMessage::Reply,
        service_timeout: timeout(31),
        ..ReceiptAcknowledge::default()
    };
    talk.says(0, delay);
    // A minute, which is what Linux asks for, and the time-wait.
    talk.hears_nothing(65_536 + 2048 - 1);
    for repetition in 0..15 {
        talk.hears_one(65_536 + 2048 + repetition * REPLY_INTERVAL);
    }
    talk.hears_nothing(65_536 + 2048 + 15 * REPLY_INTERVAL - 1);
    talk.learns_nothing();
    talk.hears_nothing(65_536 + 2048 + 15 * REPLY_INTERVAL);
    assert_eq!(talk.learns_one().status(), -110);
}

#[test]
fn a_slow_peer_that_asks_for_a_delay_waits_no_longer() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut slow = request();
    slow.local_response_timeout = timeout(21);
    talk.says(0, slow);
    let id = talk.asked();
    let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    let reply = as_reply(talk.hears_one(0));
    let delay = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: AnsweredMessage::Reply,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    talk.says(0, delay);
    for repetition in 0..8 {
        talk.hears_one(65_536 + 2048 + repetition * 8192);
    }
    talk.hears_nothing(LONGEST - 1);
    talk.learns_nothing();
    talk.hears_nothing(LONGEST);
    assert_eq!(talk.learns_one().status(), -110);
}

#[test]
fn a_peer_can_not_make_the_time_wait_last_for_hours() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut slow = request();
    slow.primary.local_ack_timeout = AckTimeout::new(31).expect("a code");
    talk.says(0, slow);
    let id = talk.asked();
    let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    let reply = as_reply(talk.hears_one(0));
    talk.says(0, ready_for(&reply));
    talk.manager.destroy(at(0), id).expect("an id");
    talk.hears_one(0);
    talk.hears_nothing(8191);
    assert!(talk.manager.is_lingering(OUR_QPN));
    talk.hears_nothing(8192);
    assert!(!talk.manager.is_lingering(OUR_QPN));
}

#[test]
fn a_flood_that_the_application_takes_stops_at_the_limit_of_ids() {
    let mut talk = Talk::with(|config| {
        config.max_ids = 1000;
        config.max_half_open_per_source = 5000;
        config.max_half_open = 5000;
    });
    talk.listening(PortSpace::Tcp, 16);
    for number in 0..5000 {
        talk.says(0, request_of(PEER, number));
        if let Some(event) = talk.manager.poll_event() {
            talk.manager.request_taken(event.id).expect("an id");
        }
    }
    assert_eq!(talk.manager.load().ids, 1000);
    assert_eq!(talk.manager.counters().too_many_ids, 5000 - 999);
}

#[test]
fn a_flood_of_refused_requests_is_forgotten() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    for number in 0..5000 {
        talk.says(0, request_of(PEER, number));
        let id = talk.asked();
        talk.manager.destroy(at(0), id).expect("an id");
        assert_eq!(talk.hears(0).len(), 1);
    }
    assert_eq!(talk.manager.load().answers, 1024);
    talk.hears_nothing(1_087_999);
    assert_eq!(talk.manager.load().answers, 1024);
    talk.hears_nothing(1_088_000);
    assert_eq!(talk.manager.load().answers, 0);
    assert_eq!(talk.manager.load().ids, 1);
}

#[test]
fn a_flood_of_questions_stops_at_the_backlog() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Udp, 8);
    for number in 0..5000 {
        let who = stranger(number);
        let header = AddressHeader {
            source_port: 1,
            source: who,
            destination: US,
        };
        let question = ServiceRequest {
            request_id: CommunicationId::new(number),
            service_id: ServiceId::of_port(PortSpace::Udp, PORT),
            private_data: PrivateData::new(&header.emit()).expect("room"),
            ..ServiceRequest::default()
        };
        talk.says_from(who, 0, question);
    }
    assert_eq!(talk.manager.load().services, 8);
}

#[test]
fn messages_that_name_another_conversation_of_the_peer_change_nothing() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepting();
    let other = CommunicationId::new(0x9999);
    let mut ready = ready_for(&reply);
    ready.local_id = other;
    talk.says(1, ready);
    let delay = ReceiptAcknowledge {
        local_id: other,
        remote_id: reply.local_id,
        message: AnsweredMessage::Reply,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    talk.says(1, delay);
    assert_eq!(talk.manager.phase(id), Some(Phase::ReplySent));
    assert_eq!(talk.manager.counters().unmatched, 2);
}

#[test]
fn a_stranger_can_not_end_a_connection() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    talk.says_from(stranger(1), 1, part(PEER_ID, reply.local_id));
    assert_eq!(talk.manager.phase(id), Some(Phase::Established));
}

#[test]
fn a_request_whose_path_ends_elsewhere_is_refused() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut request = request_of(PEER, 7);
    request.primary.remote_gid = Gid::from(stranger(1));
    talk.says(0, request);
    let refusal = as_reject(talk.hears_one(0));
    assert_eq!(refusal.reason, RejectReason::PrimaryGidRejected);
    talk.learns_nothing();
}

#[test]
fn connections_of_destroyed_ids_are_remembered_up_to_the_limit_of_ids() {
    let mut talk = Talk::with(|config| config.max_ids = 2);
    talk.listening(PortSpace::Tcp, 0);
    for number in 1..=5 {
        talk.says(0, request_of(PEER, number));
        let id = talk.asked();
        let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
        accepted.expect("a request");
        talk.manager.destroy(at(0), id).expect("an id");
        talk.hears(0);
    }
    assert_eq!(talk.manager.load().ghosts, 2);
}

#[test]
fn answers_that_nobody_fetches_are_left_out() {
    let mut talk = Talk::new();
    for number in 0..10_000 {
        talk.says(0, request_of(PEER, number));
    }
    assert_eq!(talk.manager.load().waiting, 4096);
    assert_eq!(talk.manager.counters().outbox_full, 10_000 - 4096);
}

#[test]
fn what_is_no_message_is_counted() {
    let mut talk = Talk::new();
    let arrival = Arrival {
        source: PEER,
        destination: US,
    };
    let datagram = Message::from(request()).emit(1);
    let manager = &mut talk.manager;
    manager.handle_datagram(at(0), arrival, &datagram[..255]);
    manager.handle_datagram(at(0), arrival, &[]);
    let mut other_class = datagram;
    other_class[1] = 3;
    manager.handle_datagram(at(0), arrival, &other_class);
    assert_eq!(manager.counters().malformed, 3);
    let mut unknown = datagram;
    unknown[17] = 0x55;
    manager.handle_datagram(at(0), arrival, &unknown);
    assert_eq!(manager.counters().unknown_attribute, 1);
    talk.hears_nothing(0);
    assert_eq!(talk.manager.load(), Load::default());
}

/// A manager in which everything is going on at once.
fn busy() -> Manager {
    let mut talk = Talk::with(|config| config.max_ids = 64);
    talk.listening(PortSpace::Udp, 4);
    talk.accepted();
    talk.connecting();
    let id = talk.resolved(PortSpace::Udp);
    let asked = talk.manager.connect(at(0), id, &Parameters::new(OUR_QPN));
    asked.expect("resolved");
    talk.hears(0);
    talk.manager
}

/// The identifiers that occur in a busy manager, so that arbitrary messages hit them.
fn identifiers() -> Vec<u32> {
    let mut talk = Talk::new();
    let mut next = || talk.connecting().1.local_id.value();
    let mut all: Vec<u32> = (0..6).map(|_| next()).collect();
    all.extend([0, 0xabcd, 0x2222, u32::MAX]);
    all
}

fn arbitrary_message() -> impl Strategy<Value = [u8; mad::LENGTH]> {
    let body = proptest::collection::vec(any::<u8>(), mad::LENGTH);
    let identifier = proptest::sample::select(identifiers());
    (body, 0x10_u8..0x1b, identifier.clone(), identifier).prop_map(
        |(bytes, attribute, local, remote)| {
            let mut datagram: [u8; mad::LENGTH] = bytes.try_into().expect("the length");
            datagram[..4].copy_from_slice(&[1, 7, 2, 3]);
            datagram[16..18].copy_from_slice(&[0, attribute]);
            datagram[24..28].copy_from_slice(&local.to_be_bytes());
            datagram[28..32].copy_from_slice(&remote.to_be_bytes());
            datagram
        },
    )
}

/// A request with one byte changed: almost right is the most dangerous.
fn almost_a_request() -> impl Strategy<Value = [u8; mad::LENGTH]> {
    (0..mad::LENGTH, any::<u8>()).prop_map(|(place, value)| {
        let mut datagram = Message::from(request()).emit(7);
        datagram[place] = value;
        datagram
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_do_no_harm(
        datagrams in proptest::collection::vec(any::<[u8; 32]>(), 1..20),
        length in 0_usize..300,
    ) {
        let mut manager = Manager::new(Config::new(1, [1; 32]));
        let arrival = Arrival { source: PEER, destination: US };
        for datagram in datagrams {
            let bytes: Vec<u8> = datagram.into_iter().cycle().take(length).collect();
            manager.handle_datagram(at(0), arrival, &bytes);
        }
        prop_assert_eq!(manager.load(), Load::default());
    }

    #[test]
    fn arbitrary_messages_do_no_harm(
        datagrams in proptest::collection::vec(
            prop_oneof![3 => arbitrary_message(), 1 => almost_a_request()], 1..60),
        steps in proptest::collection::vec(0_u64..10_000, 1..60),
    ) {
        let mut manager = busy();
        let arrival = Arrival { source: PEER, destination: US };
        let mut now = 0;
        for (datagram, step) in datagrams.iter().zip(steps.iter().cycle()) {
            now += step;
            manager.handle_datagram(at(now), arrival, datagram);
            manager.handle_timeout(at(now));
            while manager.poll_transmit().is_some() {}
            while manager.poll_event().is_some() {}
            while manager.poll_instruction().is_some() {}
        }
        prop_assert!(total(manager.load()) < 500);
        prop_assert!(manager.poll_timeout().is_none_or(|next| next > at(now)));
    }
}

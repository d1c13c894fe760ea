//! Hostile peers: floods of requests, and arbitrary datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cm::{
    Addresses, Config, EventKind, ExchangeState, Manager, Parameters, ServiceType, TableSizes,
    Unreachable,
};
use proptest::prelude::*;
use wire::cm::{
    AcknowledgedMessage, AddressHeader, CommunicationId, ConnectRequest, Message, PortSpace,
    PrivateData, ReceiptAcknowledge, RejectReason, ServiceId, ServiceRequest,
};
use wire::{AckTimeout, Gid, Qpn, mad};

use crate::conversation::{
    Conversation, OUR_QPN, PEER, PEER_ID, PORT, REPLY_INTERVAL, US, as_reject, as_reply, at, drep,
    dreq, ready_for, request, timeout,
};

const TIMED_OUT: EventKind = EventKind::Unreachable(Unreachable::TimedOut);

fn other_address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0b00_0000 + number).into()
}

fn request_of(source: IpAddr, number: u32) -> ConnectRequest {
    let addresses = Addresses {
        source,
        destination: US,
    };
    request_to(addresses, number)
}

fn request_to(addresses: Addresses, number: u32) -> ConnectRequest {
    let header = AddressHeader {
        source_port: 1,
        source: addresses.source,
        destination: addresses.destination,
    };
    let mut request = request();
    request.local_id = CommunicationId::new(number);
    request.local_qpn = Qpn::new(number);
    request.primary.local_gid = Gid::from(addresses.source);
    request.primary.remote_gid = Gid::from(addresses.destination);
    request.private_data = PrivateData::new(&header.emit()).expect("room");
    request
}

fn total(load: TableSizes) -> usize {
    load.ids + load.communication_ids + load.peers + load.services + load.timers + load.responses
}

#[test]
fn backlog_limits_a_flood_from_many_addresses() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 16);
    for number in 0..20_000 {
        let source = other_address(number);
        conversation.peer_sends_from(source, 0, request_of(source, number));
    }
    let load = conversation.manager.table_sizes();
    assert_eq!(load.ids, 1 + 16);
    assert_eq!((load.communication_ids, load.peers), (16, 32));
    conversation.peer_receives_nothing(0);
    assert_eq!(conversation.manager.counters().backlog_full, 20_000 - 16);
}

/// Accepts all requests.
fn accept_all(conversation: &mut Conversation, millis: u64) {
    while let Some(event) = conversation.manager.poll_event() {
        if !matches!(event.kind, EventKind::ConnectRequest { .. }) {
            continue;
        }
        let qpn = Qpn::new(1000 + conversation.manager.table_sizes().ids as u32);
        let accepted = conversation
            .manager
            .accept(at(millis), event.id, &Parameters::new(qpn));
        accepted.expect("a request");
    }
    conversation.peer_receives(millis);
}

#[test]
fn flood_from_one_address_does_not_exclude_another() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 16);
    for number in 0..5000 {
        conversation.peer_sends(0, request_of(PEER, number));
        accept_all(&mut conversation, 0);
    }
    assert_eq!(conversation.manager.table_sizes().half_open, 1024);
    assert_eq!(conversation.manager.table_sizes().ids, 1 + 1024);
    assert_eq!(conversation.manager.counters().half_open_full, 5000 - 1024);
    let other = other_address(1);
    conversation.peer_sends_from(other, 0, request_of(other, 1));
    accept_all(&mut conversation, 0);
    assert_eq!(conversation.manager.table_sizes().half_open, 1025);
}

#[test]
fn flood_from_one_ipv6_network_does_not_exclude_another() {
    let ours: IpAddr = Ipv6Addr::LOCALHOST.into();
    let address = |network: u16, host: u16| {
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host))
    };
    let mut conversation = Conversation::with(|config| config.max_half_open_per_source = 8);
    conversation.manager.add_address(ours);
    let listener = conversation
        .manager
        .create_id(PortSpace::Tcp, ServiceType::ReliableConnection);
    let listener = listener.expect("an id");
    let bound = conversation.manager.bind(listener, (ours, PORT).into());
    bound.expect("an address of ours");
    conversation
        .manager
        .listen(listener, 0)
        .expect("a bound id");
    let mut ask = |network, host| {
        let addresses = Addresses {
            source: address(network, host),
            destination: ours,
        };
        let request = Message::from(request_to(addresses, host.into()));
        let datagram = request.emit(1);
        conversation
            .manager
            .handle_datagram(at(0), addresses, &datagram);
        conversation.manager.table_sizes().half_open
    };
    for host in 1..100 {
        ask(1, host);
    }
    assert_eq!(ask(1, 100), 8);
    assert_eq!(ask(2, 101), 9);
}

#[test]
fn half_open_limit_bounds_a_flood_from_many_addresses() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 16);
    for number in 0..10_000 {
        let source = other_address(number % 100);
        conversation.peer_sends_from(source, 0, request_of(source, number));
        accept_all(&mut conversation, 0);
    }
    assert_eq!(conversation.manager.table_sizes().half_open, 4096);
    let load = conversation.manager.table_sizes();
    assert_eq!(
        (load.ids, load.communication_ids, load.timers),
        (4097, 4096, 4096)
    );
}

/// Strangers who never confirm must not keep others out for minutes.
#[test]
fn crowded_half_open_requests_end_after_seconds() {
    let mut conversation = Conversation::with(|config| config.max_half_open = 6);
    conversation.listening(PortSpace::Tcp, 16);
    for number in 0..10 {
        let source = other_address(number);
        let mut slow = request_of(source, number);
        slow.local_response_timeout = timeout(21);
        conversation.peer_sends_from(source, 0, slow);
        accept_all(&mut conversation, 0);
    }
    assert_eq!(conversation.manager.table_sizes().half_open, 6);
    conversation.manager.handle_timeout(at(4000));
    assert_eq!(conversation.manager.table_sizes().half_open, 3);
    let honest = other_address(77);
    conversation.peer_sends_from(honest, 4000, request_of(honest, 77));
    assert_eq!(conversation.manager.table_sizes().half_open, 4);
}

#[test]
fn confirmed_request_is_not_half_open() {
    let mut conversation = Conversation::with(|config| config.max_half_open_per_source = 1);
    let (_, reply) = conversation.accepting();
    assert_eq!(conversation.manager.table_sizes().half_open, 1);
    conversation.peer_sends(0, ready_for(&reply));
    conversation.events();
    assert_eq!(conversation.manager.table_sizes().half_open, 0);
    conversation.peer_sends(1, request_of(PEER, 7));
    conversation.child_id();
}

#[test]
fn destroyed_request_is_not_half_open() {
    let mut conversation = Conversation::with(|config| config.max_half_open = 1);
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    conversation.peer_sends(0, request_of(PEER, 7));
    conversation.no_events();
    conversation.manager.destroy(at(0), id).expect("an id");
    assert_eq!(conversation.manager.table_sizes().half_open, 0);
    conversation.peer_sends(0, request_of(PEER, 7));
    conversation.child_id();
}

#[test]
fn disconnected_request_is_not_half_open() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.accepting();
    conversation.peer_sends(0, dreq(PEER_ID, reply.local_id));
    assert_eq!(conversation.manager.table_sizes().half_open, 0);
}

/// The longest time that an accepted request waits for its RTU, in milliseconds.
const MAX_HALF_OPEN_TIME: u64 = 16 * 8192;

#[test]
fn response_timeout_of_the_peer_is_bounded() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut slow = request();
    slow.local_response_timeout = timeout(31);
    slow.max_cm_retries = 15;
    conversation.peer_sends(0, slow);
    let id = conversation.child_id();
    let accepted = conversation
        .manager
        .accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    conversation.peer_receives_one(0);
    for retransmission in 1..16 {
        conversation.peer_receives_one(retransmission * 8192);
    }
    conversation.no_events();
    conversation.peer_receives_nothing(MAX_HALF_OPEN_TIME);
    assert_eq!(conversation.one_event(), TIMED_OUT);
    assert_eq!(conversation.manager.table_sizes().half_open, 0);
}

#[test]
fn delay_of_an_mra_is_bounded() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.accepting();
    let delay = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: AcknowledgedMessage::Reply,
        service_timeout: timeout(31),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(0, delay);
    // The longest delay, about a minute, and the time-wait.
    conversation.peer_receives_nothing(65_536 + 2048 - 1);
    for retransmission in 0..15 {
        conversation.peer_receives_one(65_536 + 2048 + retransmission * REPLY_INTERVAL);
    }
    conversation.peer_receives_nothing(65_536 + 2048 + 15 * REPLY_INTERVAL - 1);
    conversation.no_events();
    conversation.peer_receives_nothing(65_536 + 2048 + 15 * REPLY_INTERVAL);
    assert_eq!(conversation.one_event(), TIMED_OUT);
}

#[test]
fn mra_does_not_extend_the_half_open_time() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut slow = request();
    slow.local_response_timeout = timeout(21);
    conversation.peer_sends(0, slow);
    let id = conversation.child_id();
    let accepted = conversation
        .manager
        .accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    let reply = as_reply(conversation.peer_receives_one(0));
    let delay = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: AcknowledgedMessage::Reply,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(0, delay);
    for retransmission in 0..8 {
        conversation.peer_receives_one(65_536 + 2048 + retransmission * 8192);
    }
    conversation.peer_receives_nothing(MAX_HALF_OPEN_TIME - 1);
    conversation.no_events();
    conversation.peer_receives_nothing(MAX_HALF_OPEN_TIME);
    assert_eq!(conversation.one_event(), TIMED_OUT);
}

#[test]
fn time_wait_is_bounded() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut slow = request();
    slow.primary.local_ack_timeout = AckTimeout::new(31).expect("a code");
    conversation.peer_sends(0, slow);
    let id = conversation.child_id();
    let accepted = conversation
        .manager
        .accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    let reply = as_reply(conversation.peer_receives_one(0));
    conversation.peer_sends(0, ready_for(&reply));
    conversation.manager.destroy(at(0), id).expect("an id");
    conversation.peer_receives_one(0);
    conversation.peer_sends(0, drep(PEER_ID, reply.local_id));
    conversation.peer_receives_nothing(8191);
    assert!(conversation.manager.is_in_time_wait(OUR_QPN));
    conversation.peer_receives_nothing(8192);
    assert!(!conversation.manager.is_in_time_wait(OUR_QPN));
}

#[test]
fn max_ids_limits_a_flood_of_taken_requests() {
    let mut conversation = Conversation::with(|config| {
        config.max_ids = 1000;
        config.max_half_open_per_source = 5000;
        config.max_half_open = 5000;
    });
    conversation.listening(PortSpace::Tcp, 16);
    for number in 0..5000 {
        conversation.peer_sends(0, request_of(PEER, number));
        if let Some(event) = conversation.manager.poll_event() {
            conversation.manager.request_taken(event.id).expect("an id");
        }
    }
    assert_eq!(conversation.manager.table_sizes().ids, 1000);
    assert_eq!(conversation.manager.counters().too_many_ids, 5000 - 999);
}

#[test]
fn remembered_rejects_are_bounded_and_expire() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    for number in 0..5000 {
        conversation.peer_sends(0, request_of(PEER, number));
        let id = conversation.child_id();
        conversation.manager.destroy(at(0), id).expect("an id");
        assert_eq!(conversation.peer_receives(0).len(), 1);
    }
    assert_eq!(conversation.manager.table_sizes().responses, 1024);
    conversation.peer_receives_nothing(1_087_999);
    assert_eq!(conversation.manager.table_sizes().responses, 1024);
    conversation.peer_receives_nothing(1_088_000);
    assert_eq!(conversation.manager.table_sizes().responses, 0);
    assert_eq!(conversation.manager.table_sizes().ids, 1);
}

#[test]
fn backlog_limits_a_flood_of_service_requests() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Udp, 8);
    for number in 0..5000 {
        let source = other_address(number);
        let header = AddressHeader {
            source_port: 1,
            source,
            destination: US,
        };
        let request = ServiceRequest {
            request_id: CommunicationId::new(number),
            service_id: ServiceId::of_port(PortSpace::Udp, PORT),
            private_data: PrivateData::new(&header.emit()).expect("room"),
            ..ServiceRequest::default()
        };
        conversation.peer_sends_from(source, 0, request);
    }
    assert_eq!(conversation.manager.table_sizes().services, 8);
}

#[test]
fn messages_with_a_wrong_remote_communication_id_are_ignored() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepting();
    let other = CommunicationId::new(0x9999);
    let mut ready = ready_for(&reply);
    ready.local_id = other;
    conversation.peer_sends(1, ready);
    let delay = ReceiptAcknowledge {
        local_id: other,
        remote_id: reply.local_id,
        message: AcknowledgedMessage::Reply,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(1, delay);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::ReplySent)
    );
    assert_eq!(conversation.manager.counters().unmatched, 2);
}

#[test]
fn dreq_from_another_address_is_ignored() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    conversation.peer_sends_from(other_address(1), 1, dreq(PEER_ID, reply.local_id));
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::Established)
    );
}

#[test]
fn request_with_a_foreign_gid_is_rejected() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut request = request_of(PEER, 7);
    request.primary.remote_gid = Gid::from(other_address(1));
    conversation.peer_sends(0, request);
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::PrimaryGidRejected);
    conversation.no_events();
}

#[test]
fn max_ids_limits_time_wait_of_destroyed_ids() {
    let mut conversation = Conversation::with(|config| config.max_ids = 2);
    conversation.listening(PortSpace::Tcp, 0);
    for number in 1..=5 {
        conversation.peer_sends(0, request_of(PEER, number));
        let id = conversation.child_id();
        let accepted = conversation
            .manager
            .accept(at(0), id, &Parameters::new(OUR_QPN));
        accepted.expect("a request");
        conversation.manager.destroy(at(0), id).expect("an id");
        conversation.peer_receives(0);
    }
    assert_eq!(conversation.manager.table_sizes().time_wait, 2);
}

#[test]
fn outbox_is_bounded() {
    let mut conversation = Conversation::new();
    for number in 0..10_000 {
        conversation.peer_sends(0, request_of(PEER, number));
    }
    assert_eq!(conversation.manager.table_sizes().waiting, 4096);
    assert_eq!(conversation.manager.counters().outbox_full, 10_000 - 4096);
}

#[test]
fn invalid_datagrams_are_counted() {
    let mut conversation = Conversation::new();
    let addresses = Addresses {
        source: PEER,
        destination: US,
    };
    let datagram = Message::from(request()).emit(1);
    let manager = &mut conversation.manager;
    manager.handle_datagram(at(0), addresses, &datagram[..255]);
    manager.handle_datagram(at(0), addresses, &[]);
    let mut other_class = datagram;
    other_class[1] = 3;
    manager.handle_datagram(at(0), addresses, &other_class);
    assert_eq!(manager.counters().malformed, 3);
    let mut unknown = datagram;
    unknown[17] = 0x55;
    manager.handle_datagram(at(0), addresses, &unknown);
    assert_eq!(manager.counters().unknown_attribute, 1);
    conversation.peer_receives_nothing(0);
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

/// A manager with listeners, connections and pending requests.
fn busy() -> Manager {
    let mut conversation = Conversation::with(|config| config.max_ids = 64);
    conversation.listening(PortSpace::Udp, 4);
    conversation.accepted();
    conversation.connecting();
    let id = conversation.resolved(PortSpace::Udp);
    let asked = conversation
        .manager
        .connect(at(0), id, &Parameters::new(OUR_QPN));
    asked.expect("resolved");
    conversation.peer_receives(0);
    conversation.manager
}

/// The communication ids that occur in a busy manager, so that arbitrary messages match them.
fn communication_ids() -> Vec<u32> {
    let mut conversation = Conversation::new();
    let mut next = || conversation.connecting().1.local_id.value();
    let mut all: Vec<u32> = (0..6).map(|_| next()).collect();
    all.extend([0, 0xabcd, 0x2222, u32::MAX]);
    all
}

fn arbitrary_message() -> impl Strategy<Value = [u8; mad::LENGTH]> {
    let body = proptest::collection::vec(any::<u8>(), mad::LENGTH);
    let id = proptest::sample::select(communication_ids());
    (body, 0x10_u8..0x1b, id.clone(), id).prop_map(|(bytes, attribute, local, remote)| {
        let mut datagram: [u8; mad::LENGTH] = bytes.try_into().expect("the length");
        datagram[..4].copy_from_slice(&[1, 7, 2, 3]);
        datagram[16..18].copy_from_slice(&[0, attribute]);
        datagram[24..28].copy_from_slice(&local.to_be_bytes());
        datagram[28..32].copy_from_slice(&remote.to_be_bytes());
        datagram
    })
}

/// A valid request with one byte changed.
fn request_with_one_byte_changed() -> impl Strategy<Value = [u8; mad::LENGTH]> {
    (0..mad::LENGTH, any::<u8>()).prop_map(|(offset, value)| {
        let mut datagram = Message::from(request()).emit(7);
        datagram[offset] = value;
        datagram
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_leave_no_state(
        datagrams in proptest::collection::vec(any::<[u8; 32]>(), 1..20),
        length in 0_usize..300,
    ) {
        let mut manager = Manager::new(Config::new(1, [1; 32]));
        let addresses = Addresses { source: PEER, destination: US };
        for datagram in datagrams {
            let bytes: Vec<u8> = datagram.into_iter().cycle().take(length).collect();
            manager.handle_datagram(at(0), addresses, &bytes);
        }
        prop_assert_eq!(manager.table_sizes(), TableSizes::default());
    }

    #[test]
    fn arbitrary_messages_leave_bounded_state(
        datagrams in proptest::collection::vec(
            prop_oneof![3 => arbitrary_message(), 1 => request_with_one_byte_changed()], 1..60),
        steps in proptest::collection::vec(0_u64..10_000, 1..60),
    ) {
        let mut manager = busy();
        let addresses = Addresses { source: PEER, destination: US };
        let mut now = 0;
        for (datagram, step) in datagrams.iter().zip(steps.iter().cycle()) {
            now += step;
            manager.handle_datagram(at(now), addresses, datagram);
            manager.handle_timeout(at(now));
            while manager.poll_transmit().is_some() {}
            while manager.poll_event().is_some() {}
            while manager.poll_instruction().is_some() {}
        }
        prop_assert!(total(manager.table_sizes()) < 500);
        prop_assert!(manager.poll_timeout().is_none_or(|next| next > at(now)));
    }
}

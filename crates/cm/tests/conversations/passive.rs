//! The side that is connected to.

use cm::{EventKind, Kind, Parameters, Phase, Request, Unreachable};
use wire::cm::{
    AlternatePathStatus, AnsweredMessage, CommunicationId, LoadAlternatePath, Message, PortSpace,
    PrivateData, ReceiptAcknowledge, RefusedMessage, Reject, RejectReason, Service, ServiceId,
};
use wire::{Gid, Psn, Qpn};

use crate::talk::{
    OUR_QPN, PEER, PEER_GUID, PEER_ID, PEER_QPN, PORT, REPLY_INTERVAL, TIMEWAIT, Talk, US,
    as_receipt, as_reject, as_reply, at, ready_for, request, timeout,
};

#[test]
fn a_connection_is_made() {
    let mut talk = Talk::new();
    let listener = talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let event = talk.manager.poll_event().expect("a request");
    let EventKind::ConnectRequest {
        listener: of,
        request: Request::Connection(offer),
    } = event.kind
    else {
        panic!("{event:?}");
    };
    assert_eq!(of, listener);
    assert_eq!(offer.remote_qpn, PEER_QPN);
    assert_eq!((offer.responder_resources, offer.initiator_depth), (2, 3));
    assert_eq!((offer.retry_count, offer.rnr_retry_count), (6, 5));
    assert_eq!(offer.private_data.len(), 56);
    assert!(offer.private_data.starts_with(b"hello"));
    let id = event.id;
    assert_eq!(talk.manager.local_address(id), Some((US, PORT).into()));
    assert_eq!(talk.manager.peer_address(id), Some((PEER, 0x8765).into()));
    talk.hears_nothing(1000);
    let parameters = Parameters {
        private_data: b"welcome",
        ..Parameters::new(OUR_QPN)
    };
    let accepted = talk.manager.accept(at(1000), id, &parameters);
    accepted.expect("a request");
    let reply = as_reply(talk.hears_one(1000));
    assert_eq!(reply.remote_id, PEER_ID);
    assert_eq!(reply.local_qpn, OUR_QPN);
    assert_eq!(reply.target_ack_delay.code(), 15);
    assert!(reply.private_data.bytes().starts_with(b"welcome\0"));
    talk.says(1010, ready_for(&reply));
    assert_eq!(talk.learns(), [EventKind::Established]);
    talk.hears_nothing(1_000_000);
}

#[test]
fn the_queue_pair_gets_what_both_sides_have_said() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    let receive = talk.manager.receive_attributes(id).expect("a request");
    assert_eq!(receive.remote_qpn, PEER_QPN);
    assert_eq!(receive.path.flow_label, 0x4_5678);
    assert_eq!(receive.path.traffic_class, 0x20);
    assert_eq!(receive.path.local_gid, Gid::from(US));
    assert_eq!(receive.path.remote_gid, Gid::from(PEER));
    let resources = receive.reliable.map(|r| r.responder_resources);
    assert_eq!(resources, Some(2), "what the peer wants outstanding");
    let send = talk.manager.send_attributes(id).expect("a request");
    assert_eq!(send.send_psn, Psn::new(0x1234));
    let reliable = send.reliable.expect("a reliable connection");
    assert_eq!((reliable.retry_count, reliable.rnr_retry_count), (6, 5));
    assert_eq!(reliable.initiator_depth, 3);
    assert_eq!(reliable.ack_timeout.code(), 19);
    let parameters = Parameters {
        responder_resources: 0,
        initiator_depth: 1,
        ..Parameters::new(OUR_QPN)
    };
    talk.manager.accept(at(0), id, &parameters).expect("asked");
    let reply = as_reply(talk.hears_one(0));
    assert_eq!(reply.starting_psn, receive.receive_psn);
    let init = talk.manager.init_attributes(id).expect("a conversation");
    assert_eq!(init.access, cm::Access::REMOTE_WRITE, "nothing to serve");
}

#[test]
fn a_lost_reply_is_repeated_until_the_peer_counts_as_dead() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepting();
    for repetition in 1..=15 {
        talk.hears_nothing(repetition * REPLY_INTERVAL - 1);
        assert_eq!(as_reply(talk.hears_one(repetition * REPLY_INTERVAL)), reply);
    }
    talk.hears_nothing(16 * REPLY_INTERVAL);
    let event = talk.learns_one();
    assert_eq!(event, EventKind::Unreachable(Unreachable::TimedOut));
    assert_eq!(talk.manager.phase(id), None);
}

#[test]
fn the_peer_says_how_often_to_repeat() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.max_cm_retries = 1;
    request.local_response_timeout = timeout(10);
    talk.says(0, request);
    let id = talk.asked();
    let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    assert_eq!(talk.hears(4).len(), 2);
    talk.hears_nothing(8);
    assert_eq!(talk.learns().len(), 1);
}

#[test]
fn a_repeated_request_is_put_off_while_the_application_thinks() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    talk.hears_nothing(6143);
    talk.says(6144, request());
    let receipt = as_receipt(talk.hears_one(6144));
    assert_eq!(receipt.message, AnsweredMessage::Request);
    assert_eq!(receipt.remote_id, PEER_ID);
    assert_eq!(receipt.service_timeout.code(), 24);
    assert_eq!(talk.learns().len(), 1, "the application is asked once");
}

#[test]
fn a_repeated_request_gets_the_reply_again() {
    let mut talk = Talk::new();
    let (_, reply) = talk.accepting();
    talk.says(100, request());
    assert_eq!(as_reply(talk.hears_one(100)), reply);
    talk.learns_nothing();
}

#[test]
fn a_repeated_request_gets_the_refusal_again() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    let reason = RejectReason::Consumer;
    let rejected = talk.manager.reject(at(0), id, reason, b"no thanks");
    rejected.expect("a request");
    let refusal = as_reject(talk.hears_one(0));
    assert_eq!(refusal.reason, RejectReason::Consumer);
    assert_eq!(refusal.message, RefusedMessage::Request);
    assert_eq!(refusal.remote_id, PEER_ID);
    talk.says(6144, request());
    assert_eq!(as_reject(talk.hears_one(6144)), refusal);
    talk.learns_nothing();
    talk.manager.destroy(at(6144), id).expect("an id");
    talk.says(1_088_001, request());
    talk.hears_nothing(1_088_001);
    assert_eq!(talk.learns().len(), 1, "after a while it is a new request");
}

#[test]
fn a_repeated_rtu_is_harmless() {
    let mut talk = Talk::new();
    let (_, reply) = talk.accepted();
    talk.says(10, ready_for(&reply));
    talk.learns_nothing();
    talk.hears_nothing(10);
    assert_eq!(talk.manager.counters().duplicates.of(0x14), 1);
}

#[test]
fn data_before_the_rtu_establishes() {
    let mut talk = Talk::new();
    let (_, reply) = talk.accepting();
    assert!(!talk.manager.notify_established(PEER_QPN));
    assert!(talk.manager.notify_established(OUR_QPN));
    assert_eq!(talk.learns(), [EventKind::Established]);
    assert!(!talk.manager.notify_established(OUR_QPN), "no news");
    talk.says(10, ready_for(&reply));
    talk.learns_nothing();
    talk.hears_nothing(100_000);
}

#[test]
fn a_busy_peer_gets_the_time_it_asks_for() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepting();
    let receipt = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: AnsweredMessage::Reply,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    talk.says(100, receipt);
    assert_eq!(talk.manager.phase(id), Some(Phase::ReplyDelayed));
    talk.hears_nothing(100 + (1 << 16) + TIMEWAIT - 1);
    talk.says(60_000, ready_for(&reply));
    assert_eq!(talk.learns(), [EventKind::Established]);
}

#[test]
fn nobody_listens() {
    let mut talk = Talk::new();
    talk.says(0, request());
    let refusal = as_reject(talk.hears_one(0));
    assert_eq!(refusal.reason, RejectReason::InvalidServiceId);
    assert_eq!(refusal.local_id, CommunicationId::default());
    assert_eq!(refusal.remote_id, PEER_ID);
    assert_eq!(talk.manager.counters().no_listener, 1);
    assert_eq!(talk.manager.load(), cm::Load::default());
}

#[test]
fn a_connection_of_the_wrong_kind_is_refused() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.service = Service::UnreliableConnection;
    talk.says(0, request);
    let refusal = as_reject(talk.hears_one(0));
    assert_eq!(refusal.reason, RejectReason::Consumer);
    talk.learns_nothing();
}

#[test]
fn unreliable_connections_need_less() {
    let mut talk = Talk::new();
    let manager = &mut talk.manager;
    let id = manager
        .create(PortSpace::Infiniband, Kind::UnreliableConnection)
        .expect("an id");
    manager.bind(id, (US, PORT).into()).expect("a free port");
    manager.listen(id, 0).expect("a bound id");
    let mut request = request();
    request.service_id = ServiceId::of_port(PortSpace::Infiniband, PORT);
    request.service = Service::UnreliableConnection;
    talk.says(0, request);
    let guest = talk.asked();
    let receive = talk.manager.receive_attributes(guest).expect("a request");
    assert_eq!(receive.reliable, None);
    let send = talk.manager.send_attributes(guest).expect("a request");
    assert_eq!(send.reliable, None);
}

#[test]
fn an_xrc_target_is_named_in_a_field_of_its_own() {
    let mut talk = Talk::new();
    let manager = &mut talk.manager;
    let id = manager
        .create(PortSpace::Infiniband, Kind::ExtendedConnection)
        .expect("an id");
    manager.bind(id, (US, PORT).into()).expect("a free port");
    manager.listen(id, 0).expect("a bound id");
    let mut request = request();
    request.service_id = ServiceId::of_port(PortSpace::Infiniband, PORT);
    request.service = Service::Extended;
    request.extended_transport = 1;
    talk.says(0, request);
    let guest = talk.asked();
    let receive = talk.manager.receive_attributes(guest).expect("a request");
    assert!(receive.reliable.is_some());
    let accepted = talk.manager.accept(at(0), guest, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    let reply = as_reply(talk.hears_one(0));
    assert_eq!(
        (reply.local_qpn, reply.local_eecn),
        (Qpn::default(), OUR_QPN)
    );
    assert_eq!((reply.responder_resources, reply.initiator_depth), (1, 0));
    assert!(reply.shared_receive_queue);
}

#[test]
fn a_request_that_contradicts_its_packet_is_refused() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let victim = Gid::from("10.0.0.99".parse::<std::net::IpAddr>().expect("an address"));
    let mut request = request();
    request.primary.local_gid = victim;
    talk.says(0, request);
    let refusal = as_reject(talk.hears_one(0));
    assert_eq!(refusal.reason, RejectReason::PrimaryGidRejected);
    talk.learns_nothing();
}

#[test]
fn a_request_without_an_mtu_is_refused() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.path_mtu = None;
    talk.says(0, request);
    let refusal = as_reject(talk.hears_one(0));
    assert_eq!(refusal.reason, RejectReason::InvalidPathMtu);
}

#[test]
fn a_request_without_addresses_is_dropped() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.private_data = PrivateData::from([0x77; 92]);
    talk.says(0, request);
    talk.hears_nothing(0);
    talk.learns_nothing();
    assert_eq!(talk.manager.counters().malformed, 1);
}

#[test]
fn a_full_backlog_drops_in_silence_until_there_is_room() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 1);
    let second = {
        let mut second = request();
        second.local_id = CommunicationId::new(0x1_0000);
        second.local_qpn = Qpn::new(0x33);
        second
    };
    talk.says(0, request());
    talk.says(1, second);
    talk.hears_nothing(1);
    assert_eq!(talk.manager.counters().backlog_full, 1);
    let id = talk.asked();
    talk.learns_nothing();
    talk.manager.request_taken(id).expect("an id");
    talk.says(6144, second);
    talk.asked();
}

#[test]
fn a_connected_queue_pair_cannot_connect_again() {
    let mut talk = Talk::new();
    let (old, _) = talk.accepted();
    let mut again = request();
    again.local_id = CommunicationId::new(0x7777);
    talk.says(100, again);
    let [refusal, part] = talk.hears(100)[..] else {
        panic!("a refusal, and a good-bye to the dead connection");
    };
    let refusal = as_reject(refusal);
    assert_eq!(refusal.reason, RejectReason::StaleConnection);
    assert_eq!(refusal.remote_id, again.local_id);
    assert_eq!(part.name(), "DREQ");
    assert_eq!(talk.manager.phase(old), Some(Phase::DisconnectSent));
    // A peer that has forgotten the old connection agrees.
    talk.says(
        101,
        crate::talk::parted(PEER_ID, crate::talk::as_part(part).local_id),
    );
    let ended = EventKind::Disconnected { timed_out: false };
    assert_eq!(talk.learns(), [ended]);
    again.local_id = CommunicationId::new(0x7778);
    talk.says(200, again);
    talk.asked();
}

/// A stranger that guesses the queue pair number of a peer asks for anything.
#[test]
fn a_request_for_an_unserved_service_ends_no_connection() {
    let mut talk = Talk::new();
    let (id, _) = talk.accepted();
    let mut forged = request();
    forged.local_id = CommunicationId::new(0x7777);
    forged.service_id = ServiceId::of_port(PortSpace::Tcp, 9);
    talk.says(100, forged);
    let refusal = as_reject(talk.hears_one(100));
    assert_eq!(refusal.reason, RejectReason::InvalidServiceId);
    assert_eq!(talk.manager.phase(id), Some(Phase::Established));
    talk.learns_nothing();
}

#[test]
fn a_late_copy_of_a_stale_request_is_stale_too() {
    let mut talk = Talk::new();
    talk.accepted();
    let mut again = request();
    again.local_id = CommunicationId::new(0x7777);
    talk.says(100, again);
    let refusal = as_reject(talk.hears(100)[0]);
    talk.says(101, again);
    assert_eq!(as_reject(talk.hears_one(101)), refusal);
    talk.learns_nothing();
}

#[test]
fn a_restarted_client_gets_in_although_nobody_answers_the_good_bye() {
    let mut talk = Talk::new();
    talk.accepted();
    let mut again = request();
    again.local_id = CommunicationId::new(0x7777);
    talk.says(100, again);
    assert_eq!(talk.hears(100).len(), 2);
    again.local_id = CommunicationId::new(0x7778);
    talk.says(200, again);
    talk.hears_nothing(200);
    talk.asked();
}

#[test]
fn a_restarted_client_ends_its_own_request_that_is_not_confirmed() {
    for accept in [false, true] {
        let mut talk = Talk::new();
        talk.listening(PortSpace::Tcp, 0);
        talk.says(0, request());
        let id = talk.asked();
        if accept {
            let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
            accepted.expect("a request");
            talk.hears_one(0);
        }
        let mut again = request();
        again.local_id = CommunicationId::new(0x7777);
        talk.says(100, again);
        let refusal = as_reject(talk.hears_one(100));
        assert_eq!(refusal.reason, RejectReason::StaleConnection);
        assert_eq!(talk.learns_one().status(), 10);
        assert_eq!(talk.manager.load().half_open, 0);
        again.local_id = CommunicationId::new(0x7778);
        talk.says(200, again);
        talk.asked();
        talk.hears_nothing(200);
    }
}

#[test]
fn a_request_from_another_queue_pair_does_not_end_a_connection() {
    let mut talk = Talk::new();
    let (id, _) = talk.accepted();
    let mut spoofed = request();
    spoofed.local_id = CommunicationId::new(0x7777);
    spoofed.local_qpn = Qpn::new(PEER_QPN.value() + 1);
    talk.says(10, spoofed);
    talk.hears_nothing(10);
    talk.asked();
    assert_eq!(talk.manager.phase(id), Some(Phase::Established));
    // The name of the connection, but another queue pair: that is a repeated request.
    spoofed.local_id = PEER_ID;
    talk.says(20, spoofed);
    talk.hears_nothing(20);
    talk.learns_nothing();
    assert_eq!(talk.manager.phase(id), Some(Phase::Established));
}

#[test]
fn another_host_with_the_same_guid_and_queue_pair_is_another_peer() {
    let mut talk = Talk::new();
    talk.accepted();
    let other = "10.0.0.3".parse().expect("an address");
    let mut request = request();
    request.primary.local_gid = Gid::from(other);
    let header = wire::cm::AddressHeader {
        source_port: 1,
        source: other,
        destination: US,
    };
    request.private_data = PrivateData::new(&header.emit()).expect("room");
    talk.says_from(other, 10, request);
    talk.hears_nothing(10);
    talk.asked();
    assert_eq!(talk.manager.counters().stale, 0);
}

#[test]
fn a_peer_that_gives_up_names_its_device() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    let given_up = Reject {
        local_id: PEER_ID,
        message: RefusedMessage::None,
        reason: RejectReason::Timeout,
        information_length: 8,
        information: PrivateData::new(&PEER_GUID.to_be_bytes()).expect("room"),
        ..Reject::default()
    };
    talk.says(100, given_up);
    assert_eq!(talk.learns_one().status(), 4);
    assert_eq!(talk.manager.phase(id), None);
    let late = talk.manager.accept(at(200), id, &Parameters::new(OUR_QPN));
    late.expect_err("nobody waits any more");
    talk.says(300, given_up);
    talk.learns_nothing();
}

#[test]
fn a_destroyed_request_is_refused() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    talk.manager.destroy(at(10), id).expect("an id");
    let refusal = as_reject(talk.hears_one(10));
    assert_eq!(refusal.reason, RejectReason::Consumer);
    assert_eq!(refusal.message, RefusedMessage::Request);
}

#[test]
fn a_destroyed_acceptor_takes_its_word_back() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepting();
    talk.manager.destroy(at(10), id).expect("an id");
    let refusal = as_reject(talk.hears_one(10));
    assert_eq!(refusal.reason, RejectReason::Consumer);
    assert_eq!(refusal.message, RefusedMessage::None);
    assert_eq!(refusal.local_id, reply.local_id);
    assert!(talk.manager.is_lingering(OUR_QPN));
    talk.says(20, request());
    let stale = as_reject(talk.hears_one(20));
    assert_eq!(stale.reason, RejectReason::StaleConnection);
    talk.hears_nothing(10 + TIMEWAIT);
    assert!(!talk.manager.is_lingering(OUR_QPN));
}

#[test]
fn a_destroyed_listener_refuses_those_who_wait() {
    let mut talk = Talk::new();
    let listener = talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    talk.manager.destroy(at(10), listener).expect("an id");
    assert_eq!(as_reject(talk.hears_one(10)).reason, RejectReason::Consumer);
    talk.learns_nothing();
    talk.hears_nothing(1_088_010);
    assert_eq!(talk.manager.load(), cm::Load::default());
}

#[test]
fn alternate_paths_are_not_supported() {
    let mut talk = Talk::new();
    let (_, reply) = talk.accepted();
    let mut load = LoadAlternatePath {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        ..LoadAlternatePath::default()
    };
    talk.says(10, load);
    let status = |message| match message {
        Message::AlternatePathResponse(response) => response.status,
        other => panic!("{other}"),
    };
    let known = status(talk.hears_one(10));
    assert_eq!(known, AlternatePathStatus::NotSupported);
    load.remote_id = CommunicationId::new(1);
    talk.says(20, load);
    let unknown = status(talk.hears_one(20));
    assert_eq!(unknown, AlternatePathStatus::InvalidCommunicationId);
    talk.learns_nothing();
}

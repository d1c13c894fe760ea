//! The passive side of a connection.

use cm::{CallError, EventKind, ExchangeState, Parameters, Request, ServiceType, Unreachable};
use wire::cm::{
    AcknowledgedMessage, AlternatePathStatus, CommunicationId, ConnectRequest, LoadAlternatePath,
    Message, PortSpace, PrivateData, ReceiptAcknowledge, Reject, RejectReason, RejectedMessage,
    Service, ServiceId,
};
use wire::{Gid, PathMtu, Psn, Qpn};

use crate::conversation::{
    Conversation, EARLY_RETRANSMISSIONS, OUR_QPN, PEER, PEER_GUID, PEER_ID, PEER_QPN, PORT,
    REPLY_INTERVAL, TIMEWAIT, US, as_receipt, as_reject, as_reply, at, ready_for, rejection,
    request, timeout,
};

// IBA 12.9
#[test]
fn passive_side_accepts() {
    let mut conversation = Conversation::new();
    let listener = conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let event = conversation.manager.poll_event().expect("a request");
    let EventKind::ConnectRequest {
        listener: of,
        request: Request::Connection(peer_parameters),
    } = event.kind
    else {
        panic!("{event:?}");
    };
    assert_eq!(of, listener);
    assert_eq!(peer_parameters.remote_qpn, PEER_QPN);
    assert_eq!(
        (
            peer_parameters.responder_resources,
            peer_parameters.initiator_depth
        ),
        (2, 3)
    );
    assert_eq!(
        (peer_parameters.retry_count, peer_parameters.rnr_retry_count),
        (6, 5)
    );
    assert_eq!(peer_parameters.private_data.len(), 56);
    assert!(peer_parameters.private_data.starts_with(b"hello"));
    let id = event.id;
    assert_eq!(
        conversation.manager.local_address(id),
        Some((US, PORT).into())
    );
    assert_eq!(
        conversation.manager.peer_address(id),
        Some((PEER, 0x8765).into())
    );
    conversation.peer_receives_nothing(1000);
    let parameters = Parameters {
        private_data: b"welcome",
        ..Parameters::new(OUR_QPN)
    };
    let accepted = conversation.manager.accept(at(1000), id, &parameters);
    accepted.expect("a request");
    let reply = as_reply(conversation.peer_receives_one(1000));
    assert_eq!(reply.remote_id, PEER_ID);
    assert_eq!(reply.local_qpn, OUR_QPN);
    assert_eq!(reply.target_ack_delay.code(), 15);
    assert!(reply.private_data.bytes().starts_with(b"welcome\0"));
    conversation.peer_sends(1010, ready_for(&reply));
    assert_eq!(conversation.events(), [EventKind::Established]);
    conversation.peer_receives_nothing(1_000_000);
}

#[test]
fn queue_pair_attributes_combine_request_and_reply() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    let receive = conversation
        .manager
        .receive_attributes(id)
        .expect("a request");
    assert_eq!(receive.remote_qpn, PEER_QPN);
    assert_eq!(receive.path.flow_label, 0x4_5678);
    assert_eq!(receive.path.traffic_class, 0x20);
    assert_eq!(receive.path.local_gid, Gid::from(US));
    assert_eq!(receive.path.remote_gid, Gid::from(PEER));
    let resources = receive.reliable.map(|r| r.responder_resources);
    assert_eq!(resources, Some(2), "what the peer wants outstanding");
    let send = conversation.manager.send_attributes(id).expect("a request");
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
    conversation
        .manager
        .accept(at(0), id, &parameters)
        .expect("asked");
    let reply = as_reply(conversation.peer_receives_one(0));
    assert_eq!(reply.starting_psn, receive.receive_psn);
    let init = conversation
        .manager
        .init_attributes(id)
        .expect("a conversation");
    assert_eq!(init.access, cm::Access::REMOTE_WRITE, "nothing to serve");
}

#[test]
fn unanswered_reply_is_retransmitted_then_unreachable() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepting();
    for early in EARLY_RETRANSMISSIONS {
        conversation.peer_receives_nothing(early - 1);
        assert_eq!(as_reply(conversation.peer_receives_one(early)), reply);
    }
    for retransmission in 1..=15 {
        conversation.peer_receives_nothing(retransmission * REPLY_INTERVAL - 1);
        assert_eq!(
            as_reply(conversation.peer_receives_one(retransmission * REPLY_INTERVAL)),
            reply
        );
    }
    conversation.peer_receives_nothing(16 * REPLY_INTERVAL);
    let event = conversation.one_event();
    assert_eq!(event, EventKind::Unreachable(Unreachable::TimedOut));
    assert!(conversation.manager.is_child(id));
    assert_eq!(conversation.manager.phase(id), None);
}

#[test]
fn request_sets_timeout_and_retries_of_the_reply() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.max_cm_retries = 1;
    request.local_response_timeout = timeout(10);
    conversation.peer_sends(0, request);
    let id = conversation.child_id();
    let accepted = conversation
        .manager
        .accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    assert_eq!(conversation.peer_receives(4).len(), 2);
    conversation.peer_receives_nothing(8);
    assert_eq!(conversation.events().len(), 1);
}

#[test]
fn duplicate_request_is_answered_with_mra_before_accept() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    conversation.peer_receives_nothing(6143);
    conversation.peer_sends(6144, request());
    let receipt = as_receipt(conversation.peer_receives_one(6144));
    assert_eq!(receipt.message, AcknowledgedMessage::Request);
    assert_eq!(receipt.remote_id, PEER_ID);
    assert_eq!(receipt.service_timeout.code(), 24);
    assert_eq!(
        conversation.events().len(),
        1,
        "the request is delivered once"
    );
}

#[test]
fn duplicate_request_is_answered_with_the_same_reply() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.accepting();
    conversation.peer_sends(100, request());
    assert_eq!(as_reply(conversation.peer_receives_one(100)), reply);
    conversation.no_events();
}

#[test]
fn duplicate_request_is_answered_with_the_same_reject() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    let reason = RejectReason::Consumer;
    let rejected = conversation.manager.reject(at(0), id, reason, b"no thanks");
    rejected.expect("a request");
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::Consumer);
    assert_eq!(reject.message, RejectedMessage::Request);
    assert_eq!(reject.remote_id, PEER_ID);
    conversation.peer_sends(6144, request());
    assert_eq!(as_reject(conversation.peer_receives_one(6144)), reject);
    conversation.no_events();
    conversation.manager.destroy(at(6144), id).expect("an id");
    conversation.peer_sends(1_088_001, request());
    conversation.peer_receives_nothing(1_088_001);
    assert_eq!(
        conversation.events().len(),
        1,
        "after the response expired it is a new request"
    );
}

#[test]
fn duplicate_rtu_is_ignored() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.accepted();
    conversation.peer_sends(10, ready_for(&reply));
    conversation.no_events();
    conversation.peer_receives_nothing(10);
    assert_eq!(conversation.manager.counters().duplicates.of(0x14), 1);
}

#[test]
fn packet_before_the_rtu_establishes_the_connection() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.accepting();
    assert!(!conversation.manager.notify_established(PEER_QPN));
    assert!(conversation.manager.notify_established(OUR_QPN));
    assert_eq!(conversation.events(), [EventKind::Established]);
    assert!(
        !conversation.manager.notify_established(OUR_QPN),
        "already established"
    );
    conversation.peer_sends(10, ready_for(&reply));
    conversation.no_events();
    conversation.peer_receives_nothing(100_000);
}

#[test]
fn accepted_request_can_be_rejected_until_the_peer_is_ready() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepting();
    let reason = RejectReason::Consumer;
    let rejected = conversation.manager.reject(at(10), id, reason, b"no");
    rejected.expect("the peer is not ready");
    let reject = as_reject(conversation.peer_receives_one(10));
    assert_eq!((reject.reason, reject.remote_id), (reason, PEER_ID));
    assert!(reject.private_data.bytes().starts_with(b"no"));
    conversation.peer_sends(20, ready_for(&reply));
    conversation.no_events();
    conversation.peer_receives_nothing(1_000_000);
    let again = conversation
        .manager
        .reject(at(1_000_000), id, reason, b"no");
    assert!(again.is_err(), "it has ended");
}

#[test]
fn program_can_report_the_first_packet_of_an_accepted_id_only() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    let early = conversation.manager.notify(id);
    assert_eq!(early, Err(CallError::WrongPhase));
    let accepted = conversation
        .manager
        .accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    assert_eq!(conversation.manager.notify(id), Ok(true));
    assert_eq!(conversation.events(), [EventKind::Established]);
    let again = conversation.manager.notify(id);
    assert_eq!(again, Ok(false), "already established");
}

#[test]
fn mra_delays_the_retransmission_of_the_reply() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepting();
    let receipt = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: AcknowledgedMessage::Reply,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(100, receipt);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::ReplyDelayed)
    );
    conversation.peer_receives_nothing(100 + (1 << 16) + TIMEWAIT - 1);
    conversation.peer_sends(60_000, ready_for(&reply));
    assert_eq!(conversation.events(), [EventKind::Established]);
}

#[test]
fn request_without_a_listener_is_rejected() {
    let mut conversation = Conversation::new();
    conversation.peer_sends(0, request());
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::InvalidServiceId);
    assert_eq!(reject.local_id, CommunicationId::default());
    assert_eq!(reject.remote_id, PEER_ID);
    assert_eq!(conversation.manager.counters().no_listener, 1);
    assert_eq!(
        conversation.manager.table_sizes(),
        cm::TableSizes::default()
    );
}

#[test]
fn request_of_the_wrong_kind_is_rejected() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.service = Service::UnreliableConnection;
    conversation.peer_sends(0, request);
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::Consumer);
    conversation.no_events();
}

/// Listens in the port space of InfiniBand. Returns a request for the listener.
fn listens_in_infiniband_space(
    conversation: &mut Conversation,
    kind: ServiceType,
) -> ConnectRequest {
    let manager = &mut conversation.manager;
    let id = manager
        .create_id(PortSpace::Infiniband, kind)
        .expect("an id");
    manager.bind(id, (US, PORT).into()).expect("a free port");
    manager.listen(id, 0).expect("a bound id");
    let mut request = request();
    request.service_id = ServiceId::of_port(PortSpace::Infiniband, PORT);
    request
}

#[test]
fn unreliable_connection_has_no_reliable_attributes() {
    let mut conversation = Conversation::new();
    let mut request =
        listens_in_infiniband_space(&mut conversation, ServiceType::UnreliableConnection);
    request.service = Service::UnreliableConnection;
    conversation.peer_sends(0, request);
    let child = conversation.child_id();
    let receive = conversation
        .manager
        .receive_attributes(child)
        .expect("a request");
    assert_eq!(receive.reliable, None);
    let send = conversation
        .manager
        .send_attributes(child)
        .expect("a request");
    assert_eq!(send.reliable, None);
}

#[test]
fn xrc_target_number_is_in_the_eecn_field() {
    let mut conversation = Conversation::new();
    let mut request =
        listens_in_infiniband_space(&mut conversation, ServiceType::ExtendedConnection);
    request.service = Service::Extended;
    request.extended_transport = 1;
    conversation.peer_sends(0, request);
    let child = conversation.child_id();
    let receive = conversation
        .manager
        .receive_attributes(child)
        .expect("a request");
    assert!(receive.reliable.is_some());
    let accepted = conversation
        .manager
        .accept(at(0), child, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    let reply = as_reply(conversation.peer_receives_one(0));
    assert_eq!(
        (reply.local_qpn, reply.local_eecn),
        (Qpn::default(), OUR_QPN)
    );
    assert_eq!((reply.responder_resources, reply.initiator_depth), (1, 0));
    assert!(reply.shared_receive_queue);
}

#[test]
fn request_whose_gid_differs_from_its_packet_is_rejected() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let victim = Gid::from("10.0.0.99".parse::<std::net::IpAddr>().expect("an address"));
    let mut request = request();
    request.primary.local_gid = victim;
    conversation.peer_sends(0, request);
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::PrimaryGidRejected);
    conversation.no_events();
}

#[test]
fn request_without_an_mtu_is_rejected() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.path_mtu = None;
    conversation.peer_sends(0, request);
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::InvalidPathMtu);
}

#[test]
fn request_with_a_larger_mtu_than_the_ports_is_rejected_and_told_the_ports() {
    let mut conversation = Conversation::with(|config| config.max_mtu = PathMtu::Mtu1024);
    conversation.listening(PortSpace::Tcp, 1);
    let mut large = request();
    large.path_mtu = Some(PathMtu::Mtu4096);
    conversation.peer_sends(0, large);
    let reject = as_reject(conversation.peer_receives_one(0));
    assert_eq!(reject.reason, RejectReason::InvalidPathMtu);
    assert_eq!(reject.acceptable_mtu(), Some(PathMtu::Mtu1024));
    conversation.no_events();
    let limit = conversation.manager.poll_mtu_limit();
    let limit = limit.expect("something to explain");
    assert!(!limit.is_ours);
    assert_eq!(
        (limit.requested, limit.allowed),
        (PathMtu::Mtu4096, PathMtu::Mtu1024)
    );
    large.path_mtu = Some(PathMtu::Mtu1024);
    conversation.peer_sends(1, large);
    conversation.child_id();
    assert_eq!(conversation.manager.poll_mtu_limit(), None);
}

#[test]
fn request_without_an_address_header_is_dropped() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    let mut request = request();
    request.private_data = PrivateData::from([0x77; 92]);
    conversation.peer_sends(0, request);
    conversation.peer_receives_nothing(0);
    conversation.no_events();
    assert_eq!(conversation.manager.counters().malformed, 1);
}

#[test]
fn full_backlog_drops_requests_without_a_response() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 1);
    let second = {
        let mut second = request();
        second.local_id = CommunicationId::new(0x1_0000);
        second.local_qpn = Qpn::new(0x33);
        second
    };
    conversation.peer_sends(0, request());
    conversation.peer_sends(1, second);
    conversation.peer_receives_nothing(1);
    assert_eq!(conversation.manager.counters().backlog_full, 1);
    let id = conversation.child_id();
    conversation.no_events();
    conversation.manager.request_taken(id).expect("an id");
    conversation.peer_sends(6144, second);
    conversation.child_id();
}

// IBA 12.9.8.3.1
#[test]
fn request_of_a_connected_queue_pair_is_rejected_as_stale() {
    let mut conversation = Conversation::new();
    let (old, _) = conversation.accepted();
    let mut again = request();
    again.local_id = CommunicationId::new(0x7777);
    conversation.peer_sends(100, again);
    let [reject, dreq] = conversation.peer_receives(100)[..] else {
        panic!("a REJ, and a DREQ for the old connection");
    };
    let reject = as_reject(reject);
    assert_eq!(reject.reason, RejectReason::StaleConnection);
    assert_eq!(reject.remote_id, again.local_id);
    assert_eq!(dreq.name(), "DREQ");
    assert_eq!(
        conversation.manager.phase(old),
        Some(ExchangeState::DisconnectSent)
    );
    // A peer that does not know the old connection answers with a DREP.
    conversation.peer_sends(
        101,
        crate::conversation::drep(PEER_ID, crate::conversation::as_dreq(dreq).local_id),
    );
    let ended = EventKind::Disconnected { timed_out: false };
    assert_eq!(conversation.events(), [ended]);
    again.local_id = CommunicationId::new(0x7778);
    conversation.peer_sends(200, again);
    conversation.child_id();
}

/// A third party that guesses a peer's queue pair number must not end its connection.
#[test]
fn request_for_an_unserved_service_ends_no_connection() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.accepted();
    let mut forged = request();
    forged.local_id = CommunicationId::new(0x7777);
    forged.service_id = ServiceId::of_port(PortSpace::Tcp, 9);
    conversation.peer_sends(100, forged);
    let reject = as_reject(conversation.peer_receives_one(100));
    assert_eq!(reject.reason, RejectReason::InvalidServiceId);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::Established)
    );
    conversation.no_events();
}

#[test]
fn late_copy_of_a_stale_request_is_rejected_as_stale() {
    let mut conversation = Conversation::new();
    conversation.accepted();
    let mut again = request();
    again.local_id = CommunicationId::new(0x7777);
    conversation.peer_sends(100, again);
    let reject = as_reject(conversation.peer_receives(100)[0]);
    conversation.peer_sends(101, again);
    assert_eq!(as_reject(conversation.peer_receives_one(101)), reject);
    conversation.no_events();
}

#[test]
fn restarted_client_connects_without_answering_the_dreq() {
    let mut conversation = Conversation::new();
    conversation.accepted();
    let mut again = request();
    again.local_id = CommunicationId::new(0x7777);
    conversation.peer_sends(100, again);
    assert_eq!(conversation.peer_receives(100).len(), 2);
    again.local_id = CommunicationId::new(0x7778);
    conversation.peer_sends(200, again);
    conversation.peer_receives_nothing(200);
    conversation.child_id();
}

#[test]
fn restarted_client_ends_its_own_half_open_request() {
    for accept in [false, true] {
        let mut conversation = Conversation::new();
        conversation.listening(PortSpace::Tcp, 0);
        conversation.peer_sends(0, request());
        let id = conversation.child_id();
        if accept {
            let accepted = conversation
                .manager
                .accept(at(0), id, &Parameters::new(OUR_QPN));
            accepted.expect("a request");
            conversation.peer_receives_one(0);
        }
        let mut again = request();
        again.local_id = CommunicationId::new(0x7777);
        conversation.peer_sends(100, again);
        let reject = as_reject(conversation.peer_receives_one(100));
        assert_eq!(reject.reason, RejectReason::StaleConnection);
        let stale = Some(RejectReason::StaleConnection);
        assert_eq!(rejection(&conversation.one_event()), stale);
        assert_eq!(conversation.manager.table_sizes().half_open, 0);
        again.local_id = CommunicationId::new(0x7778);
        conversation.peer_sends(200, again);
        conversation.child_id();
        conversation.peer_receives_nothing(200);
    }
}

#[test]
fn request_from_another_queue_pair_ends_no_connection() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.accepted();
    let mut spoofed = request();
    spoofed.local_id = CommunicationId::new(0x7777);
    spoofed.local_qpn = Qpn::new(PEER_QPN.value() + 1);
    conversation.peer_sends(10, spoofed);
    conversation.peer_receives_nothing(10);
    conversation.child_id();
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::Established)
    );
    // The same communication id with another queue pair counts as a duplicate request.
    spoofed.local_id = PEER_ID;
    conversation.peer_sends(20, spoofed);
    conversation.peer_receives_nothing(20);
    conversation.no_events();
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::Established)
    );
}

#[test]
fn same_guid_and_queue_pair_at_another_address_is_another_peer() {
    let mut conversation = Conversation::new();
    conversation.accepted();
    let other = "10.0.0.3".parse().expect("an address");
    let mut request = request();
    request.primary.local_gid = Gid::from(other);
    let header = wire::cm::AddressHeader {
        source_port: 1,
        source: other,
        destination: US,
    };
    request.private_data = PrivateData::new(&header.emit()).expect("room");
    conversation.peer_sends_from(other, 10, request);
    conversation.peer_receives_nothing(10);
    conversation.child_id();
    assert_eq!(conversation.manager.counters().stale, 0);
}

#[test]
fn reject_timeout_names_the_peers_device() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    let given_up = Reject {
        local_id: PEER_ID,
        message: RejectedMessage::None,
        reason: RejectReason::Timeout,
        information_length: 8,
        information: PrivateData::new(&PEER_GUID.to_be_bytes()).expect("room"),
        ..Reject::default()
    };
    conversation.peer_sends(100, given_up);
    let timed_out = Some(RejectReason::Timeout);
    assert_eq!(rejection(&conversation.one_event()), timed_out);
    assert_eq!(conversation.manager.phase(id), None);
    let late = conversation
        .manager
        .accept(at(200), id, &Parameters::new(OUR_QPN));
    late.expect_err("the peer timed out");
    conversation.peer_sends(300, given_up);
    conversation.no_events();
}

#[test]
fn destroying_a_request_rejects_it() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    conversation.manager.destroy(at(10), id).expect("an id");
    let reject = as_reject(conversation.peer_receives_one(10));
    assert_eq!(reject.reason, RejectReason::Consumer);
    assert_eq!(reject.message, RejectedMessage::Request);
}

#[test]
fn destroying_an_accepted_id_sends_reject() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepting();
    conversation.manager.destroy(at(10), id).expect("an id");
    let reject = as_reject(conversation.peer_receives_one(10));
    assert_eq!(reject.reason, RejectReason::Consumer);
    assert_eq!(reject.message, RejectedMessage::None);
    assert_eq!(reject.local_id, reply.local_id);
    assert!(conversation.manager.is_in_time_wait(OUR_QPN));
    conversation.peer_sends(20, request());
    let stale = as_reject(conversation.peer_receives_one(20));
    assert_eq!(stale.reason, RejectReason::StaleConnection);
    conversation.peer_receives_nothing(10 + TIMEWAIT);
    assert!(!conversation.manager.is_in_time_wait(OUR_QPN));
}

#[test]
fn destroying_a_listener_rejects_its_pending_requests() {
    let mut conversation = Conversation::new();
    let listener = conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    conversation
        .manager
        .destroy(at(10), listener)
        .expect("an id");
    assert_eq!(
        as_reject(conversation.peer_receives_one(10)).reason,
        RejectReason::Consumer
    );
    conversation.no_events();
    conversation.peer_receives_nothing(1_088_010);
    assert_eq!(
        conversation.manager.table_sizes(),
        cm::TableSizes::default()
    );
}

// IBA "APR Message Contents"
#[test]
fn alternate_path_request_is_answered_not_supported() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.accepted();
    let mut load = LoadAlternatePath {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        ..LoadAlternatePath::default()
    };
    conversation.peer_sends(10, load);
    let status = |message| match message {
        Message::AlternatePathResponse(response) => response.status,
        other => panic!("{other}"),
    };
    let known = status(conversation.peer_receives_one(10));
    assert_eq!(known, AlternatePathStatus::NotSupported);
    load.remote_id = CommunicationId::new(1);
    conversation.peer_sends(20, load);
    let unknown = status(conversation.peer_receives_one(20));
    assert_eq!(unknown, AlternatePathStatus::InvalidCommunicationId);
    conversation.no_events();
}

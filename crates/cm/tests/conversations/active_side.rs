//! The active side of a connection.

use cm::{
    CallError, EventKind, ExchangeState, Failure, Instruction, Parameters, ServiceType, State,
    Unanswered, Unreachable,
};
use wire::cm::{
    AcknowledgedMessage, CommunicationId, ConnectRequest, Message, PortSpace, ReceiptAcknowledge,
    Reject, RejectReason, RejectedMessage, Service,
};
use wire::{AckTimeout, PathMtu, Psn, Qpn};

use crate::conversation::{
    Conversation, EARLY_RETRANSMISSIONS, OUR_QPN, PEER, PEER_GUID, PEER_ID, PEER_QPN,
    REQUEST_INTERVAL, TIMEWAIT, as_reject, as_request, at, rejection, reply_to, timeout,
};

fn reject(request: &ConnectRequest, reason: RejectReason) -> Reject {
    Reject {
        remote_id: request.local_id,
        message: RejectedMessage::Request,
        reason,
        ..Reject::default()
    }
}

#[test]
fn xrc_initiator_requests_an_xrc_connection() {
    let mut conversation = Conversation::new();
    let id = conversation.resolved_for(PortSpace::Infiniband, ServiceType::ExtendedConnection);
    let parameters = Parameters {
        responder_resources: 3,
        initiator_depth: 2,
        shared_receive_queue: true,
        ..Parameters::new(OUR_QPN)
    };
    let asked = conversation.manager.connect(at(0), id, &parameters);
    asked.expect("a resolved id");
    let request = as_request(conversation.peer_receives_one(0));
    assert_eq!(
        (request.service, request.extended_transport),
        (Service::Extended, 1)
    );
    assert_eq!(
        (request.responder_resources, request.initiator_depth),
        (0, 2)
    );
    assert_eq!((request.retry_count, request.rnr_retry_count), (0, 0));
    assert!(!request.shared_receive_queue);
    let mut reply = reply_to(&request);
    (reply.local_qpn, reply.local_eecn) = (Qpn::default(), PEER_QPN);
    conversation.peer_sends(10, reply);
    let EventKind::ConnectResponse(peer_parameters) = conversation.one_event() else {
        panic!("the peer accepted");
    };
    assert_eq!(peer_parameters.remote_qpn, PEER_QPN);
    let receive = conversation
        .manager
        .receive_attributes(id)
        .expect("a response");
    assert_eq!(receive.remote_qpn, PEER_QPN);
}

// IBA 12.9
#[test]
fn active_side_connects() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    conversation.peer_sends(10, reply_to(&request));
    let EventKind::ConnectResponse(peer_parameters) = conversation.one_event() else {
        panic!("the peer accepted");
    };
    assert_eq!(peer_parameters.remote_qpn, PEER_QPN);
    assert_eq!(
        (
            peer_parameters.responder_resources,
            peer_parameters.initiator_depth
        ),
        (5, 4)
    );
    assert_eq!(peer_parameters.private_data.len(), 196);
    assert!(peer_parameters.private_data.starts_with(b"welcome"));
    conversation.peer_receives_nothing(10);
    conversation.manager.establish(id).expect("a response");
    let Message::ReadyToUse(ready) = conversation.peer_receives_one(10) else {
        panic!("an RTU is sent");
    };
    assert_eq!(ready.local_id, request.local_id);
    assert_eq!(ready.remote_id, PEER_ID);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::Established)
    );
    conversation.peer_receives_nothing(1_000_000);
    conversation.no_events();
}

#[test]
fn queue_pair_attributes_combine_request_and_reply() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let early = conversation.manager.receive_attributes(id);
    assert_eq!(early, Err(CallError::WrongPhase));
    conversation.peer_sends(10, reply_to(&request));
    let init = conversation
        .manager
        .init_attributes(id)
        .expect("a conversation");
    assert_eq!(init.access, cm::Access::all());
    let receive = conversation
        .manager
        .receive_attributes(id)
        .expect("a response");
    assert_eq!(receive.receive_psn, request.starting_psn);
    assert_eq!(receive.remote_qpn, PEER_QPN);
    assert_eq!(receive.path.flow_label, request.primary.flow_label);
    assert_eq!(receive.path.hop_limit, 64);
    assert_eq!(receive.path.remote_gid.ip(), Some(PEER));
    let reliable = receive.reliable.expect("a reliable connection");
    assert_eq!(reliable.responder_resources, 5);
    assert_eq!(reliable.min_rnr_timer.code(), 0);
    let send = conversation
        .manager
        .send_attributes(id)
        .expect("a response");
    assert_eq!(send.send_psn, Psn::new(0x4321));
    let reliable = send.reliable.expect("a reliable connection");
    assert_eq!(reliable.ack_timeout.code(), 19);
    assert_eq!((reliable.retry_count, reliable.rnr_retry_count), (7, 6));
    assert_eq!(reliable.initiator_depth, 4);
}

#[test]
fn options_change_the_request_and_the_queue_pair_attributes() {
    let mut conversation = Conversation::new();
    let id = conversation.resolved(PortSpace::Tcp);
    let timeout = AckTimeout::new(14).expect("a code");
    conversation
        .manager
        .set_ack_timeout(id, timeout)
        .expect("an id");
    conversation
        .manager
        .set_traffic_class(id, 0x68)
        .expect("an id");
    let timer = wire::RnrTimer::new(12).expect("a code");
    conversation
        .manager
        .set_min_rnr_timer(id, timer)
        .expect("an id");
    let parameters = Parameters::new(OUR_QPN);
    conversation
        .manager
        .connect(at(0), id, &parameters)
        .expect("ready");
    let sent = conversation.manager.poll_transmit().expect("a request");
    assert_eq!(sent.traffic_class, 0x68);
    let (_, message) = Message::parse(&sent.datagram).expect("a message");
    let request = as_request(message);
    assert_eq!(request.primary.traffic_class, 0x68);
    // The device's delay (15) is longer than the path, and both are of about the same size.
    assert_eq!(request.primary.local_ack_timeout.code(), 16);
    conversation.peer_sends(10, reply_to(&request));
    let send = conversation
        .manager
        .send_attributes(id)
        .expect("a response");
    assert_eq!(send.reliable.map(|r| r.ack_timeout), Some(timeout));
    let receive = conversation
        .manager
        .receive_attributes(id)
        .expect("a response");
    assert_eq!(receive.reliable.map(|r| r.min_rnr_timer), Some(timer));
    assert_eq!(receive.path.traffic_class, 0x68);
}

#[test]
fn only_the_newest_unanswered_ids_are_kept() {
    let mut conversation = Conversation::new();
    let ids: Vec<_> = (0..1030).map(|_| conversation.connecting().0).collect();
    // Nobody fetches them meanwhile.
    assert_eq!(
        conversation.peer_receives(REQUEST_INTERVAL).len(),
        ids.len()
    );
    let kept = std::iter::from_fn(|| conversation.manager.poll_unanswered());
    let kept: Vec<_> = kept.collect();
    assert_eq!(kept.len(), 1024);
    assert!(kept.iter().all(|kept| ids.contains(&kept.id)));
}

#[test]
fn unanswered_request_is_sent_sixteen_times_and_two_early_ones() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let later = (1..=15).map(|number| number * REQUEST_INTERVAL);
    for (time, retransmissions) in EARLY_RETRANSMISSIONS.into_iter().chain(later).zip(1..) {
        conversation.peer_receives_nothing(time - 1);
        assert_eq!(as_request(conversation.peer_receives_one(time)), request);
        // A driver can explain why it takes so long.
        let expected = Unanswered {
            id,
            retransmissions,
        };
        assert_eq!(conversation.manager.poll_unanswered(), Some(expected));
        assert_eq!(conversation.manager.poll_unanswered(), None);
    }
    conversation.no_events();
    conversation.peer_receives_nothing(16 * REQUEST_INTERVAL);
    let event = conversation.one_event();
    assert_eq!(event, EventKind::Unreachable(Unreachable::TimedOut));
    assert!(!conversation.manager.is_child(id));
    assert_eq!(conversation.manager.state(id), Some(State::Connect));
    assert_eq!(conversation.manager.phase(id), None);
    assert_eq!(conversation.manager.poll_timeout(), None);
    let counters = conversation.manager.counters();
    assert_eq!(counters.retransmitted.of(ConnectRequest::ATTRIBUTE), 17);
    assert_eq!(counters.retransmitted.total(), 17);
    assert_eq!(counters.sent.of(ConnectRequest::ATTRIBUTE), 18);
}

#[test]
fn request_to_a_closed_port_is_rejected_as_by_a_device_without_the_service() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.connecting();
    conversation.manager.handle_closed_port(at(1), id);
    let reason = rejection(&conversation.one_event());
    assert_eq!(reason, Some(RejectReason::InvalidServiceId));
    assert_eq!(conversation.manager.phase(id), None);
    conversation.peer_receives_nothing(REQUEST_INTERVAL);
    conversation.manager.handle_closed_port(at(2), id);
    conversation.no_events();
}

#[test]
fn two_lost_messages_delay_a_connection_by_three_seconds() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    conversation.peer_receives_one(EARLY_RETRANSMISSIONS[0]);
    conversation.peer_receives_one(EARLY_RETRANSMISSIONS[1]);
    conversation.peer_sends(3001, reply_to(&request));
    assert!(matches!(
        conversation.one_event(),
        EventKind::ConnectResponse(_)
    ));
}

#[test]
fn mra_ends_the_early_retransmissions() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    let delay = ReceiptAcknowledge {
        remote_id: request.local_id,
        message: AcknowledgedMessage::Request,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(500, delay);
    conversation.peer_receives_nothing(500 + 65_536);
}

#[test]
fn lost_reply_arrives_after_the_next_request() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    conversation.peer_receives_one(REQUEST_INTERVAL);
    conversation.peer_sends(REQUEST_INTERVAL + 1, reply_to(&request));
    assert!(matches!(
        conversation.one_event(),
        EventKind::ConnectResponse(_)
    ));
    conversation.peer_receives_nothing(10 * REQUEST_INTERVAL);
}

#[test]
fn duplicate_reply_is_answered_with_another_rtu() {
    let mut conversation = Conversation::new();
    let (_, reply) = conversation.connected();
    for millis in [5000, 9000] {
        conversation.peer_sends(millis, reply);
        assert_eq!(conversation.peer_receives_one(millis).name(), "RTU");
    }
    conversation.no_events();
    assert_eq!(conversation.manager.counters().duplicates.of(0x13), 2);
}

#[test]
fn duplicate_reply_is_answered_with_mra_before_establish() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    conversation.peer_sends(10, reply_to(&request));
    conversation.peer_sends(4106, reply_to(&request));
    let receipt = crate::conversation::as_receipt(conversation.peer_receives_one(4106));
    assert_eq!(receipt.message, AcknowledgedMessage::Reply);
    assert_eq!(receipt.service_timeout.code(), 24);
    assert_eq!(conversation.events().len(), 1);
}

#[test]
fn mra_delays_the_retransmission_of_the_request() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let receipt = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: request.local_id,
        message: AcknowledgedMessage::Request,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(100, receipt);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::RequestDelayed)
    );
    let delay = (1 << 16) + TIMEWAIT;
    conversation.peer_sends(200, receipt);
    conversation.peer_receives_nothing(100 + delay - 1);
    assert_eq!(conversation.peer_receives_one(100 + delay).name(), "REQ");
    conversation.peer_receives_nothing(100 + 2 * delay - 1);
    conversation.peer_sends(100 + 2 * delay - 1, reply_to(&request));
    assert!(matches!(
        conversation.one_event(),
        EventKind::ConnectResponse(_)
    ));
}

#[test]
fn mra_for_another_message_is_ignored() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let receipt = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: request.local_id,
        message: AcknowledgedMessage::LoadAlternatePath,
        service_timeout: timeout(31),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(100, receipt);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::RequestSent)
    );
    assert_eq!(
        conversation.peer_receives_one(REQUEST_INTERVAL).name(),
        "REQ"
    );
}

#[test]
fn reject_reports_its_reason() {
    for (reason, code) in [
        (RejectReason::Consumer, 28),
        (RejectReason::InvalidServiceId, 8),
    ] {
        let mut conversation = Conversation::new();
        let (id, request) = conversation.connecting();
        conversation.peer_sends(10, reject(&request, reason));
        let event = conversation.one_event();
        assert_eq!(rejection(&event), Some(reason));
        assert_eq!(reason.code(), code);
        let EventKind::Rejected { private_data, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(private_data.len(), 148);
        let qpn = OUR_QPN;
        assert_eq!(
            conversation.instructions(),
            [Instruction::MoveToError { id, qpn }]
        );
        conversation.peer_sends(20, reject(&request, reason));
        conversation.no_events();
        conversation.peer_receives_nothing(100_000);
    }
}

/// How long a requester waits before it sends a request again after a REJ "stale connection".
const STALE_RETRY_DELAY: u64 = 100;

// IBA 12.9.8.3.1
#[test]
fn stale_request_is_sent_again_with_another_communication_id() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    conversation.peer_sends(10, reject(&request, RejectReason::StaleConnection));
    conversation.no_events();
    conversation.peer_receives_nothing(10 + STALE_RETRY_DELAY - 1);
    let again = as_request(conversation.peer_receives_one(10 + STALE_RETRY_DELAY));
    assert_ne!(again.local_id, request.local_id);
    let same = ConnectRequest {
        local_id: request.local_id,
        ..again
    };
    assert_eq!(same, request, "nothing else changes");
    // A REJ for the first request is ignored.
    conversation.peer_sends(200, reject(&request, RejectReason::Consumer));
    conversation.no_events();
    let mut reply = reply_to(&again);
    conversation.peer_sends(200, reply);
    assert!(matches!(
        conversation.one_event(),
        EventKind::ConnectResponse(_)
    ));
    conversation.manager.establish(id).expect("a response");
    assert_eq!(conversation.peer_receives_one(200).name(), "RTU");
    reply.remote_id = request.local_id;
    conversation.peer_sends(201, reply);
    conversation.peer_receives_nothing(201);
}

#[test]
fn request_with_a_larger_mtu_than_the_peers_is_sent_again_with_the_peers() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let too_large = |request: &ConnectRequest, acceptable| {
        reject(request, RejectReason::InvalidPathMtu).with_acceptable_mtu(acceptable)
    };
    conversation.peer_sends(10, too_large(&request, PathMtu::Mtu512));
    let again = as_request(conversation.peer_receives_one(10));
    assert_ne!(again.local_id, request.local_id);
    let same = ConnectRequest {
        local_id: request.local_id,
        path_mtu: request.path_mtu,
        ..again
    };
    assert_eq!(same, request, "nothing else changes");
    assert_eq!(again.path_mtu, Some(PathMtu::Mtu512));
    conversation.no_events();
    let limit = conversation.manager.poll_mtu_limit();
    let limit = limit.expect("something to explain");
    assert!(limit.is_ours);
    assert_eq!(limit.peer, conversation.manager.peer_address(id));
    assert_eq!(Some(limit.requested), request.path_mtu);
    assert_eq!(limit.allowed, PathMtu::Mtu512);
    // The reject of a copy of the first request.
    conversation.peer_sends(20, too_large(&request, PathMtu::Mtu256));
    conversation.peer_receives_nothing(20);
    assert_eq!(conversation.manager.poll_mtu_limit(), None);
    conversation.peer_sends(30, reply_to(&again));
    let response = conversation.one_event();
    assert!(matches!(response, EventKind::ConnectResponse(_)));
    let attributes = conversation.manager.receive_attributes(id);
    assert_eq!(attributes.expect("connected").mtu, PathMtu::Mtu512);
}

#[test]
fn request_whose_mtu_is_rejected_without_a_smaller_one_fails() {
    for acceptable in [None, Some(PathMtu::Mtu1024), Some(PathMtu::Mtu4096)] {
        let mut conversation = Conversation::new();
        let (_, request) = conversation.connecting();
        let rejected = reject(&request, RejectReason::InvalidPathMtu);
        let rejected = match acceptable {
            Some(mtu) => rejected.with_acceptable_mtu(mtu),
            None => rejected,
        };
        conversation.peer_sends(10, rejected);
        let reason = Some(RejectReason::InvalidPathMtu);
        assert_eq!(rejection(&conversation.one_event()), reason);
        conversation.peer_receives_nothing(10);
    }
}

#[test]
fn stale_request_is_sent_again_after_an_mra() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let delay = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: request.local_id,
        message: AcknowledgedMessage::Request,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    conversation.peer_sends(5, delay);
    conversation.peer_sends(10, reject(&request, RejectReason::StaleConnection));
    conversation.peer_receives_one(10 + STALE_RETRY_DELAY);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::RequestSent)
    );
    conversation.peer_receives_one(10 + STALE_RETRY_DELAY + REQUEST_INTERVAL);
}

#[test]
fn request_that_is_stale_twice_enters_time_wait() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    conversation.peer_sends(0, reject(&request, RejectReason::StaleConnection));
    let again = as_request(conversation.peer_receives_one(STALE_RETRY_DELAY));
    conversation.peer_sends(110, reject(&again, RejectReason::StaleConnection));
    let stale = Some(RejectReason::StaleConnection);
    assert_eq!(rejection(&conversation.one_event()), stale);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::TimeWait)
    );
    conversation.peer_receives_nothing(110 + TIMEWAIT);
    assert_eq!(conversation.manager.phase(id), None);
    conversation.no_events();
}

#[test]
fn reply_for_a_connected_queue_pair_is_rejected_as_stale() {
    let mut conversation = Conversation::new();
    let (old, _) = conversation.connected();
    let (_, request) = conversation.connecting();
    let mut reply = reply_to(&request);
    reply.local_id = CommunicationId::new(0x9999);
    conversation.peer_sends(10, reply);
    let [reject, dreq] = conversation.peer_receives(10)[..] else {
        panic!("a REJ, and a DREQ for the old connection");
    };
    let reject = as_reject(reject);
    assert_eq!(reject.reason, RejectReason::StaleConnection);
    assert_eq!(reject.message, RejectedMessage::Reply);
    assert_eq!(reject.remote_id, reply.local_id);
    assert_eq!(dreq.name(), "DREQ");
    assert_eq!(
        conversation.manager.phase(old),
        Some(ExchangeState::DisconnectSent)
    );
    conversation.no_events();
    // The REP was rejected: a second copy of it matches nothing, and the request is sent again with
    // another communication id.
    conversation.peer_sends(11, reply);
    conversation.no_events();
    let sent = conversation.peer_receives(10 + STALE_RETRY_DELAY);
    let again = sent.into_iter().find(|it| it.name() == "REQ");
    let again = as_request(again.expect("the request is sent again"));
    assert_ne!(again.local_id, request.local_id);
}

#[test]
fn destroying_a_requester_sends_reject_timeout() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    conversation.manager.destroy(at(5000), id).expect("an id");
    let given_up = as_reject(conversation.peer_receives_one(5000));
    assert_eq!(given_up.reason, RejectReason::Timeout);
    assert_eq!(given_up.message, RejectedMessage::None);
    assert_eq!(given_up.local_id, request.local_id);
    assert_eq!(given_up.remote_id, CommunicationId::default());
    assert_eq!(given_up.information_length, 8);
    assert_eq!(given_up.information.bytes()[..8], 0x1111_u64.to_be_bytes());
    assert_eq!(
        conversation.manager.table_sizes(),
        cm::TableSizes::default()
    );
    conversation.peer_sends(6000, reply_to(&request));
    conversation.peer_receives_nothing(6000);
}

#[test]
fn destroying_an_id_rejects_its_reply() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    conversation.peer_sends(10, reply_to(&request));
    conversation.manager.destroy(at(20), id).expect("an id");
    let reject = as_reject(conversation.peer_receives_one(20));
    assert_eq!(reject.reason, RejectReason::Consumer);
    assert_eq!(reject.message, RejectedMessage::Reply);
    conversation.no_events();
    assert_eq!(
        conversation.manager.table_sizes(),
        cm::TableSizes::default()
    );
}

#[test]
fn application_can_reject_a_reply() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    conversation.peer_sends(10, reply_to(&request));
    let reason = RejectReason::Consumer;
    let rejected = conversation.manager.reject(at(20), id, reason, b"no");
    rejected.expect("a reply");
    let reject = as_reject(conversation.peer_receives_one(20));
    assert_eq!(reject.message, RejectedMessage::Reply);
    assert_eq!(reject.remote_id, PEER_ID);
    assert!(reject.private_data.bytes().starts_with(b"no\0"));
}

#[test]
fn connect_failed_sends_reject_and_reports_connect_error() {
    let mut conversation = Conversation::new();
    let (id, request) = conversation.connecting();
    let early = conversation.manager.connect_failed(id, Failure::Os(12));
    assert_eq!(early, Err(CallError::WrongPhase));
    conversation.peer_sends(10, reply_to(&request));
    conversation.events();
    let failed = conversation.manager.connect_failed(id, Failure::Os(12));
    failed.expect("a response");
    let failed = EventKind::ConnectError(Failure::Os(12));
    assert_eq!(conversation.one_event(), failed);
    assert_eq!(
        as_reject(conversation.peer_receives_one(10)).reason,
        RejectReason::Consumer
    );
}

#[test]
fn reject_after_the_reply_is_reported() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    conversation.peer_sends(10, reply_to(&request));
    conversation.events();
    conversation.peer_sends(
        20,
        Reject {
            local_id: PEER_ID,
            remote_id: request.local_id,
            message: RejectedMessage::None,
            reason: RejectReason::Consumer,
            ..Reject::default()
        },
    );
    let rejected = Some(RejectReason::Consumer);
    assert_eq!(rejection(&conversation.one_event()), rejected);
}

#[test]
fn messages_from_another_address_are_dropped() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    let other = "10.0.0.66".parse().expect("an address");
    conversation.peer_sends_from(other, 10, reply_to(&request));
    conversation.peer_sends_from(other, 10, reject(&request, RejectReason::Consumer));
    conversation.no_events();
    conversation.peer_receives_nothing(10);
    assert_eq!(conversation.manager.counters().wrong_source, 2);
}

#[test]
fn reply_with_an_unknown_communication_id_is_dropped() {
    let mut conversation = Conversation::new();
    let (_, request) = conversation.connecting();
    let mut reply = reply_to(&request);
    reply.remote_id = CommunicationId::new(request.local_id.value() ^ 1);
    conversation.peer_sends(10, reply);
    conversation.peer_receives_nothing(10);
    assert_eq!(conversation.manager.counters().unmatched, 1);
    assert_eq!(reply.local_guid, PEER_GUID);
}

#[test]
fn establish_fails_before_the_reply() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.connecting();
    assert_eq!(
        conversation.manager.establish(id),
        Err(CallError::WrongPhase)
    );
    let connect = conversation
        .manager
        .connect(at(0), id, &Parameters::new(OUR_QPN));
    assert_eq!(connect, Err(CallError::WrongState(State::Connect)));
}

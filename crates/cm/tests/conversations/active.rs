//! The side that connects.

use cm::{CallError, EventKind, Failure, Instruction, Kind, Parameters, Phase, State, Unreachable};
use wire::cm::{
    AnsweredMessage, CommunicationId, ConnectRequest, Message, PortSpace, ReceiptAcknowledge,
    RefusedMessage, Reject, RejectReason, Service,
};
use wire::{AckTimeout, Psn, Qpn};

use crate::talk::{
    OUR_QPN, PEER, PEER_GUID, PEER_ID, PEER_QPN, REQUEST_INTERVAL, TIMEWAIT, Talk, as_reject,
    as_request, at, reply_to, timeout,
};

fn refusal(request: &ConnectRequest, reason: RejectReason) -> Reject {
    Reject {
        remote_id: request.local_id,
        message: RefusedMessage::Request,
        reason,
        ..Reject::default()
    }
}

#[test]
fn an_xrc_initiator_asks_for_its_kind() {
    let mut talk = Talk::new();
    let id = talk.resolved_for(PortSpace::Infiniband, Kind::ExtendedConnection);
    let parameters = Parameters {
        responder_resources: 3,
        initiator_depth: 2,
        shared_receive_queue: true,
        ..Parameters::new(OUR_QPN)
    };
    let asked = talk.manager.connect(at(0), id, &parameters);
    asked.expect("a resolved id");
    let request = as_request(talk.hears_one(0));
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
    talk.says(10, reply);
    let EventKind::ConnectResponse(offer) = talk.learns_one() else {
        panic!("the peer agreed");
    };
    assert_eq!(offer.remote_qpn, PEER_QPN);
    let receive = talk.manager.receive_attributes(id).expect("a response");
    assert_eq!(receive.remote_qpn, PEER_QPN);
}

#[test]
fn a_connection_is_made() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    talk.says(10, reply_to(&request));
    let EventKind::ConnectResponse(offer) = talk.learns_one() else {
        panic!("the peer agreed");
    };
    assert_eq!(offer.remote_qpn, PEER_QPN);
    assert_eq!((offer.responder_resources, offer.initiator_depth), (5, 4));
    assert_eq!(offer.private_data.len(), 196);
    assert!(offer.private_data.starts_with(b"welcome"));
    talk.hears_nothing(10);
    talk.manager.establish(id).expect("a response");
    let Message::ReadyToUse(ready) = talk.hears_one(10) else {
        panic!("the peer wants to know");
    };
    assert_eq!(ready.local_id, request.local_id);
    assert_eq!(ready.remote_id, PEER_ID);
    assert_eq!(talk.manager.phase(id), Some(Phase::Established));
    talk.hears_nothing(1_000_000);
    talk.learns_nothing();
}

#[test]
fn the_queue_pair_gets_what_both_sides_have_said() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    let early = talk.manager.receive_attributes(id);
    assert_eq!(early, Err(CallError::WrongPhase));
    talk.says(10, reply_to(&request));
    let init = talk.manager.init_attributes(id).expect("a conversation");
    assert_eq!(init.access, cm::Access::all());
    let receive = talk.manager.receive_attributes(id).expect("a response");
    assert_eq!(receive.receive_psn, request.starting_psn);
    assert_eq!(receive.remote_qpn, PEER_QPN);
    assert_eq!(receive.path.flow_label, request.primary.flow_label);
    assert_eq!(receive.path.hop_limit, 64);
    assert_eq!(receive.path.remote_gid.ip(), Some(PEER));
    let reliable = receive.reliable.expect("a reliable connection");
    assert_eq!(reliable.responder_resources, 5);
    assert_eq!(reliable.min_rnr_timer.code(), 0);
    let send = talk.manager.send_attributes(id).expect("a response");
    assert_eq!(send.send_psn, Psn::new(0x4321));
    let reliable = send.reliable.expect("a reliable connection");
    assert_eq!(reliable.ack_timeout.code(), 19);
    assert_eq!((reliable.retry_count, reliable.rnr_retry_count), (7, 6));
    assert_eq!(reliable.initiator_depth, 4);
}

#[test]
fn options_change_the_request_and_the_queue_pair() {
    let mut talk = Talk::new();
    let id = talk.resolved(PortSpace::Tcp);
    let timeout = AckTimeout::new(14).expect("a code");
    talk.manager.set_ack_timeout(id, timeout).expect("an id");
    talk.manager.set_traffic_class(id, 0x68).expect("an id");
    let timer = wire::RnrTimer::new(12).expect("a code");
    talk.manager.set_min_rnr_timer(id, timer).expect("an id");
    let parameters = Parameters::new(OUR_QPN);
    talk.manager.connect(at(0), id, &parameters).expect("ready");
    let sent = talk.manager.poll_transmit().expect("a request");
    assert_eq!(sent.traffic_class, 0x68);
    let (_, message) = Message::parse(&sent.datagram).expect("a message");
    let request = as_request(message);
    assert_eq!(request.primary.traffic_class, 0x68);
    // The device's delay (15) is longer than the path, and both are of about the same size.
    assert_eq!(request.primary.local_ack_timeout.code(), 16);
    talk.says(10, reply_to(&request));
    let send = talk.manager.send_attributes(id).expect("a response");
    assert_eq!(send.reliable.map(|r| r.ack_timeout), Some(timeout));
    let receive = talk.manager.receive_attributes(id).expect("a response");
    assert_eq!(receive.reliable.map(|r| r.min_rnr_timer), Some(timer));
    assert_eq!(receive.path.traffic_class, 0x68);
}

#[test]
fn a_lost_request_is_repeated_sixteen_times_in_all() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    for repetition in 1..=15 {
        talk.hears_nothing(repetition * REQUEST_INTERVAL - 1);
        let again = as_request(talk.hears_one(repetition * REQUEST_INTERVAL));
        assert_eq!(again, request);
    }
    talk.learns_nothing();
    talk.hears_nothing(16 * REQUEST_INTERVAL);
    let event = talk.learns_one();
    assert_eq!(event, EventKind::Unreachable(Unreachable::TimedOut));
    assert_eq!(event.status(), -110);
    assert_eq!(talk.manager.state(id), Some(State::Connect));
    assert_eq!(talk.manager.phase(id), None);
    assert_eq!(talk.manager.poll_timeout(), None);
    assert_eq!(talk.manager.counters().repeated, 15);
}

#[test]
fn a_lost_reply_comes_with_the_next_request() {
    let mut talk = Talk::new();
    let (_, request) = talk.connecting();
    talk.hears_one(REQUEST_INTERVAL);
    talk.says(REQUEST_INTERVAL + 1, reply_to(&request));
    assert!(matches!(talk.learns_one(), EventKind::ConnectResponse(_)));
    talk.hears_nothing(10 * REQUEST_INTERVAL);
}

#[test]
fn a_lost_rtu_is_said_again() {
    let mut talk = Talk::new();
    let (_, reply) = talk.connected();
    for millis in [5000, 9000] {
        talk.says(millis, reply);
        assert_eq!(talk.hears_one(millis).name(), "RTU");
    }
    talk.learns_nothing();
    assert_eq!(talk.manager.counters().duplicates.of(0x13), 2);
}

#[test]
fn a_repeated_reply_is_put_off_while_the_application_thinks() {
    let mut talk = Talk::new();
    let (_, request) = talk.connecting();
    talk.says(10, reply_to(&request));
    talk.says(4106, reply_to(&request));
    let receipt = crate::talk::as_receipt(talk.hears_one(4106));
    assert_eq!(receipt.message, AnsweredMessage::Reply);
    assert_eq!(receipt.service_timeout.code(), 24);
    assert_eq!(talk.learns().len(), 1);
}

#[test]
fn a_busy_peer_gets_the_time_it_asks_for() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    let receipt = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: request.local_id,
        message: AnsweredMessage::Request,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    talk.says(100, receipt);
    assert_eq!(talk.manager.phase(id), Some(Phase::RequestDelayed));
    let patience = (1 << 16) + TIMEWAIT;
    talk.says(200, receipt);
    talk.hears_nothing(100 + patience - 1);
    assert_eq!(talk.hears_one(100 + patience).name(), "REQ");
    talk.hears_nothing(100 + 2 * patience - 1);
    talk.says(100 + 2 * patience - 1, reply_to(&request));
    assert!(matches!(talk.learns_one(), EventKind::ConnectResponse(_)));
}

#[test]
fn a_receipt_for_something_else_changes_nothing() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    let receipt = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: request.local_id,
        message: AnsweredMessage::LoadAlternatePath,
        service_timeout: timeout(31),
        ..ReceiptAcknowledge::default()
    };
    talk.says(100, receipt);
    assert_eq!(talk.manager.phase(id), Some(Phase::RequestSent));
    assert_eq!(talk.hears_one(REQUEST_INTERVAL).name(), "REQ");
}

#[test]
fn a_refusal_tells_its_reason() {
    for (reason, code) in [
        (RejectReason::Consumer, 28),
        (RejectReason::InvalidServiceId, 8),
    ] {
        let mut talk = Talk::new();
        let (id, request) = talk.connecting();
        talk.says(10, refusal(&request, reason));
        let event = talk.learns_one();
        assert_eq!(event.status(), code);
        let EventKind::Rejected { private_data, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(private_data.len(), 148);
        let qpn = OUR_QPN;
        assert_eq!(talk.is_told_to(), [Instruction::BreakQueuePair { id, qpn }]);
        talk.says(20, refusal(&request, reason));
        talk.learns_nothing();
        talk.hears_nothing(100_000);
    }
}

/// How long a requester waits before it asks again after "stale connection".
const STALE_RETRY: u64 = 100;

#[test]
fn a_stale_request_is_sent_again_under_another_identifier() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    talk.says(10, refusal(&request, RejectReason::StaleConnection));
    talk.learns_nothing();
    talk.hears_nothing(10 + STALE_RETRY - 1);
    let again = as_request(talk.hears_one(10 + STALE_RETRY));
    assert_ne!(again.local_id, request.local_id);
    let same = ConnectRequest {
        local_id: request.local_id,
        ..again
    };
    assert_eq!(same, request, "nothing else changes");
    // What the peer says about the first request does not matter any more.
    talk.says(200, refusal(&request, RejectReason::Consumer));
    talk.learns_nothing();
    let mut reply = reply_to(&again);
    talk.says(200, reply);
    assert!(matches!(talk.learns_one(), EventKind::ConnectResponse(_)));
    talk.manager.establish(id).expect("a response");
    assert_eq!(talk.hears_one(200).name(), "RTU");
    reply.remote_id = request.local_id;
    talk.says(201, reply);
    talk.hears_nothing(201);
}

#[test]
fn a_delayed_request_that_turns_out_stale_is_sent_again() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    let delay = ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id: request.local_id,
        message: AnsweredMessage::Request,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    };
    talk.says(5, delay);
    talk.says(10, refusal(&request, RejectReason::StaleConnection));
    talk.hears_one(10 + STALE_RETRY);
    assert_eq!(talk.manager.phase(id), Some(Phase::RequestSent));
    talk.hears_one(10 + STALE_RETRY + REQUEST_INTERVAL);
}

#[test]
fn a_request_that_is_stale_twice_waits_for_its_packets_to_die() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    talk.says(0, refusal(&request, RejectReason::StaleConnection));
    let again = as_request(talk.hears_one(STALE_RETRY));
    talk.says(110, refusal(&again, RejectReason::StaleConnection));
    assert_eq!(talk.learns_one().status(), 10);
    assert_eq!(talk.manager.phase(id), Some(Phase::TimeWait));
    talk.hears_nothing(110 + TIMEWAIT);
    assert_eq!(talk.manager.phase(id), None);
    talk.learns_nothing();
}

#[test]
fn a_reply_for_a_queue_pair_that_is_already_connected_is_refused() {
    let mut talk = Talk::new();
    let (old, _) = talk.connected();
    let (_, request) = talk.connecting();
    let mut reply = reply_to(&request);
    reply.local_id = CommunicationId::new(0x9999);
    talk.says(10, reply);
    let [refusal, part] = talk.hears(10)[..] else {
        panic!("a refusal, and a good-bye to the dead connection");
    };
    let refusal = as_reject(refusal);
    assert_eq!(refusal.reason, RejectReason::StaleConnection);
    assert_eq!(refusal.message, RefusedMessage::Reply);
    assert_eq!(refusal.remote_id, reply.local_id);
    assert_eq!(part.name(), "DREQ");
    assert_eq!(talk.manager.phase(old), Some(Phase::DisconnectSent));
    talk.learns_nothing();
    // The peer has given it up: a second copy of the reply is for nobody, and the request is sent again
    // under another identifier.
    talk.says(11, reply);
    talk.learns_nothing();
    let sent = talk.hears(10 + STALE_RETRY);
    let again = sent.into_iter().find(|it| it.name() == "REQ");
    let again = as_request(again.expect("the request is sent again"));
    assert_ne!(again.local_id, request.local_id);
}

#[test]
fn a_destroyed_requester_says_that_it_gave_up() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    talk.manager.destroy(at(5000), id).expect("an id");
    let given_up = as_reject(talk.hears_one(5000));
    assert_eq!(given_up.reason, RejectReason::Timeout);
    assert_eq!(given_up.message, RefusedMessage::None);
    assert_eq!(given_up.local_id, request.local_id);
    assert_eq!(given_up.remote_id, CommunicationId::default());
    assert_eq!(given_up.information_length, 8);
    assert_eq!(given_up.information.bytes()[..8], 0x1111_u64.to_be_bytes());
    assert_eq!(talk.manager.load(), cm::Load::default());
    talk.says(6000, reply_to(&request));
    talk.hears_nothing(6000);
}

#[test]
fn a_destroyed_id_refuses_the_reply_it_has_got() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    talk.says(10, reply_to(&request));
    talk.manager.destroy(at(20), id).expect("an id");
    let refusal = as_reject(talk.hears_one(20));
    assert_eq!(refusal.reason, RejectReason::Consumer);
    assert_eq!(refusal.message, RefusedMessage::Reply);
    talk.learns_nothing();
    assert_eq!(talk.manager.load(), cm::Load::default());
}

#[test]
fn an_application_can_refuse_the_reply() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    talk.says(10, reply_to(&request));
    let reason = RejectReason::Consumer;
    let rejected = talk.manager.reject(at(20), id, reason, b"no");
    rejected.expect("a reply");
    let refusal = as_reject(talk.hears_one(20));
    assert_eq!(refusal.message, RefusedMessage::Reply);
    assert_eq!(refusal.remote_id, PEER_ID);
    assert!(refusal.private_data.bytes().starts_with(b"no\0"));
}

#[test]
fn a_queue_pair_that_cannot_be_made_ready_is_an_error() {
    let mut talk = Talk::new();
    let (id, request) = talk.connecting();
    let early = talk.manager.connect_failed(id, Failure::Os(12));
    assert_eq!(early, Err(CallError::WrongPhase));
    talk.says(10, reply_to(&request));
    talk.learns();
    let failed = talk.manager.connect_failed(id, Failure::Os(12));
    failed.expect("a response");
    assert_eq!(talk.learns_one().status(), -12);
    assert_eq!(as_reject(talk.hears_one(10)).reason, RejectReason::Consumer);
}

#[test]
fn a_peer_that_gives_up_after_its_reply_is_heard() {
    let mut talk = Talk::new();
    let (_, request) = talk.connecting();
    talk.says(10, reply_to(&request));
    talk.learns();
    talk.says(
        20,
        Reject {
            local_id: PEER_ID,
            remote_id: request.local_id,
            message: RefusedMessage::None,
            reason: RejectReason::Consumer,
            ..Reject::default()
        },
    );
    assert_eq!(talk.learns_one().status(), 28);
}

#[test]
fn strangers_cannot_answer() {
    let mut talk = Talk::new();
    let (_, request) = talk.connecting();
    let stranger = "10.0.0.66".parse().expect("an address");
    talk.says_from(stranger, 10, reply_to(&request));
    talk.says_from(stranger, 10, refusal(&request, RejectReason::Consumer));
    talk.learns_nothing();
    talk.hears_nothing(10);
    assert_eq!(talk.manager.counters().wrong_source, 2);
}

#[test]
fn a_reply_to_nobody_is_not_answered() {
    let mut talk = Talk::new();
    let (_, request) = talk.connecting();
    let mut reply = reply_to(&request);
    reply.remote_id = CommunicationId::new(request.local_id.value() ^ 1);
    talk.says(10, reply);
    talk.hears_nothing(10);
    assert_eq!(talk.manager.counters().unmatched, 1);
    assert_eq!(reply.local_guid, PEER_GUID);
}

#[test]
fn establishing_needs_a_response() {
    let mut talk = Talk::new();
    let (id, _) = talk.connecting();
    assert_eq!(talk.manager.establish(id), Err(CallError::WrongPhase));
    let connect = talk.manager.connect(at(0), id, &Parameters::new(OUR_QPN));
    assert_eq!(connect, Err(CallError::WrongState(State::Connect)));
}

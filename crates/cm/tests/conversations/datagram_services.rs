//! Datagram services and multicast groups.

use std::net::IpAddr;

use cm::{
    CallError, DEFAULT_QUEUE_KEY, EventKind, Failure, Instruction, Parameters, Request,
    ServiceType, TableSizes, Unreachable,
};
use wire::cm::{
    AddressHeader, CommunicationId, Message, PortSpace, PrivateData, RejectReason, ServiceId,
    ServiceReply, ServiceRequest, ServiceStatus,
};
use wire::{Qpn, QueueKey};

use crate::conversation::{
    Conversation, OUR_QPN, PEER, PEER_ID, PEER_QPN, PORT, REPLY_INTERVAL, US, at,
};

const KEY: QueueKey = QueueKey::new(0x0765_4321);

pub(crate) fn service_request() -> ServiceRequest {
    let header = AddressHeader {
        source_port: 0x8765,
        source: PEER,
        destination: US,
    };
    ServiceRequest {
        request_id: PEER_ID,
        service_id: ServiceId::of_port(PortSpace::Udp, PORT),
        private_data: PrivateData::new(&[&header.emit()[..], b"who?"].concat()).expect("room"),
        ..ServiceRequest::default()
    }
}

fn as_service_reply(message: Message) -> ServiceReply {
    match message {
        Message::ServiceReply(reply) => reply,
        other => panic!("{other}"),
    }
}

fn as_service_request(message: Message) -> ServiceRequest {
    match message {
        Message::ServiceRequest(request) => request,
        other => panic!("{other}"),
    }
}

/// An id that has sent a SIDR_REQ, and that request.
fn requesting_service(conversation: &mut Conversation) -> (cm::Id, ServiceRequest) {
    let id = conversation.resolved(PortSpace::Udp);
    let asked = conversation
        .manager
        .connect(at(0), id, &Parameters::new(OUR_QPN));
    asked.expect("a resolved id");
    (id, as_service_request(conversation.peer_receives_one(0)))
}

fn service_reply(request: &ServiceRequest, status: ServiceStatus) -> ServiceReply {
    ServiceReply {
        request_id: request.request_id,
        status,
        qpn: PEER_QPN,
        service_id: request.service_id,
        queue_key: KEY,
        private_data: PrivateData::new(b"me").expect("room"),
        ..ServiceReply::default()
    }
}

// IBA 12.9
#[test]
fn service_is_found() {
    let mut conversation = Conversation::new();
    let (id, request) = requesting_service(&mut conversation);
    assert_eq!(request.service_id.to_string(), "udp/7174");
    conversation.peer_sends(10, service_reply(&request, ServiceStatus::Valid));
    let EventKind::ServiceFound(found) = conversation.one_event() else {
        panic!("the peer answered");
    };
    assert_eq!((found.remote_qpn, found.queue_key), (PEER_QPN, KEY));
    assert_eq!(found.path.remote_gid.ip(), Some(PEER));
    assert_eq!(found.private_data.len(), 136);
    conversation.peer_sends(20, service_reply(&request, ServiceStatus::Valid));
    conversation.no_events();
    conversation.peer_receives_nothing(100_000);
    conversation
        .manager
        .disconnect(at(100_000), id)
        .expect("harmless");
    conversation
        .manager
        .destroy(at(100_000), id)
        .expect("an id");
    conversation.peer_receives_nothing(100_000);
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn unsupported_service_is_unreachable() {
    let mut conversation = Conversation::new();
    let (_, request) = requesting_service(&mut conversation);
    conversation.peer_sends(10, service_reply(&request, ServiceStatus::NotSupported));
    let event = conversation.one_event();
    assert_eq!(event, rejected_with(ServiceStatus::NotSupported, b"me"));
}

#[test]
fn rejection_of_a_service_has_private_data() {
    let mut conversation = Conversation::new();
    let (_, request) = requesting_service(&mut conversation);
    let reply = ServiceReply {
        private_data: PrivateData::new(b"no").expect("room"),
        ..service_reply(&request, ServiceStatus::Rejected)
    };
    conversation.peer_sends(10, reply);
    let rejected = rejected_with(ServiceStatus::Rejected, b"no");
    assert_eq!(conversation.one_event(), rejected);
}

/// The wire format has no length: the rest is zeros.
fn rejected_with(status: ServiceStatus, data: &[u8]) -> EventKind {
    let mut private_data = data.to_vec();
    private_data.resize(cm::private_data::SERVICE_REPLY, 0);
    EventKind::Unreachable(Unreachable::Rejected {
        status,
        private_data,
    })
}

#[test]
fn service_behind_a_closed_port_is_unreachable() {
    let mut conversation = Conversation::new();
    let (id, _) = requesting_service(&mut conversation);
    conversation.manager.handle_closed_port(at(10), id);
    let rejected = rejected_with(ServiceStatus::NotSupported, b"");
    assert_eq!(conversation.one_event(), rejected);
}

#[test]
fn unanswered_service_request_is_retransmitted_then_unreachable() {
    let mut conversation = Conversation::new();
    let (_, request) = requesting_service(&mut conversation);
    for retransmission in 1..=15 {
        let again = conversation.peer_receives_one(retransmission * REPLY_INTERVAL);
        assert_eq!(as_service_request(again), request);
    }
    conversation.peer_receives_nothing(16 * REPLY_INTERVAL);
    let timed_out = EventKind::Unreachable(Unreachable::TimedOut);
    assert_eq!(conversation.one_event(), timed_out);
}

#[test]
fn different_queue_key_is_an_error() {
    let mut conversation = Conversation::new();
    let (id, request) = requesting_service(&mut conversation);
    let init = conversation.manager.init_attributes(id).expect("an id");
    assert_eq!(init.queue_key, Some(DEFAULT_QUEUE_KEY));
    assert_eq!(DEFAULT_QUEUE_KEY.value(), 0x0123_4567);
    assert_eq!(init.access, cm::Access::empty());
    conversation.peer_sends(10, service_reply(&request, ServiceStatus::Valid));
    let event = conversation.one_event();
    assert_eq!(event, EventKind::AddressError(Failure::QueueKeyMismatch));
}

#[test]
fn destroying_a_pending_service_request_sends_nothing() {
    let mut conversation = Conversation::new();
    let (id, _) = requesting_service(&mut conversation);
    conversation.manager.destroy(at(10), id).expect("an id");
    conversation.peer_receives_nothing(100_000);
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn service_request_is_answered_once() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Udp, 0);
    conversation.peer_sends(0, service_request());
    conversation.peer_sends(5, service_request());
    let event = conversation
        .manager
        .poll_event()
        .expect("a service request");
    let EventKind::ConnectRequest {
        request: Request::Service { private_data },
        ..
    } = event.kind
    else {
        panic!("{event:?}");
    };
    assert_eq!(private_data.len(), 180);
    assert!(private_data.starts_with(b"who?\0"));
    conversation.no_events();
    conversation.peer_receives_nothing(5);
    let parameters = Parameters::new(OUR_QPN);
    let served = conversation.manager.accept(at(10), event.id, &parameters);
    served.expect("a service request");
    let response = as_service_reply(conversation.peer_receives_one(10));
    assert_eq!(response.request_id, PEER_ID);
    assert_eq!(response.status, ServiceStatus::Valid);
    assert_eq!(
        (response.qpn, response.queue_key),
        (OUR_QPN, DEFAULT_QUEUE_KEY)
    );
    // The SIDR_REP is lost. The duplicate request is answered without the application.
    conversation.peer_sends(4096, service_request());
    assert_eq!(
        as_service_reply(conversation.peer_receives_one(4096)),
        response
    );
    conversation.no_events();
    let again = conversation.manager.accept(at(10), event.id, &parameters);
    again.expect_err("already answered");
}

#[test]
fn service_chooses_its_queue_key() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Udp, 0);
    conversation.peer_sends(0, service_request());
    let id = conversation.child_id();
    let parameters = Parameters {
        queue_key: Some(KEY),
        ..Parameters::new(OUR_QPN)
    };
    conversation
        .manager
        .accept(at(0), id, &parameters)
        .expect("asked");
    assert_eq!(
        as_service_reply(conversation.peer_receives_one(0)).queue_key,
        KEY
    );
}

#[test]
fn service_is_rejected() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Udp, 0);
    conversation.peer_sends(0, service_request());
    let id = conversation.child_id();
    let reason = RejectReason::Consumer;
    let rejected = conversation.manager.reject(at(0), id, reason, b"no");
    rejected.expect("a service request");
    let response = as_service_reply(conversation.peer_receives_one(0));
    assert_eq!(response.status, ServiceStatus::Rejected);
    assert_eq!(response.qpn, Qpn::default());
    let mut other = service_request();
    other.request_id = CommunicationId::new(2);
    conversation.peer_sends(10, other);
    let id = conversation.child_id();
    conversation.manager.destroy(at(10), id).expect("an id");
    assert_eq!(
        as_service_reply(conversation.peer_receives_one(10)).status,
        ServiceStatus::Rejected
    );
}

#[test]
fn service_request_without_a_listener_is_answered_not_supported() {
    let mut conversation = Conversation::new();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, service_request());
    let response = as_service_reply(conversation.peer_receives_one(0));
    assert_eq!(response.status, ServiceStatus::NotSupported);
    let tcp = ServiceRequest {
        service_id: ServiceId::of_port(PortSpace::Tcp, PORT),
        ..service_request()
    };
    conversation.peer_sends(0, tcp);
    let response = as_service_reply(conversation.peer_receives_one(0));
    assert_eq!(response.status, ServiceStatus::NotSupported);
    conversation.no_events();
}

#[test]
fn group_is_joined_and_left() {
    let mut conversation = Conversation::new();
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    let manager = &mut conversation.manager;
    let id = manager
        .create_id(PortSpace::Udp, ServiceType::Datagram)
        .expect("an id");
    let early = manager.join(id, group, false);
    assert_eq!(early, Err(CallError::WrongState(cm::State::Idle)));
    manager.bind(id, (US, 0).into()).expect("a port");
    manager.join(id, group, false).expect("bound");
    let twice = manager.join(id, group, false);
    assert_eq!(twice, Err(CallError::AlreadyJoined));
    let join = Instruction::JoinMulticast {
        id,
        source: US,
        group,
        send_only: false,
    };
    assert_eq!(conversation.instructions(), [join]);
    conversation.manager.multicast_joined(id, group, Ok(()));
    let EventKind::MulticastJoin(joined) = conversation.one_event() else {
        panic!("the driver joined");
    };
    assert_eq!(joined.queue_key, DEFAULT_QUEUE_KEY);
    assert_eq!(joined.path.remote_gid.ip(), Some(group));
    conversation.manager.multicast_joined(id, group, Ok(()));
    conversation.no_events();
    conversation.manager.leave(id, group).expect("a member");
    let leave = Instruction::LeaveMulticast { id, group };
    assert_eq!(conversation.instructions(), [leave]);
    let again = conversation.manager.leave(id, group);
    assert_eq!(again, Err(CallError::NotJoined));
}

#[test]
fn failed_join_is_reported() {
    let mut conversation = Conversation::new();
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    let manager = &mut conversation.manager;
    let id = manager
        .create_id(PortSpace::Udp, ServiceType::Datagram)
        .expect("an id");
    manager.bind(id, (US, 0).into()).expect("a port");
    let other_family = "ff0e::1".parse().expect("an address");
    let mixed = manager.join(id, other_family, false);
    assert_eq!(mixed, Err(CallError::FamilyMismatch));
    manager.join(id, group, true).expect("bound");
    conversation.instructions();
    let failure = Failure::NoDevice;
    let manager = &mut conversation.manager;
    manager.multicast_joined(id, group, Err(failure));
    let failed = EventKind::MulticastError { group, failure };
    assert_eq!(conversation.one_event(), failed);
    conversation
        .manager
        .join(id, group, true)
        .expect("a second try");
    let manager = &mut conversation.manager;
    manager.destroy(at(0), id).expect("an id");
    assert_eq!(
        conversation.instructions(),
        [],
        "it was never asked to join"
    );
    let connected = conversation.resolved(PortSpace::Tcp);
    let wrong = conversation.manager.join(connected, group, false);
    assert_eq!(wrong, Err(CallError::NotDatagram));
}

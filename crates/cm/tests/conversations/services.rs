//! Datagrams: services and multicast groups.

use std::net::IpAddr;

use cm::{
    CallError, DEFAULT_QUEUE_KEY, EventKind, Failure, Instruction, Kind, Load, Parameters, Request,
    Unreachable,
};
use wire::cm::{
    AddressHeader, CommunicationId, Message, PortSpace, PrivateData, RejectReason, ServiceId,
    ServiceReply, ServiceRequest, ServiceStatus,
};
use wire::{Qpn, QueueKey};

use crate::talk::{OUR_QPN, PEER, PEER_ID, PEER_QPN, PORT, REPLY_INTERVAL, Talk, US, at};

const KEY: QueueKey = QueueKey::new(0x0765_4321);

pub(crate) fn question() -> ServiceRequest {
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

fn as_answer(message: Message) -> ServiceReply {
    match message {
        Message::ServiceReply(reply) => reply,
        other => panic!("{other}"),
    }
}

fn as_question(message: Message) -> ServiceRequest {
    match message {
        Message::ServiceRequest(request) => request,
        other => panic!("{other}"),
    }
}

/// An id that asks the peer for its service, and the question.
fn asking(talk: &mut Talk) -> (cm::Id, ServiceRequest) {
    let id = talk.resolved(PortSpace::Udp);
    let asked = talk.manager.connect(at(0), id, &Parameters::new(OUR_QPN));
    asked.expect("a resolved id");
    (id, as_question(talk.hears_one(0)))
}

fn answer(question: &ServiceRequest, status: ServiceStatus) -> ServiceReply {
    ServiceReply {
        request_id: question.request_id,
        status,
        qpn: PEER_QPN,
        service_id: question.service_id,
        queue_key: KEY,
        private_data: PrivateData::new(b"me").expect("room"),
        ..ServiceReply::default()
    }
}

#[test]
fn a_service_is_found() {
    let mut talk = Talk::new();
    let (id, question) = asking(&mut talk);
    assert_eq!(question.service_id.to_string(), "udp/7174");
    talk.says(10, answer(&question, ServiceStatus::Valid));
    let EventKind::ServiceFound(found) = talk.learns_one() else {
        panic!("the peer answered");
    };
    assert_eq!((found.remote_qpn, found.queue_key), (PEER_QPN, KEY));
    assert_eq!(found.path.remote_gid.ip(), Some(PEER));
    assert_eq!(found.private_data.len(), 136);
    talk.says(20, answer(&question, ServiceStatus::Valid));
    talk.learns_nothing();
    talk.hears_nothing(100_000);
    talk.manager.disconnect(at(100_000), id).expect("harmless");
    talk.manager.destroy(at(100_000), id).expect("an id");
    talk.hears_nothing(100_000);
    assert_eq!(talk.manager.load(), Load::default());
}

#[test]
fn a_service_that_nobody_offers_is_unreachable() {
    let mut talk = Talk::new();
    let (_, question) = asking(&mut talk);
    talk.says(10, answer(&question, ServiceStatus::NotSupported));
    let event = talk.learns_one();
    let status = ServiceStatus::NotSupported;
    let refused = EventKind::Unreachable(Unreachable::Refused(status));
    assert_eq!(event, refused);
    assert_eq!(event.status(), 1);
}

#[test]
fn a_question_is_repeated_until_the_peer_counts_as_dead() {
    let mut talk = Talk::new();
    let (_, question) = asking(&mut talk);
    for repetition in 1..=15 {
        let again = talk.hears_one(repetition * REPLY_INTERVAL);
        assert_eq!(as_question(again), question);
    }
    talk.hears_nothing(16 * REPLY_INTERVAL);
    assert_eq!(talk.learns_one().status(), -110);
}

#[test]
fn an_id_has_one_queue_key() {
    let mut talk = Talk::new();
    let (id, question) = asking(&mut talk);
    let init = talk.manager.init_attributes(id).expect("an id");
    assert_eq!(init.queue_key, Some(DEFAULT_QUEUE_KEY));
    assert_eq!(DEFAULT_QUEUE_KEY.value(), 0x0123_4567);
    assert_eq!(init.access, cm::Access::empty());
    talk.says(10, answer(&question, ServiceStatus::Valid));
    let event = talk.learns_one();
    assert_eq!(event, EventKind::AddressError(Failure::QueueKeyMismatch));
    assert_eq!(event.status(), -22);
}

#[test]
fn destroying_an_open_question_is_silent() {
    let mut talk = Talk::new();
    let (id, _) = asking(&mut talk);
    talk.manager.destroy(at(10), id).expect("an id");
    talk.hears_nothing(100_000);
    assert_eq!(talk.manager.load(), Load::default());
}

#[test]
fn a_service_is_offered() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Udp, 0);
    talk.says(0, question());
    talk.says(5, question());
    let event = talk.manager.poll_event().expect("a question");
    let EventKind::ConnectRequest {
        request: Request::Service { private_data },
        ..
    } = event.kind
    else {
        panic!("{event:?}");
    };
    assert_eq!(private_data.len(), 180);
    assert!(private_data.starts_with(b"who?\0"));
    talk.learns_nothing();
    talk.hears_nothing(5);
    let parameters = Parameters::new(OUR_QPN);
    let served = talk.manager.accept(at(10), event.id, &parameters);
    served.expect("a question");
    let answer = as_answer(talk.hears_one(10));
    assert_eq!(answer.request_id, PEER_ID);
    assert_eq!(answer.status, ServiceStatus::Valid);
    assert_eq!((answer.qpn, answer.queue_key), (OUR_QPN, DEFAULT_QUEUE_KEY));
    // The answer was lost: the application is not asked again.
    talk.says(4096, question());
    assert_eq!(as_answer(talk.hears_one(4096)), answer);
    talk.learns_nothing();
    let again = talk.manager.accept(at(10), event.id, &parameters);
    again.expect_err("one answer is enough");
}

#[test]
fn a_service_chooses_its_queue_key() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Udp, 0);
    talk.says(0, question());
    let id = talk.asked();
    let parameters = Parameters {
        queue_key: Some(KEY),
        ..Parameters::new(OUR_QPN)
    };
    talk.manager.accept(at(0), id, &parameters).expect("asked");
    assert_eq!(as_answer(talk.hears_one(0)).queue_key, KEY);
}

#[test]
fn a_service_is_refused() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Udp, 0);
    talk.says(0, question());
    let id = talk.asked();
    let reason = RejectReason::Consumer;
    let refused = talk.manager.reject(at(0), id, reason, b"no");
    refused.expect("a question");
    let answer = as_answer(talk.hears_one(0));
    assert_eq!(answer.status, ServiceStatus::Rejected);
    assert_eq!(answer.qpn, Qpn::default());
    let mut other = question();
    other.request_id = CommunicationId::new(2);
    talk.says(10, other);
    let id = talk.asked();
    talk.manager.destroy(at(10), id).expect("an id");
    assert_eq!(
        as_answer(talk.hears_one(10)).status,
        ServiceStatus::Rejected
    );
}

#[test]
fn nobody_offers_it() {
    let mut talk = Talk::new();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, question());
    let answer = as_answer(talk.hears_one(0));
    assert_eq!(answer.status, ServiceStatus::NotSupported);
    let tcp = ServiceRequest {
        service_id: ServiceId::of_port(PortSpace::Tcp, PORT),
        ..question()
    };
    talk.says(0, tcp);
    let answer = as_answer(talk.hears_one(0));
    assert_eq!(answer.status, ServiceStatus::NotSupported);
    talk.learns_nothing();
}

#[test]
fn a_group_is_joined_and_left() {
    let mut talk = Talk::new();
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    let manager = &mut talk.manager;
    let id = manager
        .create(PortSpace::Udp, Kind::Datagram)
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
    assert_eq!(talk.is_told_to(), [join]);
    talk.manager.multicast_joined(id, group, Ok(()));
    let EventKind::MulticastJoin(joined) = talk.learns_one() else {
        panic!("the driver joined");
    };
    assert_eq!(joined.queue_key, DEFAULT_QUEUE_KEY);
    assert_eq!(joined.path.remote_gid.ip(), Some(group));
    talk.manager.multicast_joined(id, group, Ok(()));
    talk.learns_nothing();
    talk.manager.leave(id, group).expect("a member");
    let leave = Instruction::LeaveMulticast { id, group };
    assert_eq!(talk.is_told_to(), [leave]);
    let again = talk.manager.leave(id, group);
    assert_eq!(again, Err(CallError::NotJoined));
}

#[test]
fn a_group_that_cannot_be_joined() {
    let mut talk = Talk::new();
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    let manager = &mut talk.manager;
    let id = manager
        .create(PortSpace::Udp, Kind::Datagram)
        .expect("an id");
    manager.bind(id, (US, 0).into()).expect("a port");
    let other_family = "ff0e::1".parse().expect("an address");
    let mixed = manager.join(id, other_family, false);
    assert_eq!(mixed, Err(CallError::FamilyMismatch));
    manager.join(id, group, true).expect("bound");
    talk.is_told_to();
    let refused = Err(Failure::Os(105));
    talk.manager.multicast_joined(id, group, refused);
    assert_eq!(talk.learns_one().status(), -105);
    talk.manager.join(id, group, true).expect("a second try");
    let manager = &mut talk.manager;
    manager.destroy(at(0), id).expect("an id");
    assert_eq!(talk.is_told_to(), [], "it was never asked to join");
    let connected = talk.resolved(PortSpace::Tcp);
    let wrong = talk.manager.join(connected, group, false);
    assert_eq!(wrong, Err(CallError::NotDatagram));
}

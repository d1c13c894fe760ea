//! Exit notices: what is to be sent if the process dies.

use cm::{ExitNotice, Id, Load, Parameters, Phase, Transmit};
use wire::cm::{
    AnsweredMessage, Message, PortSpace, PrivateData, ReceiptAcknowledge, RefusedMessage, Reject,
    RejectReason, ServiceReply, ServiceStatus,
};

use crate::services::question;
use crate::talk::{
    OUR_GUID, OUR_QPN, PEER, PEER_ID, PEER_QPN, REQUEST_INTERVAL, TIMEWAIT, TRANSACTION, Talk, US,
    as_part, as_parted, as_reject, at, part, parted, reply_to, request, timeout,
};

fn talk() -> Talk {
    Talk::with(|config| config.exit_notices = true)
}

/// The one change since the last call, which is about this id.
fn change(talk: &mut Talk, id: Id) -> Option<Transmit> {
    let notice = talk.manager.poll_exit_notice().expect("a change");
    assert_eq!(notice.id, id);
    no_change(talk);
    notice.transmit
}

fn no_change(talk: &mut Talk) {
    assert_eq!(talk.manager.poll_exit_notice(), None);
}

/// The one change, which is a message to the peer. It must be what destroying the id sends.
fn notice(talk: &mut Talk, id: Id) -> (u64, Message) {
    let transmit = change(talk, id).expect("a message");
    assert_eq!((transmit.source, transmit.destination), (US, PEER));
    let (header, message) = Message::parse(&transmit.datagram).expect("a message");
    (header.transaction(), message)
}

/// Destroying the id sends its notice and takes it back.
fn destroying_sends(talk: &mut Talk, id: Id, (transaction, message): (u64, Message)) {
    talk.manager.destroy(at(20), id).expect("an id");
    let sent = talk.manager.poll_transmit().expect("a message");
    assert_eq!(*sent.datagram, message.emit(transaction));
    assert_eq!(talk.manager.poll_transmit(), None);
    assert_eq!(change(talk, id), None);
    assert_eq!(talk.manager.load().exit_notices, 0);
}

fn delay(message: AnsweredMessage, remote_id: wire::cm::CommunicationId) -> ReceiptAcknowledge {
    ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id,
        message,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    }
}

fn is_consumer_reject(message: Message, refused: RefusedMessage) -> Reject {
    let reject = as_reject(message);
    assert_eq!(reject.reason, RejectReason::Consumer);
    assert_eq!(reject.message, refused);
    assert_eq!(reject.remote_id, PEER_ID);
    reject
}

#[test]
fn there_are_none_unless_asked_for() {
    let mut talk = Talk::new();
    let (id, _) = talk.connected();
    no_change(&mut talk);
    assert_eq!(talk.manager.load().exit_notices, 0);
    talk.manager.destroy(at(0), id).expect("an id");
    no_change(&mut talk);
}

#[test]
fn a_sent_request_would_be_given_up() {
    let mut talk = talk();
    let (id, sent) = talk.connecting();
    let (transaction, message) = notice(&mut talk, id);
    let reject = as_reject(message);
    assert_eq!(reject.reason, RejectReason::Timeout);
    assert_eq!(reject.local_id, sent.local_id);
    assert_eq!(reject.information.bytes()[..8], OUR_GUID.to_be_bytes());
    talk.says(1, delay(AnsweredMessage::Request, sent.local_id));
    assert_eq!(talk.manager.phase(id), Some(Phase::RequestDelayed));
    no_change(&mut talk);
    destroying_sends(&mut talk, id, (transaction, message));
}

#[test]
fn a_repeated_request_changes_nothing() {
    let mut talk = talk();
    let (id, _) = talk.connecting();
    notice(&mut talk, id);
    talk.hears_one(REQUEST_INTERVAL);
    no_change(&mut talk);
}

#[test]
fn a_received_reply_would_be_refused() {
    let mut talk = talk();
    let (id, sent) = talk.connecting();
    notice(&mut talk, id);
    talk.says(1, reply_to(&sent));
    let notice = notice(&mut talk, id);
    let reject = is_consumer_reject(notice.1, RefusedMessage::Reply);
    assert_eq!(reject.local_id, sent.local_id);
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn a_received_request_would_be_refused() {
    let mut talk = talk();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    let notice = notice(&mut talk, id);
    is_consumer_reject(notice.1, RefusedMessage::Request);
    assert_eq!(notice.0, TRANSACTION, "the peer matches it by its own");
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn a_request_that_is_refused_needs_no_notice() {
    let mut talk = talk();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    notice(&mut talk, id);
    let rejected = talk.manager.reject(at(0), id, RejectReason::Consumer, &[]);
    rejected.expect("a request");
    assert_eq!(change(&mut talk, id), None);
}

#[test]
fn a_sent_reply_would_be_taken_back() {
    let mut talk = talk();
    let (id, reply) = talk.accepting();
    let notice = notice(&mut talk, id);
    let reject = is_consumer_reject(notice.1, RefusedMessage::None);
    assert_eq!(reject.local_id, reply.local_id);
    assert_eq!(notice.0, TRANSACTION);
    talk.says(1, delay(AnsweredMessage::Reply, reply.local_id));
    assert_eq!(talk.manager.phase(id), Some(Phase::ReplyDelayed));
    no_change(&mut talk);
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn each_step_of_the_passive_side_is_one_change() {
    let mut talk = talk();
    talk.listening(PortSpace::Tcp, 0);
    talk.says(0, request());
    let id = talk.asked();
    notice(&mut talk, id);
    let accepted = talk.manager.accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    notice(&mut talk, id);
    assert!(talk.manager.notify_established(OUR_QPN));
    as_part(notice(&mut talk, id).1);
}

#[test]
fn a_connection_would_be_ended() {
    let mut talk = talk();
    let (id, reply) = talk.connected();
    let notice = notice(&mut talk, id);
    let said = as_part(notice.1);
    assert_eq!((said.local_id, said.remote_id), (reply.remote_id, PEER_ID));
    assert_eq!(said.remote_qpn, PEER_QPN);
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn an_accepted_connection_would_be_ended() {
    let mut talk = talk();
    let (id, reply) = talk.accepted();
    let notice = notice(&mut talk, id);
    assert_eq!(as_part(notice.1).local_id, reply.local_id);
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn a_good_bye_would_be_said_again_until_it_is_answered() {
    let mut talk = talk();
    let (id, reply) = talk.connected();
    let (_, message) = notice(&mut talk, id);
    talk.manager.disconnect(at(1), id).expect("connected");
    assert_eq!(talk.hears_one(1), message);
    no_change(&mut talk);
    talk.says(2, parted(PEER_ID, reply.remote_id));
    assert_eq!(change(&mut talk, id), None);
    talk.hears_nothing(2 + TIMEWAIT);
    no_change(&mut talk);
}

#[test]
fn the_peers_good_bye_would_be_answered() {
    let mut talk = talk();
    let (id, reply) = talk.accepted();
    notice(&mut talk, id);
    talk.says(1, part(PEER_ID, reply.local_id));
    let notice = notice(&mut talk, id);
    assert_eq!(notice.0, TRANSACTION);
    assert_eq!(as_parted(notice.1).local_id, reply.local_id);
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn a_request_for_a_service_would_be_refused() {
    let mut talk = talk();
    talk.listening(PortSpace::Udp, 0);
    let asked = question();
    talk.says(0, asked);
    let id = talk.asked();
    let notice = notice(&mut talk, id);
    let refused = ServiceReply {
        request_id: asked.request_id,
        service_id: asked.service_id,
        status: ServiceStatus::Rejected,
        private_data: PrivateData::default(),
        ..ServiceReply::default()
    };
    assert_eq!(notice, (TRANSACTION, Message::from(refused)));
    destroying_sends(&mut talk, id, notice);
}

#[test]
fn asking_for_a_service_needs_no_notice() {
    let mut talk = talk();
    let id = talk.resolved(PortSpace::Udp);
    let connected = talk.manager.connect(at(0), id, &Parameters::new(OUR_QPN));
    connected.expect("a resolved id");
    no_change(&mut talk);
}

#[test]
fn a_refused_request_needs_no_notice() {
    let mut talk = talk();
    let (id, sent) = talk.connecting();
    notice(&mut talk, id);
    let refusal = Reject {
        remote_id: sent.local_id,
        message: RefusedMessage::Request,
        reason: RejectReason::Consumer,
        ..Reject::default()
    };
    talk.says(1, refusal);
    assert_eq!(change(&mut talk, id), None);
}

#[test]
fn a_peer_that_never_answered_needs_no_notice() {
    let mut talk = talk();
    let (id, _) = talk.connecting();
    notice(&mut talk, id);
    for repetition in 1..=16 {
        talk.hears(repetition * REQUEST_INTERVAL);
    }
    assert_eq!(change(&mut talk, id), None);
}

#[test]
fn nothing_can_be_sent_without_a_device() {
    let mut talk = talk();
    let (id, _) = talk.connected();
    notice(&mut talk, id);
    talk.manager.device_removed();
    assert_eq!(change(&mut talk, id), None);
}

#[test]
fn ids_that_come_and_go_unnoticed_leave_nothing() {
    let mut talk = talk();
    for _ in 0..100 {
        let (id, _) = talk.connecting();
        talk.manager.destroy(at(0), id).expect("an id");
        talk.hears(0);
    }
    assert_eq!(talk.manager.load(), Load::default());
    assert!(!talk.manager.has_output());
}

#[test]
fn changes_are_output() {
    let mut talk = talk();
    talk.connecting();
    assert!(talk.manager.has_output());
    assert!(matches!(
        talk.manager.poll_exit_notice(),
        Some(ExitNotice {
            transmit: Some(_),
            ..
        })
    ));
    assert!(!talk.manager.has_output());
}

//! Exit notices: the messages to send if the process dies.

use cm::{ExchangeState, ExitNotice, Id, Parameters, TableSizes, Transmit};
use wire::cm::{
    AcknowledgedMessage, Message, PortSpace, PrivateData, ReceiptAcknowledge, Reject, RejectReason,
    RejectedMessage, ServiceReply, ServiceStatus,
};

use crate::conversation::{
    Conversation, OUR_GUID, OUR_QPN, PEER, PEER_ID, PEER_QPN, REQUEST_INTERVAL, TIMEWAIT,
    TRANSACTION, US, as_drep, as_dreq, as_reject, at, drep, dreq, reply_to, request, timeout,
};
use crate::datagram_services::service_request;

fn conversation() -> Conversation {
    Conversation::with(|config| config.exit_notices = true)
}

/// The only exit notice that changed. It belongs to this id.
fn change(conversation: &mut Conversation, id: Id) -> Option<Transmit> {
    let notice = conversation.manager.poll_exit_notice().expect("a change");
    assert_eq!(notice.id, id);
    no_change(conversation);
    notice.transmit
}

fn no_change(conversation: &mut Conversation) {
    assert_eq!(conversation.manager.poll_exit_notice(), None);
}

/// The only exit notice that changed: a message to the peer.
fn notice(conversation: &mut Conversation, id: Id) -> (u64, Message) {
    let transmit = change(conversation, id).expect("a message");
    assert_eq!((transmit.source, transmit.destination), (US, PEER));
    let (header, message) = Message::parse(&transmit.datagram).expect("a message");
    (header.transaction(), message)
}

/// Destroying the id sends the message of its notice, and clears the notice: at once, or when a DREQ is
/// answered.
fn destroying_sends(
    conversation: &mut Conversation,
    id: Id,
    (transaction, message): (u64, Message),
) {
    conversation.manager.destroy(at(20), id).expect("an id");
    let sent = conversation.manager.poll_transmit().expect("a message");
    assert_eq!(*sent.datagram, message.emit(transaction));
    assert_eq!(conversation.manager.poll_transmit(), None);
    if let Message::DisconnectRequest(sent) = message {
        no_change(conversation);
        conversation.peer_sends(21, drep(sent.remote_id, sent.local_id));
    }
    assert_eq!(change(conversation, id), None);
    assert_eq!(conversation.manager.table_sizes().exit_notices, 0);
}

fn delay(message: AcknowledgedMessage, remote_id: wire::cm::CommunicationId) -> ReceiptAcknowledge {
    ReceiptAcknowledge {
        local_id: PEER_ID,
        remote_id,
        message,
        service_timeout: timeout(24),
        ..ReceiptAcknowledge::default()
    }
}

fn is_consumer_reject(message: Message, rejected: RejectedMessage) -> Reject {
    let reject = as_reject(message);
    assert_eq!(reject.reason, RejectReason::Consumer);
    assert_eq!(reject.message, rejected);
    assert_eq!(reject.remote_id, PEER_ID);
    reject
}

#[test]
fn no_exit_notices_without_the_option() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.connected();
    no_change(&mut conversation);
    assert_eq!(conversation.manager.table_sizes().exit_notices, 0);
    conversation.manager.destroy(at(0), id).expect("an id");
    no_change(&mut conversation);
}

#[test]
fn notice_of_a_sent_request_is_reject_timeout() {
    let mut conversation = conversation();
    let (id, sent) = conversation.connecting();
    let (transaction, message) = notice(&mut conversation, id);
    let reject = as_reject(message);
    assert_eq!(reject.reason, RejectReason::Timeout);
    assert_eq!(reject.local_id, sent.local_id);
    assert_eq!(reject.information.bytes()[..8], OUR_GUID.to_be_bytes());
    conversation.peer_sends(1, delay(AcknowledgedMessage::Request, sent.local_id));
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::RequestDelayed)
    );
    no_change(&mut conversation);
    destroying_sends(&mut conversation, id, (transaction, message));
}

#[test]
fn retransmission_does_not_change_the_notice() {
    let mut conversation = conversation();
    let (id, _) = conversation.connecting();
    notice(&mut conversation, id);
    conversation.peer_receives_one(REQUEST_INTERVAL);
    no_change(&mut conversation);
}

#[test]
fn notice_of_a_received_reply_is_reject() {
    let mut conversation = conversation();
    let (id, sent) = conversation.connecting();
    notice(&mut conversation, id);
    conversation.peer_sends(1, reply_to(&sent));
    let notice = notice(&mut conversation, id);
    let reject = is_consumer_reject(notice.1, RejectedMessage::Reply);
    assert_eq!(reject.local_id, sent.local_id);
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn notice_of_a_received_request_is_reject() {
    let mut conversation = conversation();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    let notice = notice(&mut conversation, id);
    is_consumer_reject(notice.1, RejectedMessage::Request);
    assert_eq!(
        notice.0, TRANSACTION,
        "the transaction ID of the peer's request"
    );
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn rejecting_a_request_clears_its_notice() {
    let mut conversation = conversation();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    notice(&mut conversation, id);
    let rejected = conversation
        .manager
        .reject(at(0), id, RejectReason::Consumer, &[]);
    rejected.expect("a request");
    assert_eq!(change(&mut conversation, id), None);
}

#[test]
fn notice_of_a_sent_reply_is_reject() {
    let mut conversation = conversation();
    let (id, reply) = conversation.accepting();
    let notice = notice(&mut conversation, id);
    let reject = is_consumer_reject(notice.1, RejectedMessage::None);
    assert_eq!(reject.local_id, reply.local_id);
    assert_eq!(notice.0, TRANSACTION);
    conversation.peer_sends(1, delay(AcknowledgedMessage::Reply, reply.local_id));
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::ReplyDelayed)
    );
    no_change(&mut conversation);
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn each_step_of_the_passive_side_changes_the_notice_once() {
    let mut conversation = conversation();
    conversation.listening(PortSpace::Tcp, 0);
    conversation.peer_sends(0, request());
    let id = conversation.child_id();
    notice(&mut conversation, id);
    let accepted = conversation
        .manager
        .accept(at(0), id, &Parameters::new(OUR_QPN));
    accepted.expect("a request");
    notice(&mut conversation, id);
    assert!(conversation.manager.notify_established(OUR_QPN));
    as_dreq(notice(&mut conversation, id).1);
}

#[test]
fn notice_of_a_connection_is_dreq() {
    let mut conversation = conversation();
    let (id, reply) = conversation.connected();
    let notice = notice(&mut conversation, id);
    let sent = as_dreq(notice.1);
    assert_eq!((sent.local_id, sent.remote_id), (reply.remote_id, PEER_ID));
    assert_eq!(sent.remote_qpn, PEER_QPN);
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn notice_of_an_accepted_connection_is_dreq() {
    let mut conversation = conversation();
    let (id, reply) = conversation.accepted();
    let notice = notice(&mut conversation, id);
    assert_eq!(as_dreq(notice.1).local_id, reply.local_id);
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn notice_is_dreq_until_the_drep_arrives() {
    let mut conversation = conversation();
    let (id, reply) = conversation.connected();
    let (_, message) = notice(&mut conversation, id);
    conversation
        .manager
        .disconnect(at(1), id)
        .expect("connected");
    assert_eq!(conversation.peer_receives_one(1), message);
    no_change(&mut conversation);
    conversation.peer_sends(2, drep(PEER_ID, reply.remote_id));
    assert_eq!(change(&mut conversation, id), None);
    conversation.peer_receives_nothing(2 + TIMEWAIT);
    no_change(&mut conversation);
}

/// The process may end right after the application destroyed the id.
#[test]
fn notice_of_a_destroyed_id_is_dreq_until_the_drep_arrives() {
    let mut conversation = conversation();
    let (id, reply) = conversation.connected();
    let (_, message) = notice(&mut conversation, id);
    conversation.manager.destroy(at(1), id).expect("an id");
    assert_eq!(conversation.peer_receives_one(1), message);
    no_change(&mut conversation);
    conversation.peer_sends(2, drep(PEER_ID, reply.remote_id));
    assert_eq!(change(&mut conversation, id), None);
}

#[test]
fn notice_after_the_peers_dreq_is_drep() {
    let mut conversation = conversation();
    let (id, reply) = conversation.accepted();
    notice(&mut conversation, id);
    conversation.peer_sends(1, dreq(PEER_ID, reply.local_id));
    let notice = notice(&mut conversation, id);
    assert_eq!(notice.0, TRANSACTION);
    assert_eq!(as_drep(notice.1).local_id, reply.local_id);
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn notice_of_a_received_service_request_is_reject() {
    let mut conversation = conversation();
    conversation.listening(PortSpace::Udp, 0);
    let asked = service_request();
    conversation.peer_sends(0, asked);
    let id = conversation.child_id();
    let notice = notice(&mut conversation, id);
    let rejected = ServiceReply {
        request_id: asked.request_id,
        service_id: asked.service_id,
        status: ServiceStatus::Rejected,
        private_data: PrivateData::default(),
        ..ServiceReply::default()
    };
    assert_eq!(notice, (TRANSACTION, Message::from(rejected)));
    destroying_sends(&mut conversation, id, notice);
}

#[test]
fn sent_service_request_has_no_notice() {
    let mut conversation = conversation();
    let id = conversation.resolved(PortSpace::Udp);
    let connected = conversation
        .manager
        .connect(at(0), id, &Parameters::new(OUR_QPN));
    connected.expect("a resolved id");
    no_change(&mut conversation);
}

#[test]
fn peers_reject_clears_the_notice() {
    let mut conversation = conversation();
    let (id, sent) = conversation.connecting();
    notice(&mut conversation, id);
    let reject = Reject {
        remote_id: sent.local_id,
        message: RejectedMessage::Request,
        reason: RejectReason::Consumer,
        ..Reject::default()
    };
    conversation.peer_sends(1, reject);
    assert_eq!(change(&mut conversation, id), None);
}

#[test]
fn request_timeout_clears_the_notice() {
    let mut conversation = conversation();
    let (id, _) = conversation.connecting();
    notice(&mut conversation, id);
    for retransmission in 1..=16 {
        conversation.peer_receives(retransmission * REQUEST_INTERVAL);
    }
    assert_eq!(change(&mut conversation, id), None);
}

#[test]
fn device_removal_clears_the_notice() {
    let mut conversation = conversation();
    let (id, _) = conversation.connected();
    notice(&mut conversation, id);
    conversation.manager.device_removed();
    assert_eq!(change(&mut conversation, id), None);
}

#[test]
fn destroyed_ids_leave_no_notices() {
    let mut conversation = conversation();
    for _ in 0..100 {
        let (id, _) = conversation.connecting();
        conversation.manager.destroy(at(0), id).expect("an id");
        conversation.peer_receives(0);
    }
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
    assert!(!conversation.manager.has_output());
}

#[test]
fn changed_notices_count_as_output() {
    let mut conversation = conversation();
    conversation.connecting();
    assert!(conversation.manager.has_output());
    assert!(matches!(
        conversation.manager.poll_exit_notice(),
        Some(ExitNotice {
            transmit: Some(_),
            ..
        })
    ));
    assert!(!conversation.manager.has_output());
}

//! Disconnection and destruction.

use cm::{BindError, CallError, EventKind, ExchangeState, Id, Instruction, State, TableSizes};
use wire::Qpn;
use wire::cm::{CommunicationId, PortSpace, Reject, RejectReason};

use crate::conversation::{
    Conversation, EARLY_RETRANSMISSIONS, OUR_QPN, PEER_ID, PEER_QPN, REPLY_INTERVAL,
    REQUEST_INTERVAL, TIMEWAIT, US, as_drep, as_dreq, as_reject, at, drep, dreq, ready_for,
    rejection, reply_to, request,
};

const ENDED: EventKind = EventKind::Disconnected { timed_out: false };

/// The application disconnects.
fn disconnect(conversation: &mut Conversation, millis: u64, id: Id) {
    let disconnected = conversation.manager.disconnect(at(millis), id);
    disconnected.expect("connected");
}

// IBA 12.9
#[test]
fn disconnect_sends_dreq_and_enters_time_wait_after_drep() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.connected();
    disconnect(&mut conversation, 1000, id);
    let qpn = OUR_QPN;
    assert_eq!(
        conversation.instructions(),
        [Instruction::MoveToError { id, qpn }]
    );
    let sent = as_dreq(conversation.peer_receives_one(1000));
    assert_eq!(sent.remote_qpn, PEER_QPN);
    assert_eq!((sent.local_id, sent.remote_id), (reply.remote_id, PEER_ID));
    conversation.no_events();
    conversation.peer_sends(1010, drep(PEER_ID, reply.remote_id));
    assert_eq!(conversation.events(), [ENDED]);
    assert_eq!(conversation.manager.state(id), Some(State::Disconnect));
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::TimeWait)
    );
    conversation.peer_receives_nothing(1010 + TIMEWAIT - 1);
    conversation.no_events();
    assert!(conversation.manager.is_in_time_wait(OUR_QPN));
    conversation.peer_receives_nothing(1010 + TIMEWAIT);
    assert!(!conversation.manager.is_in_time_wait(OUR_QPN));
    assert_eq!(conversation.events(), [EventKind::TimewaitExit]);
    conversation.manager.destroy(at(5000), id).expect("an id");
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn unanswered_dreq_is_retransmitted() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.connected();
    disconnect(&mut conversation, 0, id);
    let sent = as_dreq(conversation.peer_receives_one(0));
    assert_eq!(
        as_dreq(conversation.peer_receives_one(REQUEST_INTERVAL)),
        sent
    );
    conversation.peer_sends(REQUEST_INTERVAL + 5, drep(PEER_ID, reply.remote_id));
    assert_eq!(conversation.events(), [ENDED]);
}

#[test]
fn disconnect_times_out_without_a_response() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.accepted();
    disconnect(&mut conversation, 0, id);
    conversation.peer_receives(0);
    for retransmission in 1..=15 {
        conversation.peer_receives_one(retransmission * REPLY_INTERVAL);
    }
    conversation.peer_receives_nothing(16 * REPLY_INTERVAL);
    let event = conversation.one_event();
    assert_eq!(event, EventKind::Disconnected { timed_out: true });
    conversation.peer_receives_nothing(16 * REPLY_INTERVAL + TIMEWAIT);
    assert_eq!(conversation.events(), [EventKind::TimewaitExit]);
}

#[test]
fn peers_dreq_is_answered_when_the_application_disconnects() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    let sent = dreq(PEER_ID, reply.local_id);
    conversation.peer_sends(1000, sent);
    assert_eq!(conversation.events(), [ENDED]);
    conversation.peer_receives_nothing(1000);
    conversation.peer_sends(5096, sent);
    conversation.peer_receives_nothing(5096);
    conversation
        .manager
        .disconnect(at(6000), id)
        .expect("was connected");
    let response = as_drep(conversation.peer_receives_one(6000));
    assert_eq!(
        (response.local_id, response.remote_id),
        (reply.local_id, PEER_ID)
    );
    // The DREP is lost.
    conversation.peer_sends(6100, sent);
    assert_eq!(as_drep(conversation.peer_receives_one(6100)), response);
    conversation.peer_receives_nothing(6000 + TIMEWAIT);
    assert_eq!(conversation.events(), [EventKind::TimewaitExit]);
    let again = conversation.manager.disconnect(at(9000), id);
    again.expect("disconnecting twice is allowed, as on Linux");
    conversation.peer_receives_nothing(9000);
}

// IBA 12.9
#[test]
fn dreq_before_the_rtu_ends_the_connection() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepting();
    conversation.peer_sends(10, dreq(PEER_ID, reply.local_id));
    assert_eq!(conversation.events(), [ENDED]);
    conversation.peer_receives_nothing(10 * REPLY_INTERVAL);
    conversation.manager.destroy(at(50_000), id).expect("an id");
    assert_eq!(conversation.peer_receives_one(50_000).name(), "DREP");
    conversation.peer_sends(50_001, ready_for(&reply));
    conversation.no_events();
}

#[test]
fn crossed_dreqs_are_both_answered() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.connected();
    disconnect(&mut conversation, 0, id);
    conversation.peer_receives_one(0);
    conversation.peer_sends(5, dreq(PEER_ID, reply.remote_id));
    assert_eq!(conversation.peer_receives_one(5).name(), "DREP");
    assert_eq!(conversation.events(), [ENDED]);
    conversation.peer_sends(6, drep(PEER_ID, reply.remote_id));
    conversation.no_events();
    conversation.peer_receives_nothing(5 + TIMEWAIT);
    assert_eq!(conversation.events(), [EventKind::TimewaitExit]);
}

// IBA 12.9.8.2
#[test]
fn dreq_for_an_unknown_connection_is_answered() {
    let mut conversation = Conversation::new();
    let unknown = CommunicationId::new(0x4242);
    conversation.peer_sends(0, dreq(PEER_ID, unknown));
    let response = as_drep(conversation.peer_receives_one(0));
    assert_eq!((response.local_id, response.remote_id), (unknown, PEER_ID));
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn dreq_for_another_queue_pair_is_ignored() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    let mut wrong = dreq(PEER_ID, reply.local_id);
    wrong.remote_qpn = Qpn::new(0x999);
    conversation.peer_sends(0, wrong);
    conversation.peer_receives_nothing(0);
    conversation.no_events();
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::Established)
    );
}

#[test]
fn reject_ends_a_connection() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    let reject = Reject {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: wire::cm::RejectedMessage::Reply,
        reason: RejectReason::StaleConnection,
        ..Reject::default()
    };
    conversation.peer_sends(10, reject);
    let stale = Some(RejectReason::StaleConnection);
    assert_eq!(rejection(&conversation.one_event()), stale);
    assert_eq!(
        conversation.manager.phase(id),
        Some(ExchangeState::TimeWait)
    );
    conversation.peer_sends(11, reject);
    conversation.no_events();
}

#[test]
fn destroying_a_connection_sends_dreq() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.connected();
    conversation.manager.destroy(at(10), id).expect("an id");
    assert_eq!(conversation.peer_receives_one(10).name(), "DREQ");
    assert!(conversation.manager.is_in_time_wait(OUR_QPN));
    conversation.peer_sends(20, dreq(PEER_ID, reply.remote_id));
    assert_eq!(conversation.peer_receives_one(20).name(), "DREP");
    conversation.peer_receives_nothing(20 + TIMEWAIT);
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn dreq_of_a_destroyed_id_is_retransmitted_until_it_is_answered() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.connected();
    conversation.manager.destroy(at(0), id).expect("an id");
    let sent = as_dreq(conversation.peer_receives_one(0));
    for early in EARLY_RETRANSMISSIONS {
        assert_eq!(as_dreq(conversation.peer_receives_one(early)), sent);
    }
    assert_eq!(conversation.manager.state(id), None);
    assert!(conversation.manager.is_in_time_wait(OUR_QPN));
    conversation.peer_sends(3001, drep(PEER_ID, reply.remote_id));
    conversation.peer_receives_nothing(3001 + TIMEWAIT - 1);
    assert!(conversation.manager.is_in_time_wait(OUR_QPN));
    conversation.peer_receives_nothing(3001 + TIMEWAIT);
    conversation.no_events();
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn dreq_of_a_destroyed_id_is_not_retransmitted_for_ever() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.connected();
    disconnect(&mut conversation, 0, id);
    conversation.peer_receives_one(0);
    conversation.manager.destroy(at(10), id).expect("an id");
    for again in [1500, 3000, REQUEST_INTERVAL, 2 * REQUEST_INTERVAL] {
        conversation.peer_receives_nothing(again - 1);
        assert_eq!(conversation.peer_receives_one(again).name(), "DREQ");
    }
    conversation.peer_receives_nothing(15_010);
    assert_eq!(conversation.manager.table_sizes().ids, 0);
    conversation.peer_receives_nothing(15_010 + TIMEWAIT);
    conversation.instructions();
    conversation.no_events();
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn reject_forgets_a_destroyed_id() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.connected();
    conversation.manager.destroy(at(0), id).expect("an id");
    conversation.peer_receives_one(0);
    let reject = Reject {
        local_id: PEER_ID,
        remote_id: reply.remote_id,
        message: wire::cm::RejectedMessage::Reply,
        reason: RejectReason::StaleConnection,
        ..Reject::default()
    };
    conversation.peer_sends(10, reject);
    conversation.peer_receives_nothing(10 + TIMEWAIT);
    conversation.no_events();
    assert_eq!(conversation.manager.table_sizes(), TableSizes::default());
}

#[test]
fn destroyed_id_cannot_be_used() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.connected();
    conversation.manager.destroy(at(0), id).expect("an id");
    let manager = &mut conversation.manager;
    assert_eq!(manager.phase(id), None);
    assert_eq!(manager.destroy(at(1), id), Err(CallError::UnknownId));
    assert_eq!(manager.disconnect(at(1), id), Err(CallError::UnknownId));
    let bound = manager.bind(id, (US, 0).into());
    assert_eq!(bound, Err(BindError::UnknownId));
    assert_eq!(manager.set_traffic_class(id, 1), Err(CallError::UnknownId));
}

#[test]
fn destroyed_ids_do_not_count_as_ids() {
    let mut conversation = Conversation::with(|config| config.max_ids = 1);
    let (id, _) = conversation.connected();
    conversation.manager.destroy(at(0), id).expect("an id");
    conversation.peer_receives_one(0);
    conversation.resolved(PortSpace::Tcp);
}

/// Many connections that end at once must not keep their ids, in case no peer answers.
#[test]
fn only_1024_destroyed_ids_wait_for_a_response() {
    let mut conversation = Conversation::new();
    let mut connected = Vec::new();
    for number in 0..1030 {
        let (id, request) = conversation.connecting();
        let mut reply = reply_to(&request);
        reply.local_id = CommunicationId::new(0x1_0000 + number);
        reply.local_qpn = Qpn::new(0x1_0000 + number);
        conversation.peer_sends(0, reply);
        conversation.manager.establish(id).expect("a response");
        conversation.peer_receives(0);
        conversation.events();
        connected.push(id);
    }
    for id in connected {
        conversation.manager.destroy(at(0), id).expect("an id");
    }
    assert_eq!(conversation.peer_receives(0).len(), 1030);
    assert_eq!(conversation.manager.table_sizes().ids, 1024);
    assert_eq!(
        conversation.peer_receives(EARLY_RETRANSMISSIONS[0]).len(),
        1024
    );
}

#[test]
fn new_connection_of_the_queue_pair_of_a_destroyed_id_is_not_stale() {
    let mut conversation = Conversation::new();
    let (id, _) = conversation.accepted();
    conversation.manager.destroy(at(10), id).expect("an id");
    assert_eq!(conversation.peer_receives_one(10).name(), "DREQ");
    let mut again = request();
    again.local_id = CommunicationId::new(0x5555);
    conversation.peer_sends(30, again);
    conversation.peer_receives_nothing(30);
    conversation.child_id();
}

#[test]
fn late_request_of_an_ended_connection_is_rejected_as_stale() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    conversation.peer_sends(10, dreq(PEER_ID, reply.local_id));
    conversation
        .manager
        .disconnect(at(20), id)
        .expect("was connected");
    conversation.peer_receives(20);
    conversation.peer_sends(30, request());
    let reject = as_reject(conversation.peer_receives_one(30));
    assert_eq!(reject.reason, RejectReason::StaleConnection);
    assert_eq!(conversation.events(), [ENDED]);
}

#[test]
fn queue_pair_in_time_wait_can_connect_again() {
    let mut conversation = Conversation::new();
    let (id, reply) = conversation.accepted();
    conversation.peer_sends(10, dreq(PEER_ID, reply.local_id));
    conversation
        .manager
        .disconnect(at(20), id)
        .expect("was connected");
    conversation.peer_receives(20);
    conversation.events();
    let mut again = request();
    again.local_id = CommunicationId::new(0x5555);
    conversation.peer_sends(30, again);
    conversation.peer_receives_nothing(30);
    conversation.child_id();
}

#[test]
fn disconnect_fails_before_connect() {
    let mut conversation = Conversation::new();
    let id = conversation.resolved(PortSpace::Tcp);
    let early = conversation.manager.disconnect(at(0), id);
    assert_eq!(early, Err(CallError::WrongState(State::RouteResolved)));
    conversation.manager.destroy(at(0), id).expect("an id");
    let gone = conversation.manager.disconnect(at(0), id);
    assert_eq!(gone, Err(CallError::UnknownId));
    assert_eq!(
        conversation.manager.destroy(at(0), id),
        Err(CallError::UnknownId)
    );
}

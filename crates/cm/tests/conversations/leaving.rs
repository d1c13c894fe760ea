//! Endings.

use cm::{CallError, EventKind, Instruction, Load, Phase, State};
use wire::Qpn;
use wire::cm::{CommunicationId, PortSpace, Reject, RejectReason};

use crate::talk::{
    OUR_QPN, PEER_ID, PEER_QPN, REPLY_INTERVAL, REQUEST_INTERVAL, TIMEWAIT, Talk, as_part,
    as_parted, as_reject, at, part, parted, ready_for, request,
};

const ENDED: EventKind = EventKind::Disconnected { timed_out: false };

#[test]
fn a_good_bye_and_its_answer() {
    let mut talk = Talk::new();
    let (id, reply) = talk.connected();
    talk.manager.disconnect(at(1000), id).expect("connected");
    let qpn = OUR_QPN;
    assert_eq!(talk.is_told_to(), [Instruction::BreakQueuePair { id, qpn }]);
    let said = as_part(talk.hears_one(1000));
    assert_eq!(said.remote_qpn, PEER_QPN);
    assert_eq!((said.local_id, said.remote_id), (reply.remote_id, PEER_ID));
    talk.learns_nothing();
    talk.says(1010, parted(PEER_ID, reply.remote_id));
    assert_eq!(talk.learns(), [ENDED]);
    assert_eq!(talk.manager.state(id), Some(State::Disconnect));
    assert_eq!(talk.manager.phase(id), Some(Phase::TimeWait));
    talk.hears_nothing(1010 + TIMEWAIT - 1);
    talk.learns_nothing();
    assert!(talk.manager.is_lingering(OUR_QPN));
    talk.hears_nothing(1010 + TIMEWAIT);
    assert!(!talk.manager.is_lingering(OUR_QPN));
    assert_eq!(talk.learns(), [EventKind::TimewaitExit]);
    talk.manager.destroy(at(5000), id).expect("an id");
    assert_eq!(talk.manager.load(), Load::default());
}

#[test]
fn a_lost_good_bye_is_repeated() {
    let mut talk = Talk::new();
    let (id, reply) = talk.connected();
    talk.manager.disconnect(at(0), id).expect("connected");
    let said = as_part(talk.hears_one(0));
    assert_eq!(as_part(talk.hears_one(REQUEST_INTERVAL)), said);
    talk.says(REQUEST_INTERVAL + 5, parted(PEER_ID, reply.remote_id));
    assert_eq!(talk.learns(), [ENDED]);
}

#[test]
fn a_dead_peer_does_not_hold_anyone() {
    let mut talk = Talk::new();
    let (id, _) = talk.accepted();
    talk.manager.disconnect(at(0), id).expect("connected");
    talk.hears(0);
    for repetition in 1..=15 {
        talk.hears_one(repetition * REPLY_INTERVAL);
    }
    talk.hears_nothing(16 * REPLY_INTERVAL);
    let event = talk.learns_one();
    assert_eq!(event, EventKind::Disconnected { timed_out: true });
    assert_eq!(event.status(), -110);
    talk.hears_nothing(16 * REPLY_INTERVAL + TIMEWAIT);
    assert_eq!(talk.learns(), [EventKind::TimewaitExit]);
}

#[test]
fn the_peer_says_good_bye() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    let said = part(PEER_ID, reply.local_id);
    talk.says(1000, said);
    assert_eq!(talk.learns(), [ENDED]);
    talk.hears_nothing(1000);
    talk.says(5096, said);
    talk.hears_nothing(5096);
    talk.manager
        .disconnect(at(6000), id)
        .expect("was connected");
    let answer = as_parted(talk.hears_one(6000));
    assert_eq!(
        (answer.local_id, answer.remote_id),
        (reply.local_id, PEER_ID)
    );
    // The answer was lost.
    talk.says(6100, said);
    assert_eq!(as_parted(talk.hears_one(6100)), answer);
    talk.hears_nothing(6000 + TIMEWAIT);
    assert_eq!(talk.learns(), [EventKind::TimewaitExit]);
    let again = talk.manager.disconnect(at(9000), id);
    again.expect("Linux does not mind either");
    talk.hears_nothing(9000);
}

#[test]
fn a_good_bye_before_the_rtu() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepting();
    talk.says(10, part(PEER_ID, reply.local_id));
    assert_eq!(talk.learns(), [ENDED]);
    talk.hears_nothing(10 * REPLY_INTERVAL);
    talk.manager.destroy(at(50_000), id).expect("an id");
    assert_eq!(talk.hears_one(50_000).name(), "DREP");
    talk.says(50_001, ready_for(&reply));
    talk.learns_nothing();
}

#[test]
fn both_say_good_bye_at_once() {
    let mut talk = Talk::new();
    let (id, reply) = talk.connected();
    talk.manager.disconnect(at(0), id).expect("connected");
    talk.hears_one(0);
    talk.says(5, part(PEER_ID, reply.remote_id));
    assert_eq!(talk.hears_one(5).name(), "DREP");
    assert_eq!(talk.learns(), [ENDED]);
    talk.says(6, parted(PEER_ID, reply.remote_id));
    talk.learns_nothing();
    talk.hears_nothing(5 + TIMEWAIT);
    assert_eq!(talk.learns(), [EventKind::TimewaitExit]);
}

#[test]
fn a_good_bye_to_nobody_is_answered() {
    let mut talk = Talk::new();
    let stranger = CommunicationId::new(0x4242);
    talk.says(0, part(PEER_ID, stranger));
    let answer = as_parted(talk.hears_one(0));
    assert_eq!((answer.local_id, answer.remote_id), (stranger, PEER_ID));
    assert_eq!(talk.manager.load(), Load::default());
}

#[test]
fn a_good_bye_to_another_queue_pair_is_ignored() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    let mut wrong = part(PEER_ID, reply.local_id);
    wrong.remote_qpn = Qpn::new(0x999);
    talk.says(0, wrong);
    talk.hears_nothing(0);
    talk.learns_nothing();
    assert_eq!(talk.manager.phase(id), Some(Phase::Established));
}

#[test]
fn a_refusal_ends_a_connection() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    let refusal = Reject {
        local_id: PEER_ID,
        remote_id: reply.local_id,
        message: wire::cm::RefusedMessage::Reply,
        reason: RejectReason::StaleConnection,
        ..Reject::default()
    };
    talk.says(10, refusal);
    assert_eq!(talk.learns_one().status(), 10);
    assert_eq!(talk.manager.phase(id), Some(Phase::TimeWait));
    talk.says(11, refusal);
    talk.learns_nothing();
}

#[test]
fn destroying_a_connection_says_good_bye_once() {
    let mut talk = Talk::new();
    let (id, reply) = talk.connected();
    talk.manager.destroy(at(10), id).expect("an id");
    assert_eq!(talk.hears_one(10).name(), "DREQ");
    assert!(talk.manager.is_lingering(OUR_QPN));
    talk.says(20, part(PEER_ID, reply.remote_id));
    assert_eq!(talk.hears_one(20).name(), "DREP");
    talk.hears_nothing(10 + TIMEWAIT);
    assert_eq!(talk.manager.load(), Load::default());
}

#[test]
fn destroying_while_the_good_bye_is_under_way() {
    let mut talk = Talk::new();
    let (id, _) = talk.connected();
    talk.manager.disconnect(at(0), id).expect("connected");
    talk.hears_one(0);
    talk.manager.destroy(at(10), id).expect("an id");
    talk.hears_nothing(100_000);
    talk.is_told_to();
    assert_eq!(talk.manager.load(), Load::default());
}

#[test]
fn a_late_request_of_an_ended_connection_is_stale() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    talk.says(10, part(PEER_ID, reply.local_id));
    talk.manager.disconnect(at(20), id).expect("was connected");
    talk.hears(20);
    talk.says(30, request());
    let refusal = as_reject(talk.hears_one(30));
    assert_eq!(refusal.reason, RejectReason::StaleConnection);
    assert_eq!(talk.learns(), [ENDED]);
}

#[test]
fn a_new_connection_of_the_same_queue_pair_need_not_wait() {
    let mut talk = Talk::new();
    let (id, reply) = talk.accepted();
    talk.says(10, part(PEER_ID, reply.local_id));
    talk.manager.disconnect(at(20), id).expect("was connected");
    talk.hears(20);
    talk.learns();
    let mut again = request();
    again.local_id = CommunicationId::new(0x5555);
    talk.says(30, again);
    talk.hears_nothing(30);
    talk.asked();
}

#[test]
fn there_is_nothing_to_end_before_a_beginning() {
    let mut talk = Talk::new();
    let id = talk.resolved(PortSpace::Tcp);
    let early = talk.manager.disconnect(at(0), id);
    assert_eq!(early, Err(CallError::WrongState(State::RouteResolved)));
    talk.manager.destroy(at(0), id).expect("an id");
    let gone = talk.manager.disconnect(at(0), id);
    assert_eq!(gone, Err(CallError::UnknownId));
    assert_eq!(talk.manager.destroy(at(0), id), Err(CallError::UnknownId));
}

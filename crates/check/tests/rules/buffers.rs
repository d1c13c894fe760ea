//! The local memory of requests.

use check::Rule;
use engine::observation::{Discarded, RemoteAccessKind};
use engine::{CompletedWork, Observation, QueuePairType, Work};

use crate::program::{Program, local, remote};

fn program() -> Program {
    Program::new(QueuePairType::Rc)
}

#[test]
fn a_read_into_memory_that_another_queue_pair_sends_conflicts() {
    let (send, read) = (Work::Send, Work::Read(remote(0)));
    for (first, second) in [(send, read), (read, send)] {
        let mut program = program();
        assert_eq!(program.post_from(0, first, local(0)), []);
        let found = program.post_from(1, second, local(7));
        assert_eq!(found, [Rule::OverlappingRequests]);
    }
}

#[test]
fn a_read_into_memory_that_was_sent_before_by_the_same_queue_pair_is_in_order() {
    let mut program = program();
    program.post_from(0, Work::Send, local(0));
    assert_eq!(program.post_from(0, Work::Read(remote(0)), local(0)), []);
}

#[test]
fn a_send_of_memory_that_an_earlier_read_fills_needs_a_fence() {
    let mut program = program();
    program.post_from(0, Work::Read(remote(0)), local(0));
    let found = program.post_from(0, Work::Send, local(0));
    assert_eq!(found, [Rule::OverlappingRequests]);
}

#[test]
fn requests_that_only_send_the_same_memory_do_not_conflict() {
    let mut program = program();
    program.post_from(0, Work::Send, local(0));
    program.post_from(0, Work::Read(remote(0)), local(100));
    assert_eq!(program.post_from(1, Work::Send, local(0)), []);
}

#[test]
fn results_and_receives_do_not_share_memory() {
    let mut program = program();
    program.post_from(0, Work::Read(remote(0)), local(0));
    let found = program.post_from(1, Work::Read(remote(64)), local(0));
    assert_eq!(found, [Rule::SharedTarget]);
    assert_eq!(program.post_receive(0, local(100)), []);
    assert_eq!(program.post_receive(1, local(107)), [Rule::SharedTarget]);
    assert_eq!(program.post_receive(1, local(200)), []);
}

#[test]
fn memory_of_receives_is_free_when_their_queue_pair_is_reset() {
    let mut program = program();
    assert_eq!(program.post_receive(0, local(0)), []);
    program.observe(Observation::QueuePairReset(Discarded {
        queue_pair: program.queue_pairs[0],
        sends: 0,
        failure: None,
    }));
    assert_eq!(program.post_receive(1, local(0)), []);
}

#[test]
fn memory_is_free_when_the_program_knows_that_its_request_has_ended() {
    let read = Work::Read(remote(0));
    let mut program = program();
    program.post_from(0, Work::Send, local(0));
    program.post_from(0, Work::Send, local(100));
    program.end(0);
    program.poll(0, CompletedWork::Send);
    assert_eq!(program.post_from(1, read, local(0)), []);
    // A message of the peer tells only of requests that have ended.
    program.poll(0, CompletedWork::Receive);
    let found = program.post_from(1, read, local(100));
    assert_eq!(found, [Rule::OverlappingRequests]);
}

#[test]
fn a_result_that_the_device_stores_is_no_change_by_the_program() {
    let mut program = program();
    program.post_from(0, Work::Send, local(0));
    program.end(0);
    assert_eq!(program.change(0), [Rule::BufferChanged]);
    program.post_from(0, Work::Read(remote(0)), local(0));
    assert_eq!(program.change(0), []);
}

/// Of a program that polls no completions, the checker forgets requests that have ended, and no others.
#[test]
fn memory_of_a_request_that_has_not_ended_is_never_forgotten() {
    let mut program = program();
    program.post(0, Work::Send, false, false);
    program.post_from(0, Work::Send, local(0));
    for _ in 0..100 {
        program.post(0, Work::Send, false, false);
    }
    program.end(0);
    program.post(0, Work::Send, false, false);
    let found = program.post_from(1, Work::Read(remote(0)), local(0));
    assert_eq!(found, [Rule::OverlappingRequests]);
}

#[test]
fn a_peer_does_not_access_the_memory_of_an_outstanding_request_of_another_queue_pair() {
    let (read, write) = (RemoteAccessKind::Read, RemoteAccessKind::Write);
    let (sends, stores) = (Work::Send, Work::Read(remote(0)));
    for (work, kind, conflicts) in [
        (sends, write, true),
        (sends, read, false),
        (stores, write, true),
        (stores, read, true),
    ] {
        let mut program = program();
        program.post_from(0, work, local(0));
        assert_eq!(program.access(1, kind, 8, 8), [], "beside it");
        let found = program.access(1, kind, 7, 1);
        assert_eq!(found == [Rule::RemoteAccessToBuffer], conflicts, "{work:?}");
        program.end(0);
        assert_eq!(program.access(1, kind, 0, 8), [], "the peer may know that");
    }
}

#[test]
fn a_receive_that_only_the_program_can_have_changed_is_reported() {
    let mut program = program();
    program.access(1, RemoteAccessKind::Write, 0, 8);
    program.post_receive(0, local(0));
    program.post_receive(0, local(100));
    program.access(1, RemoteAccessKind::Write, 8, 92);
    assert_eq!(program.change_receive(0), [Rule::ReceiveChanged]);
}

#[test]
fn a_receive_whose_memory_the_device_stores_to_is_not_compared() {
    let mut written = program();
    written.post_receive(0, local(0));
    written.access(1, RemoteAccessKind::Write, 4, 8);
    assert_eq!(written.change_receive(0), []);
    let mut read_into = program();
    read_into.post_from(1, Work::Read(remote(0)), local(0));
    read_into.post_receive(0, local(0));
    assert_eq!(read_into.change_receive(0), []);
}

/// As the buffer of a ping-pong: the program fills it before it sends.
#[test]
fn a_receive_whose_memory_is_also_sent_is_not_compared() {
    let mut program = program();
    program.post_receive(0, local(0));
    program.post_from(0, Work::Send, local(0));
    program.end(0);
    program.poll(0, CompletedWork::Send);
    assert_eq!(program.change_receive(0), []);
}

/// The check remembers only so much of what the device did.
#[test]
fn a_receive_that_waited_for_long_is_not_compared() {
    let mut program = program();
    program.post_receive(0, local(0));
    for _ in 0..5000 {
        program.access(1, RemoteAccessKind::Write, 8, 8);
    }
    assert_eq!(program.change_receive(0), []);
}

//! Races, as a target and an initiator see them.

use check::Rule;
use engine::observation::{Peer, RemoteAccessKind};
use engine::{CompletedWork, Observation, QueuePairType, Work};
use wire::Qpn;

use crate::program::{KEY, OWN, PEER, Program, connection, remote};

#[test]
fn two_unanswered_accesses_race_if_one_writes() {
    use RemoteAccessKind::{Atomic, Read, Write};
    let races = [
        (Write, Write, true),
        (Write, Read, true),
        (Read, Write, true),
        (Write, Atomic, true),
        (Atomic, Read, true),
        (Read, Read, false),
        (Atomic, Atomic, false),
    ];
    for (first, second, race) in races {
        let mut program = Program::new(QueuePairType::Rc);
        assert_eq!(program.access(0, first, 0, 8), []);
        let found = program.access(1, second, 7, 8);
        assert_eq!(found == [Rule::TargetRace], race, "{first:?} {second:?}");
    }
}

#[test]
fn an_access_after_the_answer_to_the_other_does_not_race() {
    let mut program = Program::new(QueuePairType::Rc);
    program.access(0, RemoteAccessKind::Write, 0, 8);
    program.answer(0);
    assert_eq!(program.access(1, RemoteAccessKind::Write, 0, 8), []);
}

#[test]
fn accesses_through_one_queue_pair_or_to_other_bytes_do_not_race() {
    let mut program = Program::new(QueuePairType::Rc);
    program.access(0, RemoteAccessKind::Write, 0, 8);
    assert_eq!(program.access(0, RemoteAccessKind::Write, 0, 8), []);
    assert_eq!(program.access(1, RemoteAccessKind::Write, 8, 8), []);
}

#[test]
fn all_packets_of_a_message_count_until_it_is_answered() {
    let mut program = Program::new(QueuePairType::Rc);
    program.access(0, RemoteAccessKind::Write, 0, 1024);
    program.access(0, RemoteAccessKind::Write, 1024, 1024);
    let found = program.access(1, RemoteAccessKind::Read, 100, 8);
    assert_eq!(found, [Rule::TargetRace]);
}

/// A peer that sends many packets before one is answered does not fill the memory.
#[test]
fn only_the_newest_unanswered_accesses_are_compared() {
    const REMEMBERED: u64 = 4096;
    let mut program = Program::new(QueuePairType::Rc);
    for place in 0..=REMEMBERED {
        assert_eq!(program.access(0, RemoteAccessKind::Read, 8 * place, 8), []);
    }
    assert_eq!(program.access(1, RemoteAccessKind::Write, 0, 8), []);
    let found = program.access(1, RemoteAccessKind::Write, 8 * REMEMBERED, 8);
    assert_eq!(found, [Rule::TargetRace]);
}

#[test]
fn unreliable_writes_are_never_answered_and_not_compared() {
    let mut program = Program::new(QueuePairType::Uc);
    program.access(0, RemoteAccessKind::Write, 0, 8);
    assert_eq!(program.access(1, RemoteAccessKind::Write, 0, 8), []);
}

#[test]
fn a_request_that_has_ended_races_until_its_completion_is_polled() {
    let mut program = Program::new(QueuePairType::Rc);
    assert_eq!(program.write(0, true), []);
    program.end(0);
    assert_eq!(program.write(1, true), [Rule::RemoteRace]);
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, true);
    program.end(0);
    program.poll(0, CompletedWork::Write);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_later_completion_covers_unsignaled_requests() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.write(0, true);
    program.end(0);
    program.end(0);
    program.poll(0, CompletedWork::Write);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_message_of_the_peer_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.end(0);
    program.poll(0, CompletedWork::Receive);
    assert_eq!(program.write(1, true), []);
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.poll(0, CompletedWork::Receive);
    assert_eq!(program.write(1, true), [Rule::RemoteRace]);
}

#[test]
fn a_message_through_another_queue_pair_of_the_peer_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.end(0);
    program.poll(1, CompletedWork::Receive);
    assert_eq!(program.write(1, true), []);
}

/// The device has compared all its messages before the program polls one.
#[test]
fn a_message_within_one_device_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    let [first, second] = program.queue_pairs;
    for (number, queue_pair) in [(first, second), (second, first)] {
        let peer = Peer {
            own: PEER,
            address: PEER,
            queue_pair,
        };
        program.observe(Observation::Connected(number, peer));
    }
    program.write(1, false);
    program.end(1);
    program.poll(0, CompletedWork::Receive);
    assert_eq!(program.write(0, true), []);
}

#[test]
fn a_write_of_the_peer_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.end(0);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_fence_orders_all_later_requests_behind_earlier_reads() {
    let read = Work::Read(remote(0));
    let (same, other) = (Work::Write(remote(0)), Work::Write(remote(64)));
    let mut program = Program::new(QueuePairType::Rc);
    program.post(0, read, false, false);
    assert_eq!(program.post(0, other, false, true), []);
    assert_eq!(program.post(0, same, false, false), []);
    program.post(0, Work::Read(remote(128)), false, false);
    let late = Work::Write(remote(128));
    assert_eq!(program.post(0, late, false, false), [Rule::MissingFence]);
}

#[test]
fn a_message_may_change_when_a_message_of_the_peer_was_polled() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, true);
    program.end(0);
    assert_eq!(program.change(0), [Rule::BufferChanged]);
    for through in [0, 1] {
        let mut program = Program::new(QueuePairType::Rc);
        program.write(0, true);
        program.end(0);
        program.poll(through, CompletedWork::Receive);
        assert_eq!(program.change(0), []);
    }
}

#[test]
fn a_message_may_change_when_the_peer_has_written_memory() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, true);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    program.end(0);
    assert_eq!(program.change(0), [Rule::BufferChanged]);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    assert_eq!(program.change(0), []);
}

/// Two queue pairs of this process are connected with each other.
#[test]
fn a_write_of_this_process_says_nothing_about_the_requests_that_send_it() {
    let mut program = Program::new(QueuePairType::Rc);
    let [here, there] = program.queue_pairs;
    for (number, queue_pair) in [(here, there), (there, here)] {
        let peer = Peer {
            own: OWN,
            address: OWN,
            queue_pair,
        };
        program.observe(Observation::Connected(number, peer));
    }
    program.write(1, true);
    program.end(1);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    assert_eq!(program.change(1), [Rule::BufferChanged]);
}

#[test]
fn connections_and_requests_to_peers_are_told_to_other_processes() {
    let mut program = Program::new(QueuePairType::Rc);
    program.checker = program.checker.with_processes(1, 1);
    let number = program.queue_pairs[0];
    let is_told = |program: &mut Program| !program.checker.take_records().is_empty();
    // The process itself.
    assert!(is_told(&mut program) && !is_told(&mut program));
    let peer = Peer {
        queue_pair: Qpn::new(7),
        ..connection(number)
    };
    program.observe(Observation::Connected(number, peer));
    assert!(is_told(&mut program));
    program.post(0, Work::LocalInvalidate(KEY), true, false);
    assert!(!is_told(&mut program));
    program.write(0, true);
    assert!(is_told(&mut program));
}

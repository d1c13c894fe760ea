//! Queue pairs, regions and receives that begin too late or end too early.

use check::Rule;
use engine::observation::{Discarded, RemoteAccess, RemoteAccessKind};
use engine::{Access, Observation, QueuePairType, Registration};
use wire::{Key, Qpn, RnrTimer};

use crate::program::{KEY, Program, local};

fn program() -> Program {
    Program::new(QueuePairType::Rc)
}

fn destroyed(queue_pair: Qpn, sends: usize) -> Observation {
    Observation::QueuePairDestroyed(Discarded {
        queue_pair,
        sends,
        failure: None,
    })
}

fn short_timer() -> RnrTimer {
    RnrTimer::new(1).expect("a code of five bits")
}

#[test]
fn a_message_before_the_first_receive_is_found_and_a_later_one_is_not() {
    let mut program = program();
    let number = program.queue_pairs[0];
    let too_early = Observation::ReceiverNotReady(number, short_timer());
    assert_eq!(program.observe(too_early.clone()), [Rule::NoReceiveYet]);
    program.post_receive(0, local(0));
    assert_eq!(program.observe(too_early), []);
}

#[test]
fn the_longest_timer_is_found_when_a_peer_waits_for_it() {
    let mut program = program();
    let number = program.queue_pairs[0];
    program.post_receive(0, local(0));
    let waits = Observation::ReceiverNotReady(number, RnrTimer::default());
    assert_eq!(program.observe(waits), [Rule::LongestRnrTimer]);
}

#[test]
fn a_single_outstanding_request_of_a_destroyed_queue_pair_is_found() {
    let mut program = program();
    let [first, second] = program.queue_pairs;
    assert_eq!(program.observe(destroyed(first, 0)), []);
    let found = program.observe(destroyed(second, 1));
    assert_eq!(found, [Rule::DestroyedWithSends]);
}

#[test]
fn a_destroyed_queue_pair_is_forgotten() {
    let mut program = program();
    let number = program.queue_pairs[0];
    program.observe(destroyed(number, 0));
    let late = Observation::ReceiverNotReady(number, short_timer());
    assert_eq!(program.observe(late), []);
}

#[test]
fn a_key_is_known_as_deregistered_until_it_is_used_again() {
    let mut program = program();
    let registered = |length| Observation::Registered {
        accelerated: false,
        region: Registration {
            local_key: KEY,
            remote_key: KEY,
            address: 0,
            length,
        },
        access: Access::REMOTE_WRITE,
        memory: Some(0),
    };
    let rejected = Observation::AccessRejected(RemoteAccess {
        queue_pair: program.queue_pairs[0],
        kind: RemoteAccessKind::Write,
        key: KEY,
        address: 1000,
        length: 8,
        message: 0,
    });
    program.observe(registered(4096));
    assert_eq!(program.observe(rejected.clone()), []);
    program.observe(Observation::Deregistered {
        key: KEY,
        changed: None,
    });
    let found = program.observe(rejected.clone());
    assert_eq!(found, [Rule::KeyAfterDeregistration]);
    // The access is outside of the new region, which may be what the peer means all the same.
    program.observe(registered(64));
    assert_eq!(program.observe(rejected), []);
}

#[test]
fn several_deregistered_keys_are_remembered() {
    let mut program = program();
    let keys = [0x1111, 0x2222].map(Key::new);
    for key in keys {
        let region = Registration {
            local_key: key,
            remote_key: key,
            address: 0,
            length: 64,
        };
        program.observe(Observation::Registered {
            region,
            access: Access::REMOTE_WRITE,
            memory: Some(0),
            accelerated: false,
        });
        program.observe(Observation::Deregistered { key, changed: None });
    }
    for key in keys {
        let rejected = Observation::AccessRejected(RemoteAccess {
            queue_pair: program.queue_pairs[0],
            kind: RemoteAccessKind::Write,
            key,
            address: 0,
            length: 8,
            message: 0,
        });
        let found = program.observe(rejected);
        assert_eq!(found, [Rule::KeyAfterDeregistration], "{key}");
    }
}

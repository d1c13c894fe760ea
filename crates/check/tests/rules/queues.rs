//! Queues have room for what the program posts.

use check::Rule;
use engine::{CompletedWork, QueuePairType};

use crate::program::{Program, SEND_QUEUE, local};

#[test]
fn a_full_send_queue_without_a_signaled_request_is_found_once() {
    let mut program = Program::new(QueuePairType::Rc);
    for _ in 0..SEND_QUEUE {
        assert_eq!(program.write(0, false), []);
    }
    assert_eq!(program.write(0, false), [Rule::NeverSignaled]);
    assert_eq!(program.write(0, false), []);
}

#[test]
fn signaled_requests_that_are_not_polled_fill_the_send_queue() {
    let mut program = Program::new(QueuePairType::Rc);
    for _ in 0..SEND_QUEUE {
        assert_eq!(program.write(0, true), []);
    }
    assert_eq!(program.write(0, true), [Rule::SendQueueNotPolled]);
}

#[test]
fn completions_of_sends_fit_into_their_queue_and_polls_make_room() {
    let mut program = Program::with_room(QueuePairType::Rc, 2);
    for _ in 0..2 {
        assert_eq!(program.write(0, true), []);
        assert_eq!(program.write(0, true), []);
        for _ in 0..2 {
            program.end(0);
            program.poll(0, CompletedWork::Write);
        }
    }
    assert_eq!(program.write(0, true), []);
    assert_eq!(program.write(0, true), []);
    let found = program.write(0, true);
    assert_eq!(found, [Rule::CompletionQueueTooSmall]);
}

#[test]
fn completions_of_receives_fit_into_their_queue() {
    let mut program = Program::with_room(QueuePairType::Rc, 2);
    assert_eq!(program.post_receive(0, local(0)), []);
    assert_eq!(program.post_receive(1, local(8)), []);
    let found = program.post_receive(0, local(16));
    assert_eq!(found, [Rule::TooManyReceives]);
}

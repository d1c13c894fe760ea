//! Every order in which threads push, poll and arm. A poll of an idle queue takes no lock.

use std::sync::Arc;

use loom::thread;

use super::tests::{completion, queue};
use super::{ArmOutcome, Notify, PushOutcome, Status};

#[test]
fn a_poll_without_the_lock_loses_no_completion() {
    for pushes in 1..=2 {
        loom::model(move || {
            let queue = Arc::new(queue(4));
            let theirs = Arc::clone(&queue);
            let pusher = thread::spawn(move || {
                for _ in 0..pushes {
                    theirs.push(completion(Status::Success), false);
                }
            });
            let polled = (0..2).filter_map(|_| queue.pop()).count();
            pusher.join().expect("no panic");
            let left = std::iter::from_fn(|| queue.pop()).count();
            assert_eq!(polled + left, pushes);
        });
    }
}

#[test]
fn two_pollers_take_each_completion_once() {
    loom::model(|| {
        let queue = Arc::new(queue(4));
        queue.push(completion(Status::Success), false);
        let theirs = Arc::clone(&queue);
        let poller = thread::spawn(move || usize::from(theirs.pop().is_some()));
        queue.push(completion(Status::Success), false);
        let ours = usize::from(queue.pop().is_some());
        let theirs = poller.join().expect("no panic");
        let left = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!(ours + theirs + left, 2);
    });
}

/// As programs wait: arm, poll once more, sleep for the notification.
#[test]
fn a_program_that_arms_and_polls_nothing_is_notified() {
    loom::model(|| {
        let queue = Arc::new(queue(4));
        let theirs = Arc::clone(&queue);
        let pusher = thread::spawn(move || theirs.push(completion(Status::Success), false));
        let armed = queue.arm(Notify::Any);
        let sleeps = queue.pop().is_none();
        let pushed = pusher.join().expect("no panic");
        if sleeps {
            assert_eq!(armed, ArmOutcome::Armed);
            assert_eq!(pushed.outcome, PushOutcome::Notify);
        }
    });
}

/// As other programs wait: poll, arm, sleep for the notification.
#[test]
fn a_program_that_arms_and_sleeps_is_notified_once() {
    loom::model(|| {
        let queue = Arc::new(queue(4));
        let theirs = Arc::clone(&queue);
        let pusher = thread::spawn(move || theirs.push(completion(Status::Success), false));
        let sleeps = queue.pop().is_none();
        let armed = queue.arm(Notify::Any);
        let pushed = pusher.join().expect("no panic");
        if sleeps {
            let at_once = armed == ArmOutcome::Notify;
            let later = pushed.outcome == PushOutcome::Notify;
            assert!(at_once != later);
        }
    });
}

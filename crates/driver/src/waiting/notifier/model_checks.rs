//! Every order in which notifications are added and taken. The descriptors are real ones.

use std::sync::Arc;

use loom::thread;

use super::Notifier;
use super::tests::readable;
use crate::waiting::deferred_wakeups::deliver_after;

fn notifier() -> Arc<Notifier> {
    let notifier = Notifier::new().expect("a descriptor");
    notifier.expose();
    Arc::new(notifier)
}

/// A program that waits for the descriptor would sleep forever, or wake up again and again.
fn assert_readable_if_there_is_one(notifier: &Notifier) {
    assert_eq!(readable(notifier.expose()), notifier.has_notification());
}

/// As a thread waits in the library: enter, check, sleep.
#[test]
fn a_notification_is_seen_by_the_check_or_ends_the_sleep() {
    loom::model(|| {
        let notifier = Arc::new(Notifier::without_descriptor());
        let theirs = Arc::clone(&notifier);
        let adding = thread::spawn(move || {
            // As under a lane's lock: the wake-up comes after it.
            deliver_after(|| theirs.notify(1));
        });
        let sleeper = notifier.waiting().enter();
        let sleeps = !notifier.has_notification() && !sleeper.was_woken();
        adding.join().expect("no panic");
        assert!(notifier.has_notification());
        assert!(!sleeps || sleeper.was_woken(), "it sleeps forever");
    });
}

#[test]
fn the_descriptor_is_readable_exactly_while_there_is_a_notification() {
    for number in 1..=2 {
        loom::model(move || {
            let notifier = notifier();
            let theirs = Arc::clone(&notifier);
            let adding = thread::spawn(move || (1..=number).for_each(|it| theirs.notify(it)));
            let taken = notifier.take();
            adding.join().expect("no panic");
            assert_readable_if_there_is_one(&notifier);
            let left = std::iter::from_fn(|| notifier.take());
            assert_eq!(taken.into_iter().chain(left).count() as u64, number);
            assert!(!readable(notifier.expose()));
        });
    }
}

/// While a thread polls for packets, the descriptor is not raised for what it will take.
#[test]
fn a_notification_that_a_poller_leaves_raises_the_descriptor() {
    loom::model(|| {
        let notifier = notifier();
        let theirs = Arc::clone(&notifier);
        let adding = thread::spawn(move || theirs.notify(1));
        let taken = notifier.take_after(|| notifier.notify(2));
        adding.join().expect("no panic");
        assert!(taken.is_some());
        assert_readable_if_there_is_one(&notifier);
        let left = std::iter::from_fn(|| notifier.take()).count();
        assert_eq!(left, 1);
        assert!(!readable(notifier.expose()));
    });
}

/// A queue is destroyed while its notification is on the way.
#[test]
fn a_notification_that_is_forgotten_leaves_the_descriptor_unreadable() {
    loom::model(|| {
        let notifier = notifier();
        let theirs = Arc::clone(&notifier);
        let adding = thread::spawn(move || theirs.notify(1));
        notifier.forget(1);
        adding.join().expect("no panic");
        assert_readable_if_there_is_one(&notifier);
        notifier.forget(1);
        assert!(!readable(notifier.expose()));
    });
}

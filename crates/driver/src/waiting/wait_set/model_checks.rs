//! Every order in which threads enter a set, are woken and leave it. The descriptors are real ones.

use std::sync::Arc;

use loom::thread;

use super::tests::is_readable;
use super::{Ordering, Sleeper, WaitSet, Wakeup};
use crate::sync::AtomicBool;

/// As every waiter does it: enter, check, sleep at the descriptor.
#[test]
fn a_change_is_seen_by_the_check_or_ends_the_sleep() {
    loom::model(|| {
        let set = Arc::new(WaitSet::default());
        let changed = Arc::new(AtomicBool::new(false));
        let (waking, change) = (Arc::clone(&set), Arc::clone(&changed));
        let waker = thread::spawn(move || {
            change.store(true, Ordering::Relaxed);
            waking.wake_all();
        });
        let sleeper = set.enter();
        let sleeps = !changed.load(Ordering::Relaxed) && !sleeper.was_woken();
        waker.join().expect("no panic");
        if sleeps {
            assert!(is_readable(&sleeper), "it sleeps forever");
            assert!(sleeper.was_woken());
        }
    });
}

/// What the waker wrote before is visible to a thread that sees the wake-up.
#[test]
fn a_woken_thread_sees_the_change() {
    loom::model(|| {
        let set = Arc::new(WaitSet::default());
        let changed = Arc::new(AtomicBool::new(false));
        let (waking, change) = (Arc::clone(&set), Arc::clone(&changed));
        let sleeper = set.enter();
        let waker = thread::spawn(move || {
            change.store(true, Ordering::Relaxed);
            waking.wake_all();
        });
        if sleeper.was_woken() {
            assert!(changed.load(Ordering::Relaxed));
        }
        waker.join().expect("no panic");
    });
}

/// As a thread that watches several queues does it: it enters, checks, sleeps, is woken by packets, and sleeps again. In each order the
/// wake-up is noted while it is awake, or makes its descriptor readable.
#[test]
fn a_thread_that_sleeps_twice_in_its_sets_misses_no_wake_up() {
    loom::model(|| {
        let set = Arc::new(WaitSet::default());
        let wakeup = Wakeup::obtain();
        wakeup.begin();
        set.add_thread(&wakeup);
        let waking = Arc::clone(&set);
        let waker = thread::spawn(move || waking.wake_all());
        drop(Sleeper::of(&wakeup));
        let sleeper = Sleeper::of(&wakeup);
        let sleeps = !sleeper.was_woken();
        waker.join().expect("no panic");
        assert!(!sleeps || is_readable(&sleeper), "it sleeps forever");
        assert!(sleeper.was_woken());
        drop(sleeper);
        set.remove_thread(&wakeup);
        wakeup.end();
        let next = set.enter();
        assert!(!next.was_woken() && !is_readable(&next));
    });
}

/// A descriptor that stays readable without a wake-up would end every later sleep at once; one that is not readable after
/// a wake-up would sleep forever.
#[test]
fn a_descriptor_that_is_reused_is_readable_exactly_if_its_sleeper_was_woken() {
    loom::model(|| {
        let set = Arc::new(WaitSet::default());
        let waking = Arc::clone(&set);
        let waker = thread::spawn(move || waking.wake_all());
        drop(set.enter());
        let next = set.enter();
        waker.join().expect("no panic");
        assert_eq!(is_readable(&next), next.was_woken());
    });
}

#[test]
fn every_thread_in_the_set_is_woken_by_one_of_two_wakers() {
    loom::model(|| {
        let set = Arc::new(WaitSet::default());
        let sleepers = [set.enter(), set.enter()];
        let waking = Arc::clone(&set);
        let waker = thread::spawn(move || waking.wake_all());
        set.wake_all();
        assert!(sleepers.iter().all(|it| it.was_woken() && is_readable(it)));
        waker.join().expect("no panic");
        drop(sleepers);
        assert!(!set.enter().was_woken(), "no wake-up is left");
    });
}

//! Every order in which the lane's thread and a thread of the program hand the sockets to each other.

use std::time::Instant;

use loom::sync::Arc;
use loom::thread;

use super::{Duty, STANDBY, Turn};

fn turn() -> (Arc<Turn>, Instant) {
    let start = Instant::now();
    (Arc::new(Turn::new(start, 1)), start)
}

/// If neither noticed the other, nobody would serve the sockets.
#[test]
fn a_sleeper_that_leaves_wakes_the_parked_thread_or_is_seen_by_it() {
    loom::model(|| {
        let (turn, start) = turn();
        assert!(turn.enter_sleepers());
        let thread = Arc::clone(&turn);
        let sleeps = thread::spawn(move || thread.fall_asleep(Duty::Timers, start));
        let wakes = turn.leave_sleepers();
        assert!(wakes || !sleeps.join().expect("no panic"));
    });
}

/// If neither noticed the other, the program's packets would wait for the rest of the back-off.
#[test]
fn a_program_that_arms_wakes_the_thread_that_stands_by_or_is_seen_by_it() {
    loom::model(|| {
        let (turn, start) = turn();
        let thread = Arc::clone(&turn);
        let duty = Duty::Standby(start + STANDBY);
        let sleeps = thread::spawn(move || thread.fall_asleep(duty, start));
        let wakes = turn.note_armed(start);
        assert!(wakes || !sleeps.join().expect("no panic"));
    });
}

/// Two threads that leave: the last of them wakes the thread, or is seen.
#[test]
fn the_last_of_two_sleepers_wakes_the_parked_thread_or_is_seen_by_it() {
    loom::model(|| {
        let (turn, start) = turn();
        assert!(turn.enter_sleepers() && turn.enter_sleepers());
        let thread = Arc::clone(&turn);
        let sleeps = thread::spawn(move || thread.fall_asleep(Duty::Timers, start));
        let other = Arc::clone(&turn);
        let other = thread::spawn(move || other.leave_sleepers());
        let wakes = turn.leave_sleepers();
        let wakes = other.join().expect("no panic") || wakes;
        assert!(wakes || !sleeps.join().expect("no panic"));
    });
}

/// The thread is woken once by several threads that took the wake-up of the sleepers.
#[test]
fn one_of_two_threads_that_take_a_wake_up_wakes_the_thread() {
    loom::model(|| {
        let (turn, start) = turn();
        turn.plan_sleep(None);
        let other = Arc::clone(&turn);
        let other = thread::spawn(move || other.note_wakeup_taken(start));
        let wakes = turn.note_wakeup_taken(start);
        assert!(wakes != other.join().expect("no panic"));
    });
}

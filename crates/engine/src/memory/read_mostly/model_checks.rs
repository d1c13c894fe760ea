//! Every order in which readers and writers take the locks.
//!
//! Loom's lock can't be read twice by one thread; the unit tests, also under Miri, have that.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::ReadMostly;

/// A value of which loom reports an access while another thread changes it.
struct Watched(UnsafeCell<u64>);

// SAFETY: loom checks that threads do not access it at the same time; that is what these checks are about.
unsafe impl Sync for Watched {}

impl Watched {
    fn value(&self) -> u64 {
        // SAFETY: loom ends the check if another thread changes the value.
        self.0.with(|value| unsafe { *value })
    }

    fn add_one(&mut self) {
        // SAFETY: loom ends the check if another thread has access.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

fn watched() -> Arc<ReadMostly<Watched>> {
    Arc::new(ReadMostly::new(Watched(UnsafeCell::new(0))))
}

#[test]
fn a_writer_excludes_the_readers_of_every_shard() {
    loom::model(|| {
        let shared = watched();
        let readers = [0, 1].map(|reader| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let value = shared.read(reader);
                assert_eq!(value.value(), value.value(), "no change between");
            })
        });
        shared.write().add_one();
        for reader in readers {
            reader.join().expect("no panic");
        }
        assert_eq!(shared.read(0).value(), 1);
    });
}

#[test]
fn two_writers_exclude_each_other_and_do_not_deadlock() {
    loom::model(|| {
        let shared = watched();
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || theirs.write().add_one());
        shared.write().add_one();
        other.join().expect("no panic");
        assert_eq!(shared.read(1).value(), 2);
    });
}

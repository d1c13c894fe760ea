//! A value that several devices read for each packet and that seldom changes.
//!
//! A reader-writer lock has a counter of readers, and each reader would take its cache line from the others. So each
//! reader has a lock of its own here, and a writer takes all of them. The usual crate does not fit: it chooses the lock by a
//! thread-local number with a destructor, for which glibc needs memory in the middle of a transfer.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How many readers have a lock of their own. More of them share. The model check tries every order in which locks are
/// taken, so it has fewer.
const SHARDS: usize = if cfg!(all(test, loom)) { 2 } else { 16 };

/// A lock in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<()>);

/// The value and the locks of its readers.
pub(crate) struct ReadMostly<T> {
    shards: [Shard; SHARDS],
    value: UnsafeCell<T>,
}

// SAFETY: `read` gives out shared references, in several threads at once, so `T` must be `Sync`; `write` gives out an
// exclusive reference in any thread, so `T` must be `Send`. The locks keep both apart.
unsafe impl<T: Send + Sync> Sync for ReadMostly<T> {}

impl<T> ReadMostly<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            shards: Default::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, for one of the readers. A thread may read it again while it has a guard.
    #[inline(always)]
    pub(crate) fn read(&self, reader: usize) -> Reading<'_, T> {
        let lock = self.shards[reader % SHARDS].0.read_recursive();
        Reading {
            // SAFETY: a writer holds the locks of all shards exclusively, so there is none while this lock is held. The
            // reference does not outlive the guard.
            value: unsafe { &*self.value.get() },
            _lock: lock,
        }
    }

    /// The value, to change it.
    pub(crate) fn write(&self) -> Writing<'_, T> {
        // Always in the same order, so two writers do not wait for each other.
        let locks = self.shards.each_ref().map(|shard| shard.0.write());
        Writing {
            value: &self.value,
            _locks: locks,
        }
    }
}

impl<T> fmt::Debug for ReadMostly<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadMostly")
    }
}

/// Shared access.
pub(crate) struct Reading<'a, T> {
    value: &'a T,
    _lock: RwLockReadGuard<'a, ()>,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

/// Exclusive access.
pub(crate) struct Writing<'a, T> {
    value: &'a UnsafeCell<T>,
    _locks: [RwLockWriteGuard<'a, ()>; SHARDS],
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the locks of all shards, so nobody else reads or changes the value.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively, so there is one such reference.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(all(test, loom))]
mod model_checks;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_writer_holds_the_locks_of_all_readers_while_it_has_the_value() {
        let value = ReadMostly::new(0);
        let locked = || {
            let locks = value.shards.iter().map(|shard| &shard.0);
            locks.filter(|lock| lock.is_locked_exclusive()).count()
        };
        let writing = value.write();
        assert_eq!(locked(), SHARDS);
        drop(writing);
        assert_eq!(locked(), 0);
    }

    #[test]
    fn a_reader_holds_its_own_lock_while_it_has_the_value() {
        let value = ReadMostly::new(0);
        for reader in 0..2 * SHARDS {
            let reading = value.read(reader);
            for (index, shard) in value.shards.iter().enumerate() {
                assert_eq!(shard.0.is_locked(), index == reader % SHARDS);
            }
            drop(reading);
            assert!(value.shards.iter().all(|shard| !shard.0.is_locked()));
        }
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a lock is for threads; the test ends even if one waits forever"
    )]
    fn a_reader_reads_again_while_a_writer_waits_for_it() {
        let value = Arc::new(ReadMostly::new(0));
        let first = value.read(0);
        let theirs = Arc::clone(&value);
        let writer = thread::spawn(move || *theirs.write() += 1);
        while !value.shards[0].0.is_locked_exclusive() && !writer.is_finished() {
            thread::yield_now();
        }
        let (done, seen) = mpsc::channel();
        let theirs = Arc::clone(&value);
        thread::spawn(move || done.send(*theirs.read(0)));
        let again = seen.recv_timeout(Duration::from_secs(20));
        assert_eq!(again, Ok(0), "a timeout: it waits for the writer");
        drop(first);
        writer.join().expect("no panic");
        assert_eq!(*value.read(0), 1);
    }

    /// Under Miri this also finds a data race.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a lock is for threads")]
    fn no_reader_sees_a_change_that_is_not_complete() {
        const CHANGES: u64 = if cfg!(miri) { 20 } else { 2000 };
        let pair = ReadMostly::new((0_u64, 0_u64));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..3 {
                let (pair, done) = (&pair, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        let seen = pair.read(reader);
                        let again = pair.read(reader);
                        assert_eq!((seen.0, again.0), (seen.1, again.1));
                    }
                });
            }
            for _ in 0..CHANGES {
                let mut pair = pair.write();
                pair.0 += 1;
                pair.1 += 1;
            }
            done.store(true, Ordering::Release);
        });
        assert_eq!(*pair.read(0), (CHANGES, CHANGES));
    }
}

//! The locks and atomics of threads that wait for each other.
//!
//! They are those of the standard library. In the model checks (`--cfg loom`) they are those of loom, which tries every order of the
//! threads' steps and every value that an atomic may return.

/// For a `static`, which loom's lock can't be.
pub(crate) use std::sync::{Mutex as StaticMutex, MutexGuard as StaticMutexGuard};

#[cfg(not(all(test, loom)))]
pub(crate) use net::poll::{Signal, Waker};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(all(test, loom))]
pub(crate) use model::{Signal, Waker};

/// The descriptors of `net`. Loom does not see system calls, so each counts its own: another thread may run before it.
#[cfg(all(test, loom))]
mod model {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    use loom::sync::atomic::{AtomicUsize, Ordering};
    use net::poll::{self, PollSet};

    #[derive(Debug)]
    pub(crate) struct Waker(poll::Waker, AtomicUsize);

    impl Waker {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(poll::Waker::new()?, AtomicUsize::new(0)))
        }

        pub(crate) fn wake(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.wake();
        }

        pub(crate) fn clear(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.clear();
        }
    }

    impl AsFd for Waker {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[derive(Debug)]
    pub(crate) struct Signal(poll::Signal, AtomicUsize);

    impl Signal {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(poll::Signal::new()?, AtomicUsize::new(0)))
        }

        pub(crate) fn include(&self, set: &PollSet) -> io::Result<()> {
            self.0.include(set)
        }

        pub(crate) fn exclude(&self, set: &PollSet) {
            self.0.exclude(set);
        }

        pub(crate) fn raise(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.raise();
        }

        pub(crate) fn lower(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.lower();
        }
    }

    impl AsFd for Signal {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

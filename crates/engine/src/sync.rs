//! The locks and atomics that threads share without a device's lock.
//!
//! They are those of parking_lot and the standard library. In the model checks (`--cfg loom`) they are those of loom, which
//! tries every order of the threads' steps and every value that an atomic may return.

#[cfg(not(all(test, loom)))]
pub(crate) use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{RwLockReadGuard, RwLockWriteGuard};
#[cfg(all(test, loom))]
pub(crate) use model::{Mutex, RwLock};

/// Locks of loom with the methods of parking_lot.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    const POISONED: &str = "loom stops at the first panic";

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect(POISONED)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Readers of loom's lock never wait for a writer that waits.
        pub(crate) fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect(POISONED)
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect(POISONED)
        }
    }
}

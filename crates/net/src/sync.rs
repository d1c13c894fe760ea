//! The atomics that processes share.
//!
//! They are those of the standard library. In the model checks (`--cfg loom`) they are those of loom, which tries every order of the
//! threads' steps and every value that an atomic may return.

#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

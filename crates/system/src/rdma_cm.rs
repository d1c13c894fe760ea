//! The system's connection manager: ids of librdmacm with owners.
//!
//! All ids of the process share one event channel. A thread takes its events, and hands each to the receiver of the id that it is
//! about. When a connection ends, the thread moves its queue pair to the error state: librdmacm does that only
//! for queue pairs that it made itself, and these are made by [`verbs`](crate::verbs).

mod address;
mod delivery;
mod dispatcher;
mod id;
mod library;
mod parameters;
mod task_timers;

use std::task::Waker;
use std::time::Instant;

use engine::SystemRefusal;

pub use delivery::{Event, Receiver};
pub use id::{Id, IdOption, Service};
pub use parameters::{DatagramDestination, Parameters, PeerParameters};
pub use task_timers::TimerKey;

use crate::loader::LibraryError;
use dispatcher::Dispatcher;

/// Why no id can be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The library can't be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A function failed.
    #[error("{0}; is the module rdma_ucm loaded, and can /dev/infiniband/rdma_cm be read?")]
    Refused(#[from] SystemRefusal),
}

/// Wakes a task at a time.
pub fn set_task_timer(at: Instant, waker: &Waker) -> Result<TimerKey, CreateError> {
    let dispatcher = Dispatcher::running()?;
    let (key, is_first) = dispatcher.task_timers.set(at, waker);
    if is_first {
        dispatcher.wake_thread();
    }
    Ok(key)
}

/// Removes a timer, if it is not due yet.
pub fn cancel_task_timer(key: TimerKey) {
    if let Ok(dispatcher) = Dispatcher::running() {
        dispatcher.task_timers.cancel(key);
    }
}

//! The system's connection manager: ids of librdmacm with owners.
//!
//! All ids of the process share one event channel. A thread takes its events, hands each to the id that it is about, and wakes the
//! threads and tasks that wait there. When a connection ends, the thread moves its queue pair to the error state: librdmacm does that only
//! for queue pairs that it made itself, and these are made by [`verbs`](crate::verbs).

mod address;
mod dispatcher;
mod event;
mod event_queue;
mod id;
mod library;
mod task_timers;

use engine::SystemRefusal;

pub use event::{Event, Parameters, PeerParameters};
pub use id::Id;
pub use task_timers::TimerKey;

use crate::loader::LibraryError;

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

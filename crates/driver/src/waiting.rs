//! How threads, tasks and programs wait, and what wakes them.

pub(crate) mod deferred_wakeups;
pub(crate) mod notifier;
pub(crate) mod packet_wakeups;
#[cfg(feature = "async")]
pub(crate) mod task_packets;
pub(crate) mod task_timers;
pub(crate) mod wait_set;

pub use notifier::Notifier;
pub use wait_set::WaitSet;

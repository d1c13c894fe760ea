//! How threads, tasks and programs wait, and what wakes them.

pub(crate) mod deferred_wakeups;
pub(crate) mod notifier;
pub(crate) mod packet_wakeups;
pub(crate) mod task_timers;
pub(crate) mod wait_set;

pub use notifier::Notifier;
pub use wait_set::WaitSet;

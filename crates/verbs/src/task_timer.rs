//! Deadlines of tasks.

use std::task::{Poll, Waker};
use std::time::Instant;

use driver::clock::now;

use crate::context::{Context, Opened};

/// Wakes a task at its deadline. Dropping it cancels that.
#[derive(Debug)]
pub(crate) struct TaskTimer(Kind);

/// Who measures the time.
#[derive(Debug)]
enum Kind {
    /// The thread of one of our devices.
    Software(driver::TaskTimer),
    /// The thread that takes the events of the system's connection manager.
    System(Option<system::rdma_cm::TimerKey>),
}

impl TaskTimer {
    pub(crate) fn new(context: &Context) -> Self {
        Self(match context.opened() {
            Opened::Software(driver) => Kind::Software(driver::TaskTimer::new(driver)),
            Opened::System(_) => Kind::System(None),
        })
    }

    /// Ready at `deadline`, which is the same in all calls. Wakes the task then.
    pub(crate) fn poll(&mut self, deadline: Instant, task: &Waker) -> Poll<()> {
        if deadline <= now() {
            return Poll::Ready(());
        }
        match &mut self.0 {
            Kind::Software(timer) => timer.wake_at(deadline, task),
            Kind::System(key) => {
                cancel(key);
                match system::rdma_cm::set_task_timer(deadline, task) {
                    Ok(set) => *key = Some(set),
                    // There is no connection manager, so nobody else measures the time.
                    Err(_) => task.wake_by_ref(),
                }
            }
        }
        Poll::Pending
    }
}

fn cancel(key: &mut Option<system::rdma_cm::TimerKey>) {
    if let Some(key) = key.take() {
        system::rdma_cm::cancel_task_timer(key);
    }
}

impl Drop for TaskTimer {
    fn drop(&mut self) {
        if let Kind::System(key) = &mut self.0 {
            cancel(key);
        }
    }
}

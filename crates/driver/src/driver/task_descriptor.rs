//! The descriptor at which an executor waits for packets for its tasks.
//!
//! A task can't sleep on the sockets. But the reactor of its executor, which waits for the descriptors of all tasks, can: then a packet wakes the
//! executor, which receives it, and whose tasks follow in the same thread. Otherwise the lane's thread wakes up for each packet, and
//! then wakes the executor.
//!
//! The lane's thread leaves the packets to an executor only while tasks poll, as it leaves them to any program that polls. So nothing waits
//! for long if the executor does not run.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};

use net::poll::Signal;

use crate::lane::Lane;

/// Readable while packets for tasks wait. An executor waits for it, and then receives them.
#[derive(Debug)]
pub struct TaskDescriptor {
    lane: Weak<Lane>,
    signal: Arc<Signal>,
}

impl TaskDescriptor {
    pub(super) fn new(lane: &Arc<Lane>, signal: &Arc<Signal>) -> Self {
        Self {
            lane: Arc::downgrade(lane),
            signal: Arc::clone(signal),
        }
    }

    /// Receives packets, and wakes the tasks whose completions they bring. Continues with whether there may be more; breaks when the device
    /// is closed.
    pub fn receive(&self) -> ControlFlow<(), bool> {
        match self.lane.upgrade().filter(|lane| !lane.is_inherited()) {
            Some(lane) => ControlFlow::Continue(lane.receive_for_tasks()),
            None => ControlFlow::Break(()),
        }
    }
}

impl AsFd for TaskDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl AsRawFd for TaskDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

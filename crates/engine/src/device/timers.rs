//! The timer queue of a device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use wire::Qpn;

/// A priority queue of deadlines.
///
/// Most deadlines move to a later time, because every acknowledgement postpones one. So an entry is
/// not changed when its deadline moves. When the entry is due, the queue pair reports whether a
/// timer expired or what its new deadline is. This keeps the cost of a packet independent of the
/// number of queue pairs.
#[derive(Default)]
pub(super) struct Timers {
    entries: BinaryHeap<Reverse<(Instant, Qpn)>>,
}

impl Timers {
    pub(super) fn push(&mut self, at: Instant, queue_pair: Qpn) {
        self.entries.push(Reverse((at, queue_pair)));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Qpn)> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse(entry)| entry)
    }
}

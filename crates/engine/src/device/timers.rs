//! When to look at which queue pair.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use wire::Qpn;

/// A queue of moments.
///
/// Deadlines mostly move away: every acknowledgement postpones one. So an entry is not changed when
/// its deadline moves; when its moment comes, the queue pair says whether it is due or when to come
/// again. That keeps the cost of a packet the same for any number of queue pairs.
#[derive(Default)]
pub(super) struct Timers {
    moments: BinaryHeap<Reverse<(Instant, Qpn)>>,
}

impl Timers {
    pub(super) fn push(&mut self, at: Instant, queue_pair: Qpn) {
        self.moments.push(Reverse((at, queue_pair)));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.moments.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Qpn)> {
        if self.next()? > now {
            return None;
        }
        self.moments.pop().map(|Reverse(entry)| entry)
    }
}

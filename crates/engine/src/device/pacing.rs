//! Pacing of UC and UD packets at the speed that the port reports.
//!
//! A reliable sender waits for acknowledgements. An unreliable one is limited only by the speed of its link,
//! and a virtual device has no such limit: the sender overruns a receiver that waits for a CPU, and the kernel
//! drops what does not fit into its socket. So these packets are sent at the reported speed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Qpn;

use crate::now::Now;

/// Ten gigabits per second.
const PICOSECONDS_PER_BYTE: u64 = 800;

/// The simulated link of unreliable packets, and the queue pairs that wait for it.
pub(super) struct Pacing {
    /// How long the link needs for a burst that is sent at once; `None` if packets are not paced.
    burst: Option<Duration>,
    /// When the link has transmitted everything that was sent.
    idle_at: Option<Instant>,
    waiting: VecDeque<Qpn>,
}

impl Pacing {
    /// A link on which `burst` bytes may be sent at once; without it, packets are not paced.
    pub(super) fn new(burst: Option<u32>) -> Self {
        Self {
            burst: burst.map(|bytes| transit(bytes as usize)),
            idle_at: None,
            waiting: VecDeque::new(),
        }
    }

    /// Whether a packet that is sent now would exceed the burst.
    pub(super) fn is_full(&self, now: &Now) -> bool {
        self.free_at().is_some_and(|at| now.get() < at)
    }

    /// When a packet may be sent after a burst.
    fn free_at(&self) -> Option<Instant> {
        self.idle_at?.checked_sub(self.burst?)
    }

    /// Accounts for a batch that is sent.
    pub(super) fn note_sent(&mut self, now: Instant, bytes: usize) {
        if self.burst.is_some() {
            let begin = self.idle_at.map_or(now, |at| at.max(now));
            self.idle_at = Some(begin + transit(bytes));
        }
    }

    /// Lets a queue pair wait until the link is free.
    pub(super) fn wait(&mut self, queue_pair: Qpn) {
        self.waiting.push_back(queue_pair);
    }

    /// When queue pairs that wait may continue; `None` if none waits.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            None
        } else {
            self.free_at()
        }
    }

    /// The queue pairs that may continue.
    pub(super) fn take_due(&mut self, now: &Now) -> impl Iterator<Item = Qpn> + use<'_> {
        let due = if self.waiting.is_empty() || self.is_full(now) {
            0
        } else {
            self.waiting.len()
        };
        self.waiting.drain(..due)
    }
}

fn transit(bytes: usize) -> Duration {
    Duration::from_nanos(bytes as u64 * PICOSECONDS_PER_BYTE / 1000)
}

//! How often a poller that finds nothing yields the CPU.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::now;

/// The minimum number of empty polls between two yields. On a machine with fewer CPUs than pollers the peer
/// may wait for this CPU.
const MIN_INTERVAL: u32 = 32;

/// The maximum number of empty polls between two yields: about half a millisecond of polling, in which a
/// fast peer responds several times.
const MAX_INTERVAL: u32 = 1024;

/// A yield that takes this long gave the CPU to threads that compute. A peer that polls or waits gives it
/// back sooner.
const LONG_YIELD: Duration = Duration::from_millis(1);

/// Yields the CPU from time to time, and less often while yields take long: one yield beside two busy
/// threads costs several milliseconds, and a message that arrives meanwhile waits that long.
#[derive(Debug)]
pub(crate) struct Yielding {
    /// How many polls in a row found nothing.
    empty_polls: AtomicU32,
    /// After how many empty polls the thread yields.
    interval: AtomicU32,
}

impl Default for Yielding {
    fn default() -> Self {
        Self {
            empty_polls: AtomicU32::new(0),
            interval: AtomicU32::new(MIN_INTERVAL),
        }
    }
}

impl Yielding {
    /// Reports that a poll found something.
    pub(crate) fn note_found(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
    }

    /// Reports an empty poll, and may yield. The caller holds no lock.
    pub(crate) fn note_empty_poll(&self) {
        let polls = self.empty_polls.fetch_add(1, Ordering::Relaxed) + 1;
        let interval = self.interval.load(Ordering::Relaxed);
        if polls < interval {
            return;
        }
        self.empty_polls.store(0, Ordering::Relaxed);
        let start = now();
        std::thread::yield_now();
        let next = interval_after(interval, now() - start);
        self.interval.store(next, Ordering::Relaxed);
    }
}

/// The next interval after a yield that took `took`.
fn interval_after(interval: u32, took: Duration) -> u32 {
    if took >= LONG_YIELD {
        (interval * 2).min(MAX_INTERVAL)
    } else {
        (interval / 2).max(MIN_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_yields_double_the_interval_and_short_ones_halve_it() {
        let mut interval = MIN_INTERVAL;
        for _ in 0..8 {
            interval = interval_after(interval, LONG_YIELD);
        }
        assert_eq!(interval, MAX_INTERVAL);
        for _ in 0..8 {
            interval = interval_after(interval, LONG_YIELD / 2);
        }
        assert_eq!(interval, MIN_INTERVAL);
    }

    #[test]
    fn a_successful_poll_resets_the_count() {
        let yielding = Yielding::default();
        (1..MIN_INTERVAL).for_each(|_| yielding.note_empty_poll());
        yielding.note_found();
        (1..MIN_INTERVAL).for_each(|_| yielding.note_empty_poll());
        assert_eq!(
            yielding.empty_polls.load(Ordering::Relaxed),
            MIN_INTERVAL - 1
        );
        yielding.note_empty_poll();
        assert_eq!(
            yielding.empty_polls.load(Ordering::Relaxed),
            0,
            "it yielded"
        );
    }
}

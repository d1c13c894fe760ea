//! How often a poller that finds nothing yields the processor.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::now;

/// After how many polls that find nothing a thread yields the processor, on a machine with fewer processors than
/// pollers: the peer may be waiting for this very one.
const FEWEST: u32 = 32;

/// The most: about half a millisecond of polling, in which a quick peer answers several times.
const MOST: u32 = 1024;

/// A yield that takes longer gave the processor to threads that compute. A peer that polls or waits gives
/// it back sooner.
const LONG: Duration = Duration::from_millis(1);

/// Lets others run now and then, and less often while they keep the processor for long: one yield beside
/// two busy threads costs several milliseconds, and a message that arrives meanwhile waits as long.
#[derive(Debug)]
pub(super) struct Yielding {
    /// How often in a row a poll found nothing.
    vain_polls: AtomicU32,
    /// After how many of them the thread yields.
    interval: AtomicU32,
}

impl Default for Yielding {
    fn default() -> Self {
        Self {
            vain_polls: AtomicU32::new(0),
            interval: AtomicU32::new(FEWEST),
        }
    }
}

impl Yielding {
    /// A poll found something.
    pub(super) fn found(&self) {
        self.vain_polls.store(0, Ordering::Relaxed);
    }

    /// A poll found nothing; the caller holds no lock.
    pub(super) fn found_nothing(&self) {
        let polls = self.vain_polls.fetch_add(1, Ordering::Relaxed) + 1;
        let interval = self.interval.load(Ordering::Relaxed);
        if polls < interval {
            return;
        }
        self.vain_polls.store(0, Ordering::Relaxed);
        let start = now();
        std::thread::yield_now();
        let next = interval_after(interval, now() - start);
        self.interval.store(next, Ordering::Relaxed);
    }
}

/// The next interval after a yield that took so long.
fn interval_after(interval: u32, took: Duration) -> u32 {
    if took >= LONG {
        (interval * 2).min(MOST)
    } else {
        (interval / 2).max(FEWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_yields_less_often_to_those_that_keep_the_processor() {
        let mut interval = FEWEST;
        for _ in 0..8 {
            interval = interval_after(interval, LONG);
        }
        assert_eq!(interval, MOST);
        for _ in 0..8 {
            interval = interval_after(interval, LONG / 2);
        }
        assert_eq!(interval, FEWEST);
    }

    #[test]
    fn a_poll_that_finds_something_begins_the_count_again() {
        let yielding = Yielding::default();
        (1..FEWEST).for_each(|_| yielding.found_nothing());
        yielding.found();
        (1..FEWEST).for_each(|_| yielding.found_nothing());
        assert_eq!(yielding.vain_polls.load(Ordering::Relaxed), FEWEST - 1);
        yielding.found_nothing();
        assert_eq!(yielding.vain_polls.load(Ordering::Relaxed), 0, "it yielded");
    }
}

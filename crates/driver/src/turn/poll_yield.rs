//! What a poller does when it finds nothing: poll again, yield the CPU, or sleep.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock::now;
use crate::times::LONG;

/// The number of empty polls after which a thread gives up the CPU. On a machine with fewer CPUs than pollers the
/// peer may wait for this CPU.
const INTERVAL: u32 = 32;

/// For how many times the length of a long yield pollers sleep instead of yielding after the first one: so yields take one part in a
/// hundred. Each further long yield doubles it.
const MIN_BUSY_TIME: u32 = 100;

/// The maximum of that time. A poller may notice this late that the other threads no longer compute. Until then each
/// packet costs it a wake-up.
const MAX_BUSY_TIME: u32 = 10 * MIN_BUSY_TIME;

/// How a poller gives up the CPU.
///
/// Usually it yields. Beside threads that compute, a yield takes several milliseconds, and a message that arrives
/// meanwhile waits that long. A thread that polls on uses up its share of the CPU, and waits for the others even longer
/// afterwards. A thread that sleeps keeps its share and runs soon after it is woken. So a poller sleeps for a while
/// after a long yield, until a packet arrives.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// How many polls in a row found nothing.
    empty_polls: AtomicU32,
    /// Until when pollers sleep, in nanoseconds since the device was opened.
    busy_until: AtomicU64,
    /// For how long they sleep after the next long yield, in nanoseconds; 0 after a short one.
    busy_time: AtomicU64,
}

/// What a poller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Polls again.
    Poll,
    /// Yields the CPU.
    Yield,
    /// Sleeps until a packet arrives, for a short time.
    Sleep,
}

impl Yielding {
    /// Reports that a poll found something.
    pub(crate) fn note_found(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
    }

    /// Reports an empty poll.
    pub(crate) fn note_empty_poll(&self, since_open: impl FnOnce() -> Duration) -> Next {
        let polls = self.empty_polls.fetch_add(1, Ordering::Relaxed) + 1;
        if polls < INTERVAL {
            return Next::Poll;
        }
        self.empty_polls.store(0, Ordering::Relaxed);
        match self.busy_until.load(Ordering::Relaxed) {
            0 => Next::Yield,
            until if since_open() < Duration::from_nanos(until) => Next::Sleep,
            _ => Next::Yield,
        }
    }

    /// Yields the CPU. The caller holds no lock.
    pub(crate) fn yield_now(&self, since_open: impl Fn(Instant) -> Duration) {
        let start = now();
        std::thread::yield_now();
        let end = now();
        self.note_yield(end - start, since_open(end));
    }

    /// Reports how long a yield took.
    pub(crate) fn note_yield(&self, took: Duration, since_open: Duration) {
        // A yield that takes this long gave the CPU to threads that compute. A peer that polls or waits gives it back sooner.
        if took < LONG {
            self.busy_until.store(0, Ordering::Relaxed);
            self.busy_time.store(0, Ordering::Relaxed);
            return;
        }
        let former = Duration::from_nanos(self.busy_time.load(Ordering::Relaxed));
        let time = (former * 2).clamp(MIN_BUSY_TIME * LONG, MAX_BUSY_TIME * LONG);
        let until = since_open + time;
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        self.busy_time.store(nanoseconds(time), Ordering::Relaxed);
        self.busy_until.store(nanoseconds(until), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What to do after this number of empty polls.
    fn after_empty_polls(yielding: &Yielding, at: Duration) -> Next {
        for _ in 1..INTERVAL {
            let next = yielding.note_empty_poll(|| at);
            assert_eq!(next, Next::Poll);
        }
        yielding.note_empty_poll(|| at)
    }

    #[test]
    fn a_poller_sleeps_for_a_while_after_a_long_yield() {
        let yielding = Yielding::default();
        let start = Duration::from_secs(7);
        assert_eq!(after_empty_polls(&yielding, start), Next::Yield);
        yielding.note_yield(LONG / 2, start);
        assert_eq!(after_empty_polls(&yielding, start), Next::Yield);
        yielding.note_yield(LONG, start);
        let end = start + MIN_BUSY_TIME * LONG;
        let before = end - Duration::from_nanos(1);
        assert_eq!(after_empty_polls(&yielding, before), Next::Sleep);
        assert_eq!(after_empty_polls(&yielding, end), Next::Yield);
        yielding.note_yield(LONG / 2, end);
        assert_eq!(after_empty_polls(&yielding, before), Next::Yield);
    }

    #[test]
    fn the_time_grows_with_each_long_yield_up_to_its_maximum() {
        let yielding = Yielding::default();
        let sleeps_at = |at| after_empty_polls(&yielding, at) == Next::Sleep;
        let start = Duration::from_secs(7);
        yielding.note_yield(LONG, start);
        yielding.note_yield(LONG, start);
        assert!(
            sleeps_at(start + MIN_BUSY_TIME * LONG) && !sleeps_at(start + 2 * MIN_BUSY_TIME * LONG)
        );
        (0..8).for_each(|_| yielding.note_yield(LONG, start));
        assert!(
            sleeps_at(start + MAX_BUSY_TIME / 2 * LONG) && !sleeps_at(start + MAX_BUSY_TIME * LONG)
        );
    }

    #[test]
    fn a_successful_poll_resets_the_count() {
        let yielding = Yielding::default();
        let poll = || yielding.note_empty_poll(|| Duration::ZERO);
        (1..INTERVAL).for_each(|_| assert_eq!(poll(), Next::Poll));
        yielding.note_found();
        (1..INTERVAL).for_each(|_| assert_eq!(poll(), Next::Poll));
        assert_eq!(poll(), Next::Yield);
    }
}

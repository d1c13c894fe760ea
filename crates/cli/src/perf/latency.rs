//! Measures latency: one message at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::bandwidth;
use super::progress::Progress;
use super::queue_pairs::{Done, QueuePairs};
use super::stall_timer::StallTimer;
use super::test_parameters::{Amount, Verb};

/// Round trips before the measurement begins.
const WARM_UP: u64 = 20;

/// A histogram of times in nanoseconds, with three significant digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds make sense")
}

/// Executes `amount` operations, one at a time.
pub(super) fn ask(
    queue_pairs: &QueuePairs,
    size: usize,
    amount: Amount,
    progress: &Progress,
) -> anyhow::Result<Histogram<u64>> {
    let mut times = histogram();
    queue_pairs.clear_last_byte(size);
    for turn in 0..WARM_UP {
        operation(queue_pairs, size, turn)?;
    }
    let end = amount.duration().map(|duration| Instant::now() + duration);
    for turn in WARM_UP.. {
        let enough = match amount {
            Amount::Messages(messages) => times.len() >= messages,
            Amount::Seconds(_) => end.is_some_and(|end| Instant::now() >= end),
        };
        if enough {
            break;
        }
        let took = operation(queue_pairs, size, turn)?;
        times.saturating_record(took.as_nanos() as u64);
        progress.at(times.len());
    }
    Ok(times)
}

/// The latency of one operation: half a round trip, or a whole READ or atomic.
fn operation(queue_pairs: &QueuePairs, size: usize, turn: u64) -> anyhow::Result<Duration> {
    let verb = queue_pairs.parameters.test.verb();
    if verb == Verb::Write {
        queue_pairs.set_last_byte(size, mark(turn));
    }
    let begin = Instant::now();
    queue_pairs.post(0, size, Some(1))?;
    let mut stall_timer = StallTimer::new();
    loop {
        let done = queue_pairs.next()?;
        match (verb, done) {
            (Verb::Send, Some(Done::Received)) => return Ok(begin.elapsed() / 2),
            (Verb::Read | Verb::Atomic, Some(Done::Sent { .. })) => return Ok(begin.elapsed()),
            (Verb::Write, _) if queue_pairs.last_byte(size) == mark(turn) => {
                return Ok(begin.elapsed() / 2);
            }
            _ => stall_timer.check()?,
        }
    }
}

/// Answers operations until `stop` is set.
pub(super) fn answer(
    queue_pairs: &QueuePairs,
    size: usize,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    match queue_pairs.parameters.test.verb() {
        Verb::Send => answer_sends(queue_pairs, size, stop),
        Verb::Write => answer_writes(queue_pairs, size, stop),
        Verb::Read | Verb::Atomic => bandwidth::serve(queue_pairs, size, None, stop).map(drop),
    }
}

fn answer_sends(queue_pairs: &QueuePairs, size: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    loop {
        match queue_pairs.next()? {
            Some(Done::Received) => queue_pairs.post(0, size, Some(1))?,
            Some(Done::Sent { .. }) => {}
            None if stop.load(Ordering::Acquire) => return Ok(()),
            None => {}
        }
    }
}

fn answer_writes(queue_pairs: &QueuePairs, size: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut turn = 0;
    loop {
        let done = queue_pairs.next()?;
        if queue_pairs.last_byte(size) == mark(turn) {
            queue_pairs.set_last_byte(size, mark(turn));
            queue_pairs.post(0, size, Some(1))?;
            turn += 1;
        } else if done.is_none() && stop.load(Ordering::Acquire) {
            return Ok(());
        }
    }
}

/// The last byte of a written message: different in each turn, and never 0.
fn mark(turn: u64) -> u8 {
    (turn % 255 + 1) as u8
}

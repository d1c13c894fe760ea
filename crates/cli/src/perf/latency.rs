//! Latency: one message at a time, and how long each took.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::bandwidth;
use super::patience::Patience;
use super::plan::{Amount, Verb};
use super::progress::Progress;
use super::station::{Done, Station};

/// Round trips before the first that counts.
const WARM_UP: u64 = 20;

/// Times in nanoseconds, with three digits each.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds make sense")
}

/// Carries out an amount of operations, one at a time.
pub(super) fn ask(
    station: &Station,
    size: usize,
    amount: Amount,
    progress: &Progress,
) -> anyhow::Result<Histogram<u64>> {
    let mut times = histogram();
    station.clear_last_byte(size);
    for turn in 0..WARM_UP {
        operation(station, size, turn)?;
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
        let took = operation(station, size, turn)?;
        times.saturating_record(took.as_nanos() as u64);
        progress.at(times.len());
    }
    Ok(times)
}

/// One operation: half of the way there and back, or all of a read or an atomic.
fn operation(station: &Station, size: usize, turn: u64) -> anyhow::Result<Duration> {
    let verb = station.plan.test.verb();
    if verb == Verb::Write {
        station.set_last_byte(size, mark(turn));
    }
    let begin = Instant::now();
    station.post(0, size, Some(1))?;
    let mut patience = Patience::new();
    loop {
        let done = station.next()?;
        match (verb, done) {
            (Verb::Send, Some(Done::Received)) => return Ok(begin.elapsed() / 2),
            (Verb::Read | Verb::Atomic, Some(Done::Sent { .. })) => return Ok(begin.elapsed()),
            (Verb::Write, _) if station.last_byte(size) == mark(turn) => {
                return Ok(begin.elapsed() / 2);
            }
            _ => patience.lose()?,
        }
    }
}

/// Answers operations until told to stop.
pub(super) fn answer(station: &Station, size: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    match station.plan.test.verb() {
        Verb::Send => answer_sends(station, size, stop),
        Verb::Write => answer_writes(station, size, stop),
        Verb::Read | Verb::Atomic => bandwidth::serve(station, size, None, stop).map(drop),
    }
}

fn answer_sends(station: &Station, size: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    loop {
        match station.next()? {
            Some(Done::Received) => station.post(0, size, Some(1))?,
            Some(Done::Sent { .. }) => {}
            None if stop.load(Ordering::Acquire) => return Ok(()),
            None => {}
        }
    }
}

fn answer_writes(station: &Station, size: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut turn = 0;
    loop {
        let done = station.next()?;
        if station.last_byte(size) == mark(turn) {
            station.set_last_byte(size, mark(turn));
            station.post(0, size, Some(1))?;
            turn += 1;
        } else if done.is_none() && stop.load(Ordering::Acquire) {
            return Ok(());
        }
    }
}

/// The last byte of a written message: another one each turn, and never 0.
fn mark(turn: u64) -> u8 {
    (turn % 255 + 1) as u8
}

//! Many seeds on all cores.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::connections::EventCounts;
use crate::run_seed::{Failure, run};
use crate::scenario::Scenario;
use crate::summary::{Options, Summary};

/// A campaign stops after this many failures.
const MAX_FAILURES: usize = 20;

/// The result of many runs.
#[derive(Debug, Default)]
pub struct Campaign {
    /// How many runs of each kind succeeded.
    pub scenarios: BTreeMap<Scenario, u64>,
    /// How many packets they sent.
    pub packets: u64,
    /// How many of those were retransmissions.
    pub retransmitted: u64,
    /// Connection events by kind.
    pub event_counts: EventCounts,
    /// The failed runs, by seed.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Campaign {
    fn note(&mut self, outcome: Result<Summary, Box<Failure>>) {
        match outcome {
            Ok(summary) => {
                *self.scenarios.entry(summary.scenario).or_default() += 1;
                self.packets += summary.packets;
                self.retransmitted += summary.retransmitted;
                self.event_counts.merge(&summary.event_counts);
            }
            Err(failure) => self.failures.push(*failure),
        }
    }

    /// How many runs there were.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.scenarios.values().sum::<u64>() + self.failures.len() as u64
    }
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}\n")?;
        }
        for (scenario, count) in &self.scenarios {
            writeln!(f, "{count:>8} {scenario:?}")?;
        }
        for (what, count) in self.event_counts.iter() {
            writeln!(f, "{count:>8} × {what}")?;
        }
        let seconds = self.elapsed.as_secs_f64();
        write!(
            f,
            "{} runs, {} failed; {} packets, {} retransmitted; {seconds:.1} s, {:.0} runs/s",
            self.runs(),
            self.failures.len(),
            self.packets,
            self.retransmitted,
            self.runs() as f64 / seconds
        )
    }
}

/// Runs all these seeds independently of each other. Calls `progress` with the number of finished runs.
#[must_use]
pub fn campaign(seeds: Range<u64>, options: Options, progress: impl Fn(u64) + Sync) -> Campaign {
    let begin = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let result = Mutex::new(Campaign::default());
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&next, seeds.end, options, &result, &progress));
        }
    });
    let mut campaign = result.into_inner().expect("no worker panics");
    campaign.failures.sort_by_key(|failure| failure.seed);
    campaign.elapsed = begin.elapsed();
    campaign
}

fn work(
    next: &AtomicU64,
    end: u64,
    options: Options,
    result: &Mutex<Campaign>,
    progress: &(impl Fn(u64) + Sync),
) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let outcome = run(seed, options);
        let mut campaign = result.lock().expect("no worker panics");
        campaign.note(outcome);
        progress(campaign.runs());
        if campaign.failures.len() >= MAX_FAILURES {
            return;
        }
    }
}

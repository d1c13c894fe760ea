//! The first version of the congestion control BBR: it sends at the highest rate of delivery that it has seen lately.

use std::collections::VecDeque;
use std::time::Duration;

use super::tcp::Sample;

const STARTUP_GAIN: f64 = 2.885;

/// The gains of eight round trips.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

const SHORTEST_IS_VALID: Duration = Duration::from_secs(10);
const LOOK_FOR_SHORTEST: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The fastest rate so far, and the rounds since it grew by a quarter.
    Startup {
        full: f64,
        rounds: u32,
    },
    Drain,
    Cruise {
        index: usize,
        since: Duration,
    },
    /// Few packets are under way, so that the queue drains and the shortest round trip shows.
    Shortest {
        until: Duration,
    },
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Bbr {
    phase: Phase,
    /// The highest rate of each of the last ten rounds, in packets per second.
    rates: VecDeque<f64>,
    round_end: u64,
    shortest: Option<(Duration, Duration)>,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            phase: Phase::Startup {
                full: 0.0,
                rounds: 0,
            },
            rates: VecDeque::from([0.0]),
            round_end: 0,
            shortest: None,
        }
    }
}

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// How many packets fill the path.
    fn product(&self) -> Option<f64> {
        let (shortest, _) = self.shortest?;
        Some(self.rate() * shortest.as_secs_f64())
    }

    pub(super) fn window(&self) -> u64 {
        let Some(product) = self.product() else {
            return 10;
        };
        let gain = match self.phase {
            Phase::Startup { .. } | Phase::Drain => STARTUP_GAIN,
            Phase::Cruise { .. } => 2.0,
            Phase::Shortest { .. } => return 4,
        };
        ((gain * product) as u64).max(4)
    }

    /// The time between two packets.
    pub(super) fn pause(&self) -> Option<Duration> {
        let gain = match self.phase {
            Phase::Startup { .. } => STARTUP_GAIN,
            Phase::Drain => 1.0 / STARTUP_GAIN,
            Phase::Cruise { index, .. } => GAINS[index],
            Phase::Shortest { .. } => 1.0,
        };
        let rate = self.rate() * gain;
        (rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate))
    }

    pub(super) fn acknowledged(&mut self, sample: &Sample, under_way: u64) {
        let is_new_round = sample.delivered_before >= self.round_end;
        if is_new_round {
            self.round_end = sample.delivered;
            self.rates.push_back(0.0);
            if self.rates.len() > 10 {
                self.rates.pop_front();
            }
        }
        if let Some(latest) = self.rates.back_mut() {
            *latest = latest.max(sample.rate);
        }
        let (shortest, seen) = self.shortest.unwrap_or((sample.round_trip, sample.now));
        let expired = sample.now > seen + SHORTEST_IS_VALID;
        if sample.round_trip <= shortest || expired {
            self.shortest = Some((sample.round_trip, sample.now));
        } else {
            self.shortest = Some((shortest, seen));
        }
        if expired && !matches!(self.phase, Phase::Shortest { .. }) {
            let until = sample.now + LOOK_FOR_SHORTEST;
            self.phase = Phase::Shortest { until };
        }
        self.advance(sample.now, is_new_round, under_way);
    }

    fn advance(&mut self, now: Duration, is_new_round: bool, under_way: u64) {
        let shortest = self
            .shortest
            .map_or(Duration::ZERO, |(shortest, _)| shortest);
        let product = self.product().unwrap_or(0.0);
        let rate = self.rate();
        self.phase = match self.phase {
            Phase::Startup { full, .. } if is_new_round && rate >= 1.25 * full => Phase::Startup {
                full: rate,
                rounds: 0,
            },
            Phase::Startup { rounds: 2, .. } if is_new_round => Phase::Drain,
            Phase::Startup { full, rounds } if is_new_round => Phase::Startup {
                full,
                rounds: rounds + 1,
            },
            Phase::Drain if under_way as f64 <= product => Phase::Cruise {
                index: 2,
                since: now,
            },
            Phase::Cruise { index, since } if now > since + shortest => Phase::Cruise {
                index: (index + 1) % GAINS.len(),
                since: now,
            },
            Phase::Shortest { until } if now > until => Phase::Cruise {
                index: 2,
                since: now,
            },
            other => other,
        };
    }
}

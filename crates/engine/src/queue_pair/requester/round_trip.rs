//! How long the peer takes to respond, measured at packets that were sent once.

use std::time::{Duration, Instant};

use wire::Psn;

/// A response is overdue no sooner than this. A busy peer gets a processor later than the estimate of a fast network says: the
/// slowest of 75,000 messages between two processes took 4.8 ms, with six busy threads on two cores.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_millis(5);

/// The measurement under way and the estimate so far. One packet is measured at a time.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    measured: Option<(Psn, Instant)>,
    estimate: Option<Estimate>,
}

/// As TCP estimates it (RFC 6298).
#[derive(Debug, Clone, Copy)]
struct Estimate {
    smoothed: Duration,
    variation: Duration,
    shortest: Duration,
}

impl RoundTrip {
    /// A packet that was never sent before and requests an acknowledgement is sent.
    pub(super) fn sent(&mut self, psn: Psn, now: Instant) {
        self.measured.get_or_insert((psn, now));
    }

    /// Packets are sent again. It can't be known which copy a response answers.
    pub(super) fn sent_again(&mut self) {
        self.measured = None;
    }

    /// All packets before `oldest` are acknowledged. Returns whether that ends a measurement.
    pub(super) fn acknowledged(&mut self, oldest: Psn, now: Instant) -> bool {
        let Some((_, sent)) = self.measured.take_if(|(psn, _)| oldest.since(*psn) > 0) else {
            return false;
        };
        let sample = now.saturating_duration_since(sent);
        let estimate = match self.estimate {
            None => Estimate {
                smoothed: sample,
                variation: sample / 2,
                shortest: sample,
            },
            Some(before) => Estimate {
                smoothed: (before.smoothed * 7 + sample) / 8,
                variation: (before.variation * 3 + before.smoothed.abs_diff(sample)) / 4,
                shortest: before.shortest.min(sample),
            },
        };
        self.estimate = Some(estimate);
        true
    }

    /// When a response is overdue, after it was sent. Unknown before the first measurement.
    pub(super) fn response_timeout(&self) -> Option<Duration> {
        let estimate = self.estimate?;
        let timeout = estimate.smoothed + estimate.variation * 4;
        Some(timeout.max(MIN_RESPONSE_TIMEOUT))
    }

    /// The shortest round trip.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.estimate.map(|estimate| estimate.shortest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[expect(
        clippy::disallowed_methods,
        reason = "an `Instant` cannot be constructed; any value will do"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn timeout_follows_the_round_trip_and_its_variation() {
        let (mut round_trip, mut now) = (RoundTrip::default(), start());
        assert_eq!(round_trip.response_timeout(), None);
        for (number, millis) in [(0, 40), (1, 40), (2, 80)] {
            round_trip.sent(Psn::new(number), now);
            now += MILLISECOND * millis;
            assert!(round_trip.acknowledged(Psn::new(number + 1), now));
        }
        assert_eq!(round_trip.shortest(), Some(40 * MILLISECOND));
        // Variations of 20, 15, and then (3 · 15 + 40) / 4 milliseconds.
        assert_eq!(round_trip.response_timeout(), Some(130 * MILLISECOND));
    }

    #[test]
    fn short_round_trips_have_the_minimum_timeout() {
        let (mut round_trip, now) = (RoundTrip::default(), start());
        round_trip.sent(Psn::ZERO, now);
        round_trip.acknowledged(Psn::ZERO + 1, now + Duration::from_micros(20));
        assert_eq!(round_trip.response_timeout(), Some(MIN_RESPONSE_TIMEOUT));
    }

    // Karn's rule.
    #[test]
    fn packets_that_were_sent_again_are_not_measured() {
        let (mut round_trip, now) = (RoundTrip::default(), start());
        round_trip.sent(Psn::ZERO, now);
        round_trip.sent_again();
        assert!(!round_trip.acknowledged(Psn::ZERO + 1, now + MILLISECOND));
        assert_eq!(round_trip.shortest(), None);
    }
}

//! How long the peer takes to respond.

use std::time::Duration;

/// A response is overdue no sooner than this. A busy peer gets a processor later than the estimate of a fast network says: the
/// slowest of 75,000 messages between two processes took 4.8 ms, with six busy threads on two cores.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_millis(5);

/// When a response is overdue if none was measured yet, as for TCP (RFC 6298, 2.1).
pub(crate) const INITIAL_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// As TCP estimates it (RFC 6298).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTripEstimate {
    smoothed: Duration,
    variation: Duration,
    shortest: Duration,
}

impl RoundTripEstimate {
    /// The estimate after one more measurement.
    pub(crate) fn after(before: Option<Self>, sample: Duration) -> Self {
        match before {
            None => Self {
                smoothed: sample,
                variation: sample / 2,
                shortest: sample,
            },
            Some(before) => Self {
                smoothed: (before.smoothed * 7 + sample) / 8,
                variation: (before.variation * 3 + before.smoothed.abs_diff(sample)) / 4,
                shortest: before.shortest.min(sample),
            },
        }
    }

    /// When a response is overdue, after it was sent.
    pub(crate) fn response_timeout(&self) -> Duration {
        let timeout = self.smoothed + self.variation * 4;
        timeout.max(MIN_RESPONSE_TIMEOUT)
    }

    /// The shortest round trip.
    pub(crate) fn shortest(&self) -> Duration {
        self.shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: &[u64]) -> RoundTripEstimate {
        let samples = millis.iter().map(|millis| Duration::from_millis(*millis));
        let estimate = samples.fold(None, |it, sample| {
            Some(RoundTripEstimate::after(it, sample))
        });
        estimate.expect("a sample")
    }

    #[test]
    fn timeout_follows_the_round_trip_and_its_variation() {
        let estimate = after(&[40, 40, 80]);
        assert_eq!(estimate.shortest(), Duration::from_millis(40));
        // Variations of 20, 15, and then (3 · 15 + 40) / 4 milliseconds.
        assert_eq!(estimate.response_timeout(), Duration::from_millis(130));
    }

    #[test]
    fn short_round_trips_have_the_minimum_timeout() {
        let estimate = RoundTripEstimate::after(None, Duration::from_micros(20));
        assert_eq!(estimate.response_timeout(), MIN_RESPONSE_TIMEOUT);
    }
}

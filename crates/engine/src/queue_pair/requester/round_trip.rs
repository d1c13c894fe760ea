//! How long the peer takes to respond, measured at packets that were sent once.

use std::time::{Duration, Instant};

use wire::Psn;

/// The measurement under way. One packet is measured at a time.
#[derive(Debug, Default)]
pub(super) struct RoundTrip(Option<(Psn, Instant)>);

impl RoundTrip {
    /// A packet that was never sent before and requests an acknowledgement is sent.
    pub(super) fn sent(&mut self, psn: Psn, now: Instant) {
        self.0.get_or_insert((psn, now));
    }

    /// Packets are sent again. It can't be known which copy a response answers.
    pub(super) fn sent_again(&mut self) {
        self.0 = None;
    }

    /// All packets before `oldest` are acknowledged. Returns the measurement that this ends.
    pub(super) fn acknowledged(&mut self, oldest: Psn, now: Instant) -> Option<Duration> {
        let (_, sent) = self.0.take_if(|(psn, _)| oldest.since(*psn) > 0)?;
        Some(now.saturating_duration_since(sent))
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
    fn acknowledgement_of_the_packet_ends_its_measurement() {
        let (mut round_trip, now) = (RoundTrip::default(), start());
        round_trip.sent(Psn::new(3), now);
        round_trip.sent(Psn::new(5), now + MILLISECOND);
        let later = now + 4 * MILLISECOND;
        assert_eq!(round_trip.acknowledged(Psn::new(3), later), None);
        let sample = round_trip.acknowledged(Psn::new(4), later);
        assert_eq!(sample, Some(4 * MILLISECOND));
    }

    // Karn's rule.
    #[test]
    fn packets_that_were_sent_again_are_not_measured() {
        let (mut round_trip, now) = (RoundTrip::default(), start());
        round_trip.sent(Psn::ZERO, now);
        round_trip.sent_again();
        let sample = round_trip.acknowledged(Psn::ZERO + 1, now + MILLISECOND);
        assert_eq!(sample, None);
    }
}

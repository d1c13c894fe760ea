//! How fast packets are delivered, measured from one acknowledgement to another.
//!
//! As draft-cheng-iccrg-delivery-rate-estimation describes it: what was acknowledged while one packet was on its way, over the time
//! that it took to send or to acknowledge that much, whichever is longer. So an acknowledgement of much at once, as it follows a
//! repair, does not seem fast.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Psn;

/// How many packets are measured at a time. A round trip has four to eight requests for an acknowledgement.
const MAX_MARKS: usize = 64;

/// A packet on its way, and how things stood when it was sent.
#[derive(Debug, Clone, Copy)]
struct Mark {
    psn: Psn,
    sent_at: Instant,
    delivered: u64,
    delivered_at: Instant,
    /// When the packet was sent that was acknowledged last.
    acknowledged_sent_at: Instant,
    is_limited: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Packets per second.
    pub(super) rate: f64,
    pub(super) round_trip: Duration,
    /// How many packets were delivered when the measured one was sent.
    pub(super) delivered_before: u64,
    /// Whether the program sent less than it could.
    pub(super) is_limited: bool,
}

/// What was delivered so far.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    delivered: u64,
    /// When something was delivered last, and when that was sent.
    latest: Option<(Instant, Instant)>,
    marks: VecDeque<Mark>,
    /// What was sent before this much is delivered is less than could be sent.
    limited_until: u64,
}

impl Delivery {
    /// How many packets were delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn sent(&mut self, psn: Psn, now: Instant) {
        if self.marks.is_empty() {
            self.latest = Some((now, now));
        }
        let (delivered_at, acknowledged_sent_at) = self.latest.unwrap_or((now, now));
        if self.marks.len() < MAX_MARKS {
            self.marks.push_back(Mark {
                psn,
                sent_at: now,
                delivered: self.delivered,
                delivered_at,
                acknowledged_sent_at,
                is_limited: self.delivered < self.limited_until,
            });
        }
    }

    /// Less is sent than could be, and as many packets are unacknowledged.
    pub(super) fn is_limited_by_program(&mut self, outstanding: u32) {
        self.limited_until = self.delivered + u64::from(outstanding.max(1));
    }

    /// All packets before `oldest`, as many as that, are acknowledged.
    pub(super) fn acknowledged(
        &mut self,
        oldest: Psn,
        packets: u32,
        now: Instant,
    ) -> Option<Sample> {
        self.delivered += u64::from(packets);
        let mut newest = None;
        while let Some(mark) = self.marks.front().filter(|mark| oldest.since(mark.psn) > 0) {
            newest = Some(*mark);
            self.marks.pop_front();
        }
        let mark = newest?;
        self.latest = Some((now, mark.sent_at));
        let sending = mark.sent_at - mark.acknowledged_sent_at;
        let acknowledging = now - mark.delivered_at;
        let elapsed = sending.max(acknowledging).as_secs_f64();
        (elapsed > 0.0).then(|| Sample {
            rate: (self.delivered - mark.delivered) as f64 / elapsed,
            round_trip: now - mark.sent_at,
            delivered_before: mark.delivered,
            is_limited: mark.is_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::start;
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn steady_flow_has_its_rate() {
        let (mut delivery, start) = (Delivery::default(), start());
        let mut rates = Vec::new();
        for round in 0..20_u32 {
            let now = start + MILLISECOND * round;
            // Ten packets a millisecond, acknowledged after four.
            if round >= 4 {
                let sample = delivery.acknowledged(Psn::new(10 * (round - 3)), 10, now);
                rates.push(sample.expect("a measurement").rate);
            }
            delivery.sent(Psn::new(10 * round + 9), now);
        }
        assert!(rates[8..].iter().all(|rate| (rate - 10_000.0).abs() < 1.0));
    }

    #[test]
    fn acknowledgement_of_much_at_once_is_not_fast() {
        let (mut delivery, start) = (Delivery::default(), start());
        for number in 0..10_u32 {
            delivery.sent(Psn::new(number), start + MILLISECOND * number);
        }
        let first = delivery.acknowledged(Psn::new(1), 1, start + 10 * MILLISECOND);
        assert!(first.is_some());
        delivery.sent(Psn::new(10), start + 10 * MILLISECOND);
        // A gap is closed late, and the acknowledgement covers ten packets that were sent one per millisecond.
        let late = start + 12 * MILLISECOND;
        let sample = delivery.acknowledged(Psn::new(11), 10, late).expect("one");
        assert!(sample.rate <= 1001.0, "{sample:?}");
    }

    #[test]
    fn packets_of_a_program_that_pauses_are_marked() {
        let (mut delivery, start) = (Delivery::default(), start());
        delivery.is_limited_by_program(0);
        delivery.sent(Psn::ZERO, start);
        let sample = delivery.acknowledged(Psn::ZERO + 1, 1, start + MILLISECOND);
        assert!(sample.expect("one").is_limited);
        delivery.sent(Psn::ZERO + 1, start + MILLISECOND);
        let sample = delivery.acknowledged(Psn::ZERO + 2, 1, start + 2 * MILLISECOND);
        assert!(!sample.expect("one").is_limited);
    }
}

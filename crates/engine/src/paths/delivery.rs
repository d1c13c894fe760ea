//! How fast packets are delivered, measured from one acknowledgement to another.
//!
//! As draft-cheng-iccrg-delivery-rate-estimation describes it: what was acknowledged while one packet was on its way, over the time
//! that it took to send or to acknowledge that much, whichever is longer. So an acknowledgement of much at once, as it follows a
//! repair, does not seem fast. What all queue pairs of a path deliver is counted together, and each of them [marks](Marks) its packets.
//! What others get acknowledged while they repair losses was sent long before, and is left out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Psn;

/// How many packets of a queue pair are measured at a time. A round trip has four to eight requests for an acknowledgement.
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
    is_sent_again: bool,
    /// How many packets others had delivered during repairs.
    late: u64,
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
    /// Whether the packet was sent again, so that the round trip may be too long.
    pub(super) is_sent_again: bool,
}

/// The packets of one queue pair that are measured.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: VecDeque<Mark>,
    /// How many packets it has delivered during repairs.
    late: u64,
}

impl Marks {
    /// All packets are sent again. It can't be known which copy an acknowledgement answers.
    pub(super) fn sent_again(&mut self) {
        for mark in &mut self.marks {
            mark.is_sent_again = true;
        }
    }
}

/// What was delivered so far.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    delivered: u64,
    /// When something was delivered last, and when that was sent.
    latest: Option<(Instant, Instant)>,
    /// How many packets of all queue pairs are marked.
    marked: usize,
    /// How many packets were delivered during repairs.
    late: u64,
    /// What was sent before this much is delivered is less than could be sent.
    limited_until: u64,
}

impl Delivery {
    /// How many packets were delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When something was delivered last, or sent on an idle path.
    pub(super) fn latest(&self) -> Option<Instant> {
        self.latest.map(|(at, _)| at)
    }

    /// A queue pair leaves the path.
    pub(super) fn forget(&mut self, marks: &Marks) {
        self.marked -= marks.marks.len();
    }

    pub(super) fn sent(&mut self, marks: &mut Marks, psn: Psn, now: Instant) {
        if self.marked == 0 {
            self.latest = Some((now, now));
        }
        let (delivered_at, acknowledged_sent_at) = self.latest.unwrap_or((now, now));
        if marks.marks.len() < MAX_MARKS {
            self.marked += 1;
            marks.marks.push_back(Mark {
                psn,
                sent_at: now,
                delivered: self.delivered,
                delivered_at,
                acknowledged_sent_at,
                is_limited: self.delivered < self.limited_until,
                is_sent_again: false,
                late: self.late - marks.late,
            });
        }
    }

    /// Less is sent than could be, and as many packets are unacknowledged.
    pub(super) fn is_limited_by_program(&mut self, outstanding: u32) {
        self.limited_until = self.delivered + u64::from(outstanding.max(1));
    }

    /// All packets of a queue pair before `oldest`, as many as that, are acknowledged, perhaps during a repair.
    pub(super) fn acknowledged(
        &mut self,
        marks: &mut Marks,
        oldest: Psn,
        packets: u32,
        is_repairing: bool,
        now: Instant,
    ) -> Option<Sample> {
        self.delivered += u64::from(packets);
        if is_repairing {
            self.late += u64::from(packets);
            marks.late += u64::from(packets);
        }
        let mut newest = None;
        while let Some(mark) = marks
            .marks
            .front()
            .filter(|mark| oldest.since(mark.psn) > 0)
        {
            newest = Some(*mark);
            marks.marks.pop_front();
            self.marked -= 1;
        }
        let mark = newest?;
        let sent_before = self.latest.map_or(mark.sent_at, |(_, sent_at)| sent_at);
        self.latest = Some((now, mark.sent_at.max(sent_before)));
        let sending = mark
            .sent_at
            .saturating_duration_since(mark.acknowledged_sent_at);
        let acknowledging = now - mark.delivered_at;
        let elapsed = sending.max(acknowledging).as_secs_f64();
        let late = self.late - marks.late - mark.late;
        (elapsed > 0.0).then(|| Sample {
            rate: (self.delivered - mark.delivered - late) as f64 / elapsed,
            round_trip: now - mark.sent_at,
            delivered_before: mark.delivered,
            is_limited: mark.is_limited,
            is_sent_again: mark.is_sent_again,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::congestion::start;
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn steady_flow_has_its_rate() {
        let (mut delivery, mut marks, start) = (Delivery::default(), Marks::default(), start());
        let mut rates = Vec::new();
        for round in 0..20_u32 {
            let now = start + MILLISECOND * round;
            // Ten packets a millisecond, acknowledged after four.
            if round >= 4 {
                let sample =
                    delivery.acknowledged(&mut marks, Psn::new(10 * (round - 3)), 10, false, now);
                rates.push(sample.expect("a measurement").rate);
            }
            delivery.sent(&mut marks, Psn::new(10 * round + 9), now);
        }
        assert!(rates[8..].iter().all(|rate| (rate - 10_000.0).abs() < 1.0));
    }

    #[test]
    fn acknowledgement_of_much_at_once_is_not_fast() {
        let (mut delivery, mut marks, start) = (Delivery::default(), Marks::default(), start());
        for number in 0..10_u32 {
            delivery.sent(&mut marks, Psn::new(number), start + MILLISECOND * number);
        }
        let first =
            delivery.acknowledged(&mut marks, Psn::new(1), 1, false, start + 10 * MILLISECOND);
        assert!(first.is_some());
        delivery.sent(&mut marks, Psn::new(10), start + 10 * MILLISECOND);
        // A gap is closed late, and the acknowledgement covers ten packets that were sent one per millisecond.
        let late = start + 12 * MILLISECOND;
        let sample = delivery
            .acknowledged(&mut marks, Psn::new(11), 10, false, late)
            .expect("one");
        assert!(sample.rate <= 1001.0, "{sample:?}");
    }

    #[test]
    fn packets_of_a_program_that_pauses_are_marked() {
        let (mut delivery, mut marks, start) = (Delivery::default(), Marks::default(), start());
        delivery.is_limited_by_program(0);
        delivery.sent(&mut marks, Psn::ZERO, start);
        let sample =
            delivery.acknowledged(&mut marks, Psn::ZERO + 1, 1, false, start + MILLISECOND);
        assert!(sample.expect("one").is_limited);
        delivery.sent(&mut marks, Psn::ZERO + 1, start + MILLISECOND);
        let sample =
            delivery.acknowledged(&mut marks, Psn::ZERO + 2, 1, false, start + 2 * MILLISECOND);
        assert!(!sample.expect("one").is_limited);
    }

    #[test]
    fn packets_of_all_queue_pairs_are_counted_together() {
        let (mut delivery, start) = (Delivery::default(), start());
        let mut marks = [Marks::default(), Marks::default()];
        for (number, marks) in marks.iter_mut().enumerate() {
            delivery.sent(marks, Psn::new(9), start + MILLISECOND * number as u32);
        }
        let mut rates = [10, 11].map(|millis| {
            let marks = &mut marks[millis - 10];
            let now = start + MILLISECOND * millis as u32;
            let sample = delivery.acknowledged(marks, Psn::new(10), 10, false, now);
            sample.expect("a measurement").rate as u32
        });
        rates.sort_unstable();
        assert_eq!(rates, [1000, 1818]);
    }

    #[test]
    fn what_others_deliver_late_is_not_fast() {
        let (mut delivery, start) = (Delivery::default(), start());
        let [mut ours, mut theirs] = [Marks::default(), Marks::default()];
        delivery.sent(&mut ours, Psn::new(9), start);
        delivery.acknowledged(&mut theirs, Psn::new(100), 100, true, start + MILLISECOND);
        let now = start + 10 * MILLISECOND;
        let sample = delivery.acknowledged(&mut ours, Psn::new(10), 10, false, now);
        assert_eq!(sample.expect("a measurement").rate, 1000.0);
    }

    // Karn's rule.
    #[test]
    fn round_trips_of_packets_that_were_sent_again_are_marked() {
        let (mut delivery, mut marks, start) = (Delivery::default(), Marks::default(), start());
        delivery.sent(&mut marks, Psn::ZERO, start);
        marks.sent_again();
        delivery.sent(&mut marks, Psn::ZERO + 1, start);
        let samples = [1, 2].map(|number| {
            let (oldest, now) = (Psn::new(number), start + MILLISECOND * number);
            delivery.acknowledged(&mut marks, oldest, 1, false, now)
        });
        let are_sent_again = samples.map(|it| it.expect("a measurement").is_sent_again);
        assert_eq!(are_sent_again, [true, false]);
    }
}

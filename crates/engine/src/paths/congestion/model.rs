//! A model of the path: its rate, its round trip, and how much it holds before it loses packets. What is sent follows the model.
//!
//! As BBR does, it sends as fast as packets were delivered lately, a little faster for a round trip now and then, to see whether
//! the path takes more, and then a little slower, so that a queue it has made is empty again. Unlike its first version, it holds less
//! when many packets are lost, so that several senders share a short queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::delivery::Sample;
use super::cubic::{BESIDE_TCP, CubicWindow};
use super::notification::Notifications;
use super::{Acknowledged, CongestionControl, INITIAL_PACKETS, MIN_PACKETS, PathLoss};

/// 2 / ln 2: the least gain that doubles the rate each round trip.
const STARTUP_GAIN: f64 = 2.885;

/// The pace of successive round trips, in parts of the rate, as BBR has it.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// The slower pace lasts until no more is unacknowledged than fills the path, or for so many round trips. A rate that seemed higher
/// than it is has made a queue that one round trip does not empty.
const EMPTYING_ROUNDS: u32 = 4;

/// How many times what fills the path may be unacknowledged: acknowledgements come late and in groups.
const WINDOW_GAIN: f64 = 2.0;

/// The highest rate of so many round trips is that of the path.
const RATE_ROUNDS: usize = 10;

/// How long the shortest round trip is believed.
const SHORTEST_IS_VALID: Duration = Duration::from_secs(5);

/// More losses than one packet in so many mean that a queue is full; fewer are those of the path.
const TOLERATED: u64 = 20;

/// Losses, if there are any, are judged when at least so many packets were delivered.
const JUDGED: u64 = 100;

/// What too many losses leave of the rate.
const REMAINDER: f64 = 0.85;

/// A queue has formed if all round trips for a while are longer than the shortest one by this factor.
const QUEUED: f64 = 1.25;

/// No round trip is shorter: the least rate of one that took no time on a coarse clock would be infinite.
const MIN_ROUND_TRIP: Duration = Duration::from_micros(1);

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The rate doubles each round trip, until it has not grown by a quarter for three, or a queue has formed.
    Startup { rate: f64, rounds: u32 },
    /// The queue that the start has made is emptied.
    Drain,
    /// The pace follows [`GAINS`].
    Cruise { index: usize, since: Instant },
    /// Little is under way, so that a round trip shows how long the path is without a queue.
    Empty { until: Instant },
}

const START: Phase = Phase::Startup {
    rate: 0.0,
    rounds: 0,
};

#[derive(Debug)]
pub(in crate::paths) struct Model {
    phase: Phase,
    /// The least window of the start.
    initial: u32,
    round_end: u64,
    /// The highest rate of each of the last round trips, in packets per second.
    rates: VecDeque<f64>,
    /// The rate at which few packets are lost, if more than that were delivered.
    ceiling: Option<f64>,
    losses: Losses,
    smoothed: Option<Duration>,
    /// The shortest round trip, and when it was seen.
    shortest: Option<(Duration, Instant)>,
    /// The shortest one since the present phase or part of it began.
    shortest_lately: Duration,
    /// While others fill the queue: the window that TCP would have.
    rival: Option<CubicWindow>,
    notifications: Notifications,
}

/// How much was lost since losses were judged.
#[derive(Debug, Default)]
struct Losses {
    lost: u64,
    /// How much had been delivered then.
    delivered: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            phase: START,
            initial: INITIAL_PACKETS,
            round_end: 0,
            rates: VecDeque::from([0.0]),
            ceiling: None,
            losses: Losses::default(),
            smoothed: None,
            shortest: None,
            shortest_lately: Duration::MAX,
            rival: None,
            notifications: Notifications::default(),
        }
    }
}

impl Model {
    /// The rate of the path, in packets per second.
    fn rate(&self) -> f64 {
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        let rate = highest.min(self.ceiling.unwrap_or(f64::MAX));
        rate.max(self.least_rate())
    }

    /// The rate whose window is the least one, which is sent anyway. A lower rate would have no effect, except that it takes long to
    /// recover.
    fn least_rate(&self) -> f64 {
        let packets = f64::from(MIN_PACKETS) / WINDOW_GAIN;
        let rate = |(shortest, _)| packets / self.smoothed().max(shortest).as_secs_f64();
        self.shortest.map_or(0.0, rate)
    }

    fn smooth(&mut self, round_trip: Duration) {
        let before = self.smoothed.unwrap_or(round_trip);
        self.smoothed = Some((before * 7 + round_trip) / 8);
    }

    fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_else(|| self.shortest())
    }

    fn shortest(&self) -> Duration {
        self.shortest.map_or(Duration::ZERO, |(it, _)| it)
    }

    /// How many packets fill the path without a queue.
    fn path(&self) -> f64 {
        self.rate() * self.shortest().as_secs_f64()
    }

    /// Whether round trips have been longer lately than the path is.
    fn is_queued(&self) -> bool {
        let is_measured = self.shortest_lately < Duration::MAX;
        is_measured && self.shortest_lately > self.shortest().mul_f64(QUEUED)
    }

    fn note(&mut self, sample: &Sample, told: &Acknowledged) {
        let is_new_round = sample.delivered_before >= self.round_end;
        if is_new_round {
            self.round_end = told.delivered;
            self.notifications.end_round();
            self.judge_losses(told.delivered);
        }
        self.note_rate(sample, is_new_round);
        // The acknowledgement may be that of the first copy or of the second one.
        if !sample.is_sent_again {
            self.note_round_trip(sample.round_trip, told.now);
        }
        let outstanding = told.outstanding.saturating_sub(told.packets);
        self.advance(told.now, is_new_round && !sample.is_limited, outstanding);
    }

    /// A program that sends little shows only what the path takes at least.
    fn note_rate(&mut self, sample: &Sample, is_new_round: bool) {
        if sample.is_limited && sample.rate < self.rate() {
            return;
        }
        if is_new_round {
            self.rates.push_back(0.0);
            if self.rates.len() > RATE_ROUNDS {
                self.rates.pop_front();
            }
        }
        if let Some(latest) = self.rates.back_mut() {
            *latest = latest.max(sample.rate);
        }
    }

    fn note_round_trip(&mut self, round_trip: Duration, now: Instant) {
        let round_trip = round_trip.max(MIN_ROUND_TRIP);
        self.shortest_lately = self.shortest_lately.min(round_trip);
        if self
            .shortest
            .is_none_or(|(shortest, _)| round_trip <= shortest)
        {
            self.shortest = Some((round_trip, now));
        }
    }

    /// A round trip is over: many losses lower the rate, few raise it.
    fn judge_losses(&mut self, total: u64) {
        let delivered = total - self.losses.delivered;
        if self.losses.lost > 0 && delivered < JUDGED {
            return;
        }
        if self.losses.lost * TOLERATED > delivered {
            self.slow_down(REMAINDER);
        } else {
            self.speed_up();
        }
        self.losses = Losses {
            lost: 0,
            delivered: total,
        };
    }

    /// A rate that is not measured can't be reduced.
    fn slow_down(&mut self, remainder: f64) {
        if self.shortest.is_none() {
            return;
        }
        self.ceiling = Some(self.rate() * remainder);
        if let Phase::Startup { .. } = self.phase {
            self.phase = Phase::Drain;
        }
    }

    /// Nothing was acknowledged for long. What a start has measured by then is far from the rate of the path. It begins again with
    /// few packets, because a first window that was lost as a whole has met a full queue.
    fn fall_silent(&mut self) {
        if let Phase::Startup { .. } = self.phase {
            self.phase = START;
            self.initial = MIN_PACKETS;
            self.rates = VecDeque::from([0.0]);
        } else {
            self.slow_down(0.5);
        }
    }

    /// The ceiling grows by a thirty-second part, or by one packet per round trip, until it is not needed. All senders gain the same
    /// packet, so those that have less come closer to those that have more.
    fn speed_up(&mut self) {
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        let (least, packet) = (
            self.least_rate(),
            1.0 / self.shortest().max(MIN_ROUND_TRIP).as_secs_f64(),
        );
        let grow = |ceiling: f64| ceiling + packet.max(ceiling / 32.0);
        let grown = self.ceiling.map(|ceiling| grow(ceiling.max(least)));
        self.ceiling = grown.filter(|ceiling| *ceiling < highest);
    }

    fn advance(&mut self, now: Instant, is_new_round: bool, outstanding: u32) {
        let current = self.rate();
        match self.phase {
            Phase::Startup { rate, rounds } if is_new_round => {
                if self.is_queued() || rounds == 2 && current < 1.25 * rate {
                    self.phase = Phase::Drain;
                } else if current >= 1.25 * rate {
                    let rate = current;
                    self.phase = Phase::Startup { rate, rounds: 0 };
                } else {
                    let rounds = rounds + 1;
                    self.phase = Phase::Startup { rate, rounds };
                }
                self.shortest_lately = Duration::MAX;
            }
            Phase::Drain if f64::from(outstanding) <= self.path() => self.cruise(2, now),
            Phase::Cruise { index, since } if now > since + self.shortest() => {
                let is_emptied = f64::from(outstanding) <= self.path();
                let is_late = now > since + EMPTYING_ROUNDS * self.shortest();
                if GAINS[index] >= 1.0 || is_emptied || is_late {
                    self.end_step(index, now);
                }
            }
            Phase::Empty { until } if now > until => self.end_emptying(now),
            Phase::Startup { .. } | Phase::Drain | Phase::Cruise { .. } | Phase::Empty { .. } => {}
        }
    }

    fn cruise(&mut self, index: usize, since: Instant) {
        self.phase = Phase::Cruise { index, since };
    }

    /// A step of the gains is over. After all of them, our own queue was empty once: one that remained is that of others.
    fn end_step(&mut self, index: usize, now: Instant) {
        let next = (index + 1) % GAINS.len();
        self.cruise(next, now);
        if next == 0 {
            if self.is_queued() && self.rival.is_none() {
                self.rival = Some(CubicWindow::new(&BESIDE_TCP, self.wanted()));
            }
            self.shortest_lately = Duration::MAX;
        }
        if self
            .shortest
            .is_some_and(|(_, seen)| now > seen + SHORTEST_IS_VALID)
        {
            self.phase = Phase::Empty {
                until: now + 3 * self.smoothed(),
            };
            self.shortest_lately = Duration::MAX;
        }
    }

    /// Little was under way, so the shortest round trip is that of the path, unless others fill the queue.
    fn end_emptying(&mut self, now: Instant) {
        if !self.is_queued() {
            self.rival = None;
        }
        let most = self.shortest().mul_f64(QUEUED);
        self.shortest = Some((self.shortest_lately.min(most), now));
        self.shortest_lately = Duration::MAX;
        self.cruise(2, now);
    }

    /// How many packets the model wants to be unacknowledged.
    fn wanted(&self) -> f64 {
        match self.phase {
            Phase::Startup { .. } => (WINDOW_GAIN * self.path()).max(f64::from(self.initial)),
            Phase::Drain | Phase::Cruise { .. } => WINDOW_GAIN * self.path(),
            Phase::Empty { .. } => self.path() / 2.0,
        }
    }

    /// The window of TCP beside others, except while the path is to be empty.
    fn rival(&self) -> Option<&CubicWindow> {
        let rival = self.rival.as_ref();
        rival.filter(|_| !matches!(self.phase, Phase::Empty { .. }))
    }
}

impl CongestionControl for Model {
    fn acknowledged(&mut self, told: &Acknowledged) {
        if let Some(sample) = told.sample {
            self.note(&sample, told);
            // The round trip of a packet behind a gap is that of a repair.
            if !told.is_repairing && !sample.is_sent_again {
                self.smooth(sample.round_trip);
            }
        }
        let (is_needed, round_trip) = (told.outstanding * 2 >= self.window(), self.smoothed());
        if let Some(rival) = self.rival.as_mut().filter(|_| is_needed) {
            rival.grow(told.now, round_trip, f64::from(told.packets));
        }
    }

    fn lost(&mut self, loss: PathLoss) {
        if let Some(rival) = &mut self.rival {
            rival.lost(loss);
        }
        match loss {
            PathLoss::Packets { again, .. } => self.losses.lost += u64::from(again),
            PathLoss::Silence => self.fall_silent(),
        }
    }

    fn notified(&mut self) {
        let remainder = self.notifications.notified();
        if remainder < 1.0 {
            self.slow_down(remainder);
            if let Some(rival) = &mut self.rival {
                rival.reduce(remainder);
            }
        }
    }

    fn window(&self) -> u32 {
        let rival = self.rival().map_or(0.0, CubicWindow::packets);
        self.wanted().max(rival) as u32
    }

    fn pause(&self) -> Option<Duration> {
        let (shortest, _) = self.shortest?;
        let pace = match self.phase {
            Phase::Startup { .. } => {
                let initial = f64::from(self.initial) / shortest.as_secs_f64();
                STARTUP_GAIN * self.rate().max(initial)
            }
            Phase::Drain => self.rate() / STARTUP_GAIN,
            Phase::Cruise { index, .. } => self.rate() * GAINS[index],
            Phase::Empty { .. } => self.rate(),
        };
        let pause = (pace > 0.0).then(|| Duration::try_from_secs_f64(1.0 / pace))?;
        // The least window is sent within a round trip, however low the rate has become.
        let most = self.smoothed() / MIN_PACKETS;
        let pause = pause.map_or(most, |pause| pause.min(most));
        let rival = self.rival().map(|rival| rival.pause(self.smoothed()));
        Some(rival.map_or(pause, |rival| pause.min(rival)))
    }
}

#[cfg(test)]
mod tests {
    use wire::Psn;

    use super::super::super::delivery::{Delivery, Marks};
    use super::super::start;
    use super::*;

    /// A path whose round trip takes ten milliseconds, and what it holds.
    struct Path {
        model: Model,
        delivery: Delivery,
        marks: Marks,
        now: Instant,
        sent: u32,
        acknowledged: u32,
        /// The part of a packet that the pace allows in addition.
        credit: f64,
        /// Packets per millisecond.
        rate: u32,
        /// What waits for the path.
        queue: u32,
        /// What is acknowledged in each of the next milliseconds.
        arrivals: VecDeque<u32>,
    }

    const MILLISECOND: Duration = Duration::from_millis(1);

    impl Path {
        fn new(rate: u32) -> Self {
            Self {
                model: Model::default(),
                delivery: Delivery::default(),
                marks: Marks::default(),
                now: start(),
                sent: 0,
                acknowledged: 0,
                credit: 0.0,
                rate,
                queue: 0,
                arrivals: VecDeque::from([0; 10]),
            }
        }

        /// Sends and acknowledges as window, pace and path allow, in steps of a millisecond.
        fn passes(&mut self, millis: u32) {
            for _ in 0..millis {
                self.now += MILLISECOND;
                let window = self.model.window().max(1);
                let room = window.saturating_sub(self.sent - self.acknowledged);
                self.credit += self.model.pause().map_or(f64::MAX, |pause| {
                    MILLISECOND.as_secs_f64() / pause.as_secs_f64()
                });
                let sent = room.min(self.credit as u32);
                self.credit = (self.credit - f64::from(sent)).min(1.0);
                if sent > 0 {
                    self.sent += sent;
                    self.marks_last();
                }
                self.queue += sent;
                let leaves = self.queue.min(self.rate);
                self.queue -= leaves;
                self.arrivals.push_back(leaves);
                let arrives = self.arrivals.pop_front().unwrap_or(0);
                self.acknowledges(arrives);
            }
        }

        /// The latest packet is sent and requests an acknowledgement.
        fn marks_last(&mut self) {
            let psn = Psn::new(self.sent - 1);
            self.delivery.sent(&mut self.marks, psn, self.now);
        }

        fn acknowledges(&mut self, packets: u32) {
            if packets == 0 {
                return;
            }
            let outstanding = self.sent - self.acknowledged;
            self.acknowledged += packets;
            let (marks, oldest) = (&mut self.marks, Psn::new(self.acknowledged));
            let sample = (self.delivery).acknowledged(marks, oldest, packets, false, self.now);
            self.model.acknowledged(&Acknowledged {
                now: self.now,
                packets,
                outstanding,
                is_repairing: false,
                delivered: self.delivery.delivered(),
                sample,
            });
        }
    }

    #[test]
    fn window_and_pace_follow_the_rate_and_the_length_of_the_path() {
        let mut path = Path::new(50);
        path.passes(500);
        let rate = path.model.rate();
        assert!((45_000.0..56_000.0).contains(&rate), "{rate}");
        assert!(matches!(path.model.phase, Phase::Cruise { .. }));
        let window = path.model.window();
        assert!((900..1500).contains(&window), "{window}");
    }

    #[test]
    fn few_losses_change_nothing_and_many_slow_it_down() {
        let mut path = Path::new(50);
        path.passes(500);
        let before = path.model.rate();
        let lose = |path: &mut Path, again| {
            let is_new = true;
            path.model.lost(PathLoss::Packets { again, is_new });
            path.passes(30);
        };
        lose(&mut path, 1);
        assert!(path.model.ceiling.is_none());
        lose(&mut path, 400);
        assert!(path.model.ceiling.is_some_and(|it| it < before));
        path.passes(1000);
        assert!(path.model.ceiling.is_none(), "it recovers");
    }

    #[test]
    fn rate_after_many_losses_still_sends_the_least_window_in_a_round_trip() {
        let mut path = Path::new(100);
        path.passes(200);
        let round_trip = path.model.smoothed();
        for remainder in [0.5, 1e-9, 1e-300] {
            path.model.slow_down(remainder);
            let pause = path.model.pause().expect("it is spread");
            assert!(pause * MIN_PACKETS <= round_trip, "{pause:?}");
        }
    }

    #[test]
    fn notification_halves_the_rate_at_first() {
        let mut path = Path::new(50);
        path.passes(30);
        let before = path.model.rate();
        path.model.notified();
        assert!(path.model.rate() <= before * 0.51);
    }

    #[test]
    fn path_recovers_from_many_timeouts_and_notifications() {
        let mut path = Path::new(50);
        path.passes(500);
        for _ in 0..40 {
            path.model.lost(PathLoss::Silence);
            path.model.notifications.end_round();
            path.model.notified();
        }
        assert_eq!(path.model.rate(), path.model.least_rate());
        assert!(path.model.pause().is_some_and(|it| it.as_millis() <= 500));
        // At most four packets are sent in each round trip of ten milliseconds, so few round trips show that none is lost.
        path.passes(1000);
        let grown = path.model.rate() / path.model.least_rate();
        assert!(grown > 1.02, "{grown}");
    }

    #[test]
    fn start_that_falls_silent_begins_again_with_few_packets() {
        let mut path = Path::new(50);
        path.passes(12);
        path.model.lost(PathLoss::Silence);
        assert_eq!(path.model.phase, START);
        assert_eq!(path.model.window(), MIN_PACKETS);
        path.passes(500);
        let rate = path.model.rate();
        assert!((45_000.0..56_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn low_rate_recovers_within_some_hundred_round_trips() {
        let mut path = Path::new(50);
        path.passes(500);
        path.model.slow_down(1e-9);
        path.passes(2000);
        let rate = path.model.rate();
        assert!(rate > 40_000.0, "{rate}");
    }

    #[test]
    fn packet_that_was_sent_again_does_not_tell_how_long_the_path_is() {
        let mut path = Path::new(50);
        path.sent = 1;
        path.marks_last();
        path.marks.sent_again();
        path.now += 400 * MILLISECOND;
        path.acknowledges(1);
        assert_eq!(path.model.shortest, None);
        assert!(!path.model.is_queued(), "nothing was measured");
    }

    /// Otherwise nothing that is measured later would be used.
    #[test]
    fn a_timeout_before_the_first_measurement_limits_no_rate() {
        let mut path = Path::new(50);
        path.model.lost(PathLoss::Silence);
        path.model.notified();
        path.passes(500);
        assert!(path.model.ceiling.is_none());
        assert!(path.model.window() > MIN_PACKETS);
    }

    #[test]
    fn round_trip_that_takes_no_time_on_a_coarse_clock_is_of_no_harm() {
        let mut path = Path::new(50);
        path.sent = 1;
        path.marks_last();
        path.now += MILLISECOND;
        path.sent = 2;
        path.marks_last();
        path.acknowledges(2);
        path.passes(2000);
        assert!(path.model.rate().is_finite());
        assert!(path.model.pause().is_some_and(|it| !it.is_zero()));
    }

    #[test]
    fn queue_of_others_starts_a_window_like_that_of_tcp_until_it_is_gone() {
        let mut path = Path::new(50);
        path.passes(300);
        assert!(path.model.rival.is_none());
        // Packets wait for ten milliseconds behind those of others.
        (0..10).for_each(|_| path.arrivals.push_front(0));
        path.passes(300);
        assert!(path.model.rival.is_some());
        let waiting: u32 = path.arrivals.drain(..10).sum();
        path.arrivals[0] += waiting;
        path.passes(7000);
        assert!(path.model.rival.is_none());
    }

    #[test]
    fn program_that_sends_little_does_not_lower_the_rate() {
        let mut path = Path::new(50);
        path.passes(500);
        let before = path.model.rate();
        for _ in 0..50 {
            path.delivery.is_limited_by_program(0);
            path.sent += 1;
            path.marks_last();
            path.now += 10 * MILLISECOND;
            let rest = path.sent - path.acknowledged;
            path.acknowledges(rest);
        }
        assert!(path.model.rate() > before * 0.9);
    }
}

//! The congestion control CUBIC (RFC 9438), with the delay test of HyStart that ends slow start.

use std::time::Duration;

use super::tcp::Sample;

/// How fast the window grows away from the last maximum, in packets per second³.
const GROWTH: f64 = 0.4;

/// What a loss leaves of the window.
const DECREASE: f64 = 0.7;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Cubic {
    window: f64,
    threshold: f64,
    maximum: f64,
    /// When the window grew first after the last loss, and how large it was.
    epoch: Option<(Duration, f64)>,
    /// The window that a sender of the classic kind would have.
    classic: f64,
    shortest: Option<Duration>,
    /// The shortest round trip of the present round, and where the round ends.
    round: (Option<Duration>, u64),
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: 10.0,
            threshold: f64::MAX,
            maximum: 0.0,
            epoch: None,
            classic: 0.0,
            shortest: None,
            round: (None, 0),
        }
    }
}

impl Cubic {
    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }

    pub(super) fn note_round_trip(&mut self, round_trip: Duration) {
        let shortest = self.shortest.unwrap_or(round_trip);
        self.shortest = Some(shortest.min(round_trip));
    }

    pub(super) fn acknowledged(&mut self, sample: &Sample) {
        self.note_round_trip(sample.round_trip);
        if self.window < self.threshold {
            self.window += sample.newly as f64;
            self.end_slow_start(sample);
            return;
        }
        let (begin, origin) = *self.epoch.get_or_insert((sample.now, self.window));
        let distance = ((self.maximum - origin).max(0.0) / GROWTH).cbrt();
        let time = (sample.now - begin + sample.round_trip).as_secs_f64() - distance;
        let target = origin.max(self.maximum) + GROWTH * time.powi(3);
        let newly = sample.newly as f64;
        if self.classic == 0.0 {
            self.classic = origin;
        }
        self.classic += newly * 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE) / self.window;
        let target = target.clamp(self.window, 1.5 * self.window);
        self.window += newly * (target - self.window) / self.window;
        self.window = self.window.max(self.classic);
    }

    /// HyStart: the round trips of a round are longer than the shortest by an eighth.
    fn end_slow_start(&mut self, sample: &Sample) {
        let (least, end) = &mut self.round;
        let shortest_here = least.map_or(sample.round_trip, |it| it.min(sample.round_trip));
        *least = Some(shortest_here);
        if sample.delivered_before < *end {
            return;
        }
        self.round = (None, sample.delivered);
        let shortest = self.shortest.unwrap_or(sample.round_trip);
        let margin = (shortest / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        if self.window >= 16.0 && shortest_here > shortest + margin {
            self.threshold = self.window;
        }
    }

    pub(super) fn lost(&mut self, _now: Duration) {
        let converging = self.window < self.maximum;
        self.maximum = if converging {
            self.window * (1.0 + DECREASE) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * DECREASE).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
        self.classic = 0.0;
    }

    pub(super) fn timed_out(&mut self) {
        self.maximum = self.window;
        self.threshold = (self.window * DECREASE).max(2.0);
        self.window = 1.0;
        self.epoch = None;
        self.classic = 0.0;
    }
}

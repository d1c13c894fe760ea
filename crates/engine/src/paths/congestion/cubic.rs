//! CUBIC (RFC 9438): what TCP does by default.

use std::time::{Duration, Instant};

use super::notification::Notifications;
use super::{Acknowledged, CongestionControl, INITIAL_PACKETS, PathLoss};

/// How fast the window grows away from the last maximum, in packets per second³ (RFC 9438).
const GROWTH: f64 = 0.4;

/// What a loss leaves of the window of TCP (RFC 9438).
const REMAINDER: f64 = 0.7;

/// The least window, in packets. It is less than one where many senders share a link: a packet is sent every few round trips.
const LEAST: f64 = 0.1;

/// The growth of the window since it was reduced last.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// It has not been reduced.
    SlowStart,
    /// It has just been reduced from `maximum`.
    Reduced { maximum: f64 },
    /// It has grown from `origin` since `begin`.
    Avoidance {
        begin: Instant,
        origin: f64,
        maximum: f64,
        /// The window that a sender of the classic kind would have.
        classic: f64,
    },
}

/// How much a window takes.
#[derive(Debug)]
pub(super) struct Manner {
    /// The growth for each acknowledged packet before the first loss.
    start: f64,
    /// What a loss leaves of the window.
    remainder: f64,
    /// As how many senders of the classic kind it grows at least.
    classic: f64,
}

/// As TCP does (RFC 9438).
const OF_TCP: Manner = Manner {
    start: 1.0,
    remainder: REMAINDER,
    classic: 1.0,
};

/// What leaves a TCP connection and us a fair part each, in the simulator (one seed). Our packets come in small bursts, which meet a full queue more often, and
/// our losses take longer to be repaired: in the manner of TCP we get 13 to 20 % of a link with a short queue. With a remainder of
/// 0.85 we get 20 to 22 %, and with the growth of three senders 30 to 37 %. On a long queue, where nothing is lost for seconds, we get
/// 8 % unless the window grows by an eighth each round trip until the first loss.
pub(super) const BESIDE_TCP: Manner = Manner {
    start: 1.0 / 8.0,
    remainder: 0.85,
    classic: 3.0,
};

/// The window alone, in packets.
#[derive(Debug)]
pub(super) struct CubicWindow {
    manner: &'static Manner,
    packets: f64,
    phase: Phase,
}

impl CubicWindow {
    /// A window that has met no loss.
    pub(super) fn new(manner: &'static Manner, packets: f64) -> Self {
        Self {
            manner,
            packets,
            phase: Phase::SlowStart,
        }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// How long one packet lasts, if the window is sent a little faster than it is acknowledged.
    pub(super) fn pause(&self, round_trip: Duration) -> Duration {
        let gain = match self.phase {
            Phase::SlowStart => 2.0,
            Phase::Reduced { .. } | Phase::Avoidance { .. } => 1.25,
        };
        round_trip.div_f64(gain * self.packets)
    }

    pub(super) fn reduce(&mut self, remainder: f64) {
        let before = match self.phase {
            Phase::Reduced { maximum } | Phase::Avoidance { maximum, .. } => maximum,
            Phase::SlowStart => 0.0,
        };
        // Fast convergence: a window that did not reach the last maximum makes room for others.
        let maximum = if self.packets < before {
            self.packets * (1.0 + remainder) / 2.0
        } else {
            self.packets
        };
        self.packets = (self.packets * remainder).max(LEAST);
        self.phase = Phase::Reduced { maximum };
    }

    /// The window is reduced for all losses of a round trip when the first one is told.
    pub(super) fn lost(&mut self, loss: PathLoss) {
        match loss {
            PathLoss::Packets { is_new: false, .. } => {}
            PathLoss::Packets { .. } | PathLoss::Silence => self.reduce(self.manner.remainder),
        }
    }

    /// As many packets were acknowledged.
    pub(super) fn grow(&mut self, now: Instant, round_trip: Duration, packets: f64) {
        match &mut self.phase {
            Phase::SlowStart => self.packets += packets * self.manner.start,
            Phase::Reduced { maximum } => {
                self.phase = Phase::Avoidance {
                    begin: now,
                    origin: self.packets,
                    maximum: *maximum,
                    classic: self.packets,
                };
            }
            Phase::Avoidance {
                begin,
                origin,
                maximum,
                classic,
            } => {
                let plateau = ((*maximum - *origin).max(0.0) / GROWTH).cbrt();
                let time = (now - *begin + round_trip).as_secs_f64() - plateau;
                let target = maximum.max(*origin) + GROWTH * time.powi(3);
                let part = packets / self.packets.max(1.0);
                *classic +=
                    self.manner.classic * part * 3.0 * (1.0 - REMAINDER) / (1.0 + REMAINDER);
                let target = target.clamp(self.packets, 1.5 * self.packets);
                self.packets += part * (target - self.packets);
                self.packets = self.packets.max(*classic);
            }
        }
    }
}

#[derive(Debug)]
pub(in crate::paths) struct Cubic {
    window: CubicWindow,
    round_end: u64,
    round_trip: Option<Duration>,
    notifications: Notifications,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: CubicWindow::new(&OF_TCP, f64::from(INITIAL_PACKETS)),
            round_end: 0,
            round_trip: None,
            notifications: Notifications::default(),
        }
    }
}

impl CongestionControl for Cubic {
    fn acknowledged(&mut self, told: &Acknowledged) {
        if let Some(sample) = told.sample {
            if !sample.is_sent_again {
                self.round_trip = Some(sample.round_trip);
            }
            if sample.delivered_before >= self.round_end {
                self.round_end = told.delivered;
                self.notifications.end_round();
            }
        }
        let is_needed = told.outstanding * 2 >= self.window();
        if let Some(round_trip) = self.round_trip.filter(|_| is_needed && !told.is_repairing) {
            let packets = f64::from(told.packets);
            self.window.grow(told.now, round_trip, packets);
        }
    }

    fn lost(&mut self, loss: PathLoss) {
        self.window.lost(loss);
    }

    fn notified(&mut self) {
        let remainder = self.notifications.notified();
        if remainder < 1.0 {
            self.window.reduce(remainder);
        }
    }

    fn window(&self) -> u32 {
        self.window.packets() as u32
    }

    fn pause(&self) -> Option<Duration> {
        Some(self.window.pause(self.round_trip?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::start;
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// A round trip passes, and all of the window is acknowledged.
    fn round(window: &mut CubicWindow, now: &mut Instant) {
        *now += ROUND_TRIP;
        for _ in 0..window.packets() as u32 {
            window.grow(*now, ROUND_TRIP, 1.0);
        }
    }

    const LOSS: PathLoss = PathLoss::Packets {
        again: 1,
        is_new: true,
    };

    #[test]
    fn window_doubles_until_the_first_loss() {
        let (mut window, mut now) = (CubicWindow::new(&OF_TCP, 10.0), start());
        (0..3).for_each(|_| round(&mut window, &mut now));
        assert_eq!(window.packets(), 80.0);
        window.lost(LOSS);
        assert!((window.packets() - 56.0).abs() < 0.1);
    }

    #[test]
    fn all_losses_of_a_round_trip_reduce_it_once() {
        let mut window = CubicWindow::new(&OF_TCP, 100.0);
        window.lost(LOSS);
        window.lost(PathLoss::Packets {
            again: 2,
            is_new: false,
        });
        assert!((window.packets() - 70.0).abs() < 0.1);
    }

    // RFC 9438, section 4.2: K = cbrt((W_max - cwnd_epoch) / C).
    #[test]
    fn window_is_back_at_its_maximum_after_the_time_of_the_cubic_function() {
        let (mut window, mut now) = (CubicWindow::new(&OF_TCP, 1000.0), start());
        window.lost(LOSS);
        let seconds = (300.0_f64 / GROWTH).cbrt();
        (0..(seconds * 10.0) as u32).for_each(|_| round(&mut window, &mut now));
        let packets = window.packets();
        assert!((980.0..1020.0).contains(&packets), "{packets}");
    }
}

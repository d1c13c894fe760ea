//! Round-trip times of pings.

use std::fmt::{self, Display};
use std::time::Duration;

/// The times of all pings so far.
#[derive(Debug, Default)]
pub(super) struct Times {
    count: u64,
    least: f64,
    most: f64,
    sum: f64,
    sum_of_squares: f64,
}

impl Times {
    /// Adds the time of one ping.
    pub(super) fn add(&mut self, time: Duration) {
        let time = microseconds(time);
        self.least = if self.count == 0 {
            time
        } else {
            self.least.min(time)
        };
        self.most = self.most.max(time);
        self.count += 1;
        self.sum += time;
        self.sum_of_squares += time * time;
    }
}

/// A time in microseconds.
pub(super) fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

impl Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return write!(f, "no ping was answered");
        }
        let count = self.count as f64;
        let average = self.sum / count;
        let deviation = (self.sum_of_squares / count - average * average).max(0.0);
        write!(
            f,
            "{} pings, round trip min/avg/max/mdev = {:.1}/{average:.1}/{:.1}/{:.1} us",
            self.count,
            self.least,
            self.most,
            deviation.sqrt()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_extremes_and_the_average() {
        let mut times = Times::default();
        assert_eq!(times.to_string(), "no ping was answered");
        for time in [30, 10, 20] {
            times.add(Duration::from_micros(time));
        }
        assert_eq!(
            times.to_string(),
            "3 pings, round trip min/avg/max/mdev = 10.0/20.0/30.0/8.2 us"
        );
    }
}

//! The progress of a measurement: a bar, or a line for each interval.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::test_parameters::{Amount, TestParameters};
use crate::output::print_line;

/// The lines of intervals, or a progress bar on a terminal and in long runs.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    intervals: Option<Intervals>,
    amount: Amount,
    begin: Instant,
}

/// Prints a line for each interval, as iperf3 does.
struct Intervals {
    length: Duration,
    size: usize,
    is_latency: bool,
    /// When the present interval began, since the first, and how many messages were complete then.
    last: Cell<(Duration, u64)>,
    /// The newest time, and how many messages were complete then.
    present: Cell<(Duration, u64)>,
}

impl Intervals {
    fn new(length: Duration, size: usize, is_latency: bool) -> Self {
        Self {
            length,
            size,
            is_latency,
            last: Cell::default(),
            present: Cell::default(),
        }
    }

    /// The line of the interval that ends now, if one does.
    fn line(&self, now: Duration, messages: u64) -> Option<String> {
        let (from, before) = self.last.get();
        self.present.set((now, messages));
        // Another round begins at zero.
        if messages < before {
            self.last.set((now, messages));
            return None;
        }
        (now >= from + self.length).then(|| self.end_interval())
    }

    /// The line of the last interval, which may be shorter. Very short ones say nothing.
    fn last_line(&self) -> Option<String> {
        let passed = self.present.get().0.saturating_sub(self.last.get().0);
        (passed >= self.length / 4).then(|| self.end_interval())
    }

    fn end_interval(&self) -> String {
        let (now, messages) = self.present.get();
        let (from, before) = self.last.replace((now, messages));
        let (count, seconds) = ((messages - before) as f64, (now - from).as_secs_f64());
        let times = format!("{:>7.2}-{:<7.2} s", from.as_secs_f64(), now.as_secs_f64());
        if self.is_latency {
            let average = seconds * 1e6 / count.max(1.0);
            format!("{times}{count:>12.0} messages{average:>12.2} us between them")
        } else {
            let mib = count * self.size as f64 / f64::from(1 << 20);
            format!(
                "{times}{mib:>12.2} MiB{:>12.2} MiB/sec{:>12.6} Mpps",
                mib / seconds,
                count / seconds / 1e6
            )
        }
    }
}

impl Progress {
    pub(super) fn new(
        parameters: &TestParameters,
        size: usize,
        json: bool,
        interval: Option<Duration>,
    ) -> Self {
        let wanted = !json && interval.is_none() && std::io::stderr().is_terminal();
        Self {
            bar: wanted.then(|| bar(parameters.amount, size)),
            intervals: interval
                .map(|length| Intervals::new(length, size, parameters.test.is_latency())),
            amount: parameters.amount,
            begin: Instant::now(),
        }
    }

    /// Shows that this many messages are complete.
    pub(super) fn at(&self, messages: u64) {
        /// A shorter run shows no bar, because it would vanish at once.
        const MIN_RUN_WITH_BAR: Duration = Duration::from_millis(700);
        /// The time between two updates: drawing slows the measurement down.
        const DRAWS_PER_SECOND: u8 = 4;
        if let Some(intervals) = &self.intervals
            && let Some(line) = intervals.line(self.begin.elapsed(), messages)
        {
            // If nobody reads it, the measurement goes on.
            let _ = print_line(line);
        }
        let Some(bar) = &self.bar else { return };
        let elapsed = self.begin.elapsed();
        if elapsed < MIN_RUN_WITH_BAR {
            return;
        }
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
        }
        bar.set_position(match self.amount {
            Amount::Messages(_) => messages,
            Amount::Seconds(_) => elapsed.as_millis() as u64,
        });
    }
}

fn bar(amount: Amount, size: usize) -> ProgressBar {
    let length = match amount {
        Amount::Messages(messages) => messages,
        Amount::Seconds(seconds) => (seconds * 1000.0) as u64,
    };
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{msg:>9} [{bar:40}] {percent:>3} %");
    bar.with_style(style.expect("the template is right"))
        .with_message(size.to_string())
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = self.intervals.as_ref().and_then(Intervals::last_line) {
            let _ = print_line(line);
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_has_its_own_rate() {
        let intervals = Intervals::new(Duration::from_secs(1), 1 << 20, false);
        let line = |seconds: f64, messages| {
            let line = intervals.line(Duration::from_secs_f64(seconds), messages)?;
            Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line(0.5, 50), None);
        let first = "0.00-1.00 s 100.00 MiB 100.00 MiB/sec 0.000100 Mpps";
        assert_eq!(line(1.0, 100).as_deref(), Some(first));
        let second = "1.00-3.00 s 400.00 MiB 200.00 MiB/sec 0.000200 Mpps";
        assert_eq!(line(3.0, 500).as_deref(), Some(second));
        assert_eq!(line(3.5, 10), None, "another round");
        assert!(line(4.5, 20).is_some());
        assert_eq!(line(4.6, 25), None);
        assert_eq!(intervals.last_line(), None, "too short");
        assert_eq!(line(5.25, 95), None);
        let rest = intervals.last_line().expect("the rest");
        assert!(rest.contains("4.50-5.25"), "{rest}");
        assert!(rest.contains("75.00 MiB      100.00 MiB/sec"), "{rest}");
    }
}

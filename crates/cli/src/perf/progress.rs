//! The progress bar of a measurement.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::{Amount, Plan};

/// A progress bar, on a terminal and in long runs only.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    amount: Amount,
    begin: Instant,
}

impl Progress {
    pub(super) fn new(plan: &Plan, size: usize, json: bool) -> Self {
        let wanted = !json && std::io::stderr().is_terminal();
        Self {
            bar: wanted.then(|| bar(plan.amount, size)),
            amount: plan.amount,
            begin: Instant::now(),
        }
    }

    /// Shows that this many messages are complete.
    pub(super) fn at(&self, messages: u64) {
        /// A shorter run shows no bar, because it would vanish at once.
        const MIN_RUN_WITH_BAR: Duration = Duration::from_millis(700);
        /// The time between two updates: drawing slows the measurement down.
        const DRAWS_PER_SECOND: u8 = 4;
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
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! Detects a measurement that makes no progress.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// After this time without a completion a measurement fails. Longer than all retries of a queue pair together.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Fails when there is no completion for [`STALL_TIMEOUT`]. It reads the clock only at every 64th empty poll.
pub(super) struct StallTimer {
    empty_polls: u32,
    since: Instant,
}

impl StallTimer {
    pub(super) fn new() -> Self {
        Self {
            empty_polls: 0,
            since: Instant::now(),
        }
    }

    /// Notes a completion.
    pub(super) fn reset(&mut self) {
        self.empty_polls = 0;
    }

    /// Notes an empty poll.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.empty_polls += 1;
        if self.empty_polls == 1 {
            self.since = Instant::now();
        }
        let over = self.empty_polls.is_multiple_of(64) && self.since.elapsed() > STALL_TIMEOUT;
        ensure!(
            !over,
            "no completion for ten seconds: a message was lost, or the peer hangs; \
             unreliable services may check messages, so try again or use -c RC"
        );
        Ok(())
    }
}

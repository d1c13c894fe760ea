//! Detects a measurement that makes no progress.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// After this time without a completion a measurement fails. Longer than all retries of a queue pair together.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Fails when there is no completion for [`STALL_TIMEOUT`]. It reads the clock only at every 64th empty poll, because in a virtual machine
/// that may take longer than a message.
#[derive(Default)]
pub(super) struct StallTimer {
    empty_polls: u32,
    /// When it read the clock first since the last completion.
    since: Option<Instant>,
}

impl StallTimer {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Notes a completion.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Notes an empty poll.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if !self.empty_polls.is_multiple_of(64) {
            return Ok(());
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        ensure!(
            now - since <= STALL_TIMEOUT,
            "no completion for ten seconds: a message was lost, or the peer hangs; \
             unreliable services may check messages, so try again or use -c RC"
        );
        Ok(())
    }
}

//! How long nothing may happen.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// Longer than any retry takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Notices when nothing happens any more, without asking the clock every time.
pub(super) struct Patience {
    looks: u32,
    since: Instant,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self {
            looks: 0,
            since: Instant::now(),
        }
    }

    /// Something happened.
    pub(super) fn restore(&mut self) {
        self.looks = 0;
    }

    /// Nothing happened.
    pub(super) fn lose(&mut self) -> anyhow::Result<()> {
        self.looks += 1;
        if self.looks == 1 {
            self.since = Instant::now();
        }
        let over = self.looks.is_multiple_of(64) && self.since.elapsed() > PATIENCE;
        ensure!(
            !over,
            "nothing came for ten seconds: a message was lost, or the other side hangs; \
             unreliable services may lose messages, so try again or use -c RC"
        );
        Ok(())
    }
}

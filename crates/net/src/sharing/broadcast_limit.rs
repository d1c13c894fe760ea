//! Limits the copies of packets that are forwarded to all members.

use std::time::{Duration, Instant};

use super::steering::MAX_MEMBERS;

/// How many copies of packets may still be made in this second.
#[derive(Debug, Default)]
pub(super) struct CopyLimit {
    made: usize,
    since: Option<Instant>,
}

impl CopyLimit {
    /// One packet to the maximum number of members.
    const MAX_PER_SECOND: usize = MAX_MEMBERS;

    /// How many of `wanted` copies may be made.
    pub(super) fn take(&mut self, now: Instant, wanted: usize) -> usize {
        let over = |since: Instant| now.saturating_duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(over) {
            self.since = Some(now);
            self.made = 0;
        }
        let granted = wanted.min(Self::MAX_PER_SECOND - self.made);
        self.made += granted;
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_per_second_are_limited() {
        let mut copies = CopyLimit::default();
        let begin = Instant::now();
        let later = |milliseconds| begin + Duration::from_millis(milliseconds);
        assert_eq!(copies.take(later(0), 1500), 1500);
        assert_eq!(
            copies.take(later(1), 1500),
            CopyLimit::MAX_PER_SECOND - 1500
        );
        assert_eq!(copies.take(later(999), 1), 0);
        assert_eq!(copies.take(later(1000), 7), 7);
    }
}

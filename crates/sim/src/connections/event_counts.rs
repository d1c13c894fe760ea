//! Event counts by kind. The tests require that every kind occurs.

use std::collections::BTreeMap;

use cm::Counters;
use wire::cm::{DisconnectRequest, ReceiptAcknowledge};

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCounts(BTreeMap<String, u64>);

impl EventCounts {
    /// Counts one event.
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.add(what, 1);
    }

    fn add(&mut self, what: impl Into<String>, count: u64) {
        *self.0.entry(what.into()).or_default() += count;
    }

    /// Adds the counters of a manager.
    pub(crate) fn take(&mut self, counters: &Counters) {
        let received = &counters.received;
        for (what, count) in [
            ("message retransmitted", counters.retransmitted.total()),
            ("duplicate", counters.duplicates.total()),
            ("message without an exchange", counters.unmatched),
            ("stale connection", counters.stale),
            ("backlog full", counters.backlog_full),
            ("no listener", counters.no_listener),
            ("MRA received", received.of(ReceiptAcknowledge::ATTRIBUTE)),
            ("DREQ received", received.of(DisconnectRequest::ATTRIBUTE)),
        ] {
            self.add(what, count);
        }
    }

    /// Adds the counts of another run.
    pub(crate) fn merge(&mut self, other: &EventCounts) {
        for (what, count) in &other.0 {
            self.add(what, *count);
        }
    }

    /// All kinds and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(what, &count)| (what.as_str(), count))
    }
}

//! How often what happened: a simulation that gets nowhere must not pass for one.

use std::collections::BTreeMap;

use cm::Counters;
use wire::cm::{DisconnectRequest, ReceiptAcknowledge};

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census(BTreeMap<String, u64>);

impl Census {
    /// One more of these.
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.add(what, 1);
    }

    fn add(&mut self, what: impl Into<String>, count: u64) {
        *self.0.entry(what.into()).or_default() += count;
    }

    /// Takes in what a manager counted in its life.
    pub(crate) fn take(&mut self, counters: &Counters) {
        let received = &counters.received;
        for (what, count) in [
            ("message repeated", counters.repeated),
            ("duplicate", counters.duplicates.total()),
            ("message without a conversation", counters.unmatched),
            ("stale connection", counters.stale),
            ("backlog full", counters.backlog_full),
            ("nobody listening", counters.no_listener),
            (
                "asked for patience",
                received.of(ReceiptAcknowledge::ATTRIBUTE),
            ),
            (
                "farewell received",
                received.of(DisconnectRequest::ATTRIBUTE),
            ),
        ] {
            self.add(what, count);
        }
    }

    /// Takes in what another run counted.
    pub(crate) fn merge(&mut self, other: &Census) {
        for (what, count) in &other.0 {
            self.add(what, *count);
        }
    }

    /// What was counted, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(what, &count)| (what.as_str(), count))
    }
}

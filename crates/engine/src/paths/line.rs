//! The queue pairs that wait for their path, in the order in which they may send.

use std::collections::BTreeMap;

use wire::Qpn;

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The line. To join and to leave it takes the time of a look-up.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: BTreeMap<Ticket, Qpn>,
    latest: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a queue pair: at the end, or at the place that it has kept.
    pub(super) fn join(&mut self, queue_pair: Qpn, kept: Option<Ticket>) -> Ticket {
        let ticket = kept.unwrap_or_else(|| {
            self.latest += 1;
            Ticket(self.latest)
        });
        self.waiting.insert(ticket, queue_pair);
        ticket
    }

    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Removes the first one.
    pub(super) fn take_first(&mut self) -> Option<Qpn> {
        self.waiting.pop_first().map(|(_, queue_pair)| queue_pair)
    }
}

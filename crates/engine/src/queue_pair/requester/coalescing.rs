//! Small requests that wait for others: a send of many packets costs hardly more than that of one.

use std::time::{Duration, Instant};

use super::super::QueuePair;

/// With so many requests under way, nobody waits for one more.
const MANY: usize = 16;

/// So many packets are company enough.
const ENOUGH: u32 = 16;

/// However far away the peer is, nobody waits longer.
const PATIENCE: Duration = Duration::from_micros(50);

/// Whether what is to be sent next waits for company.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    Unneeded,
    AwaitedUntil(Instant),
    /// It has not come in time.
    GivenUp,
}

impl QueuePair {
    /// Behind many requests that are under way, a few small ones wait for others to go with. Every one of
    /// those asked for an acknowledgement; these end the wait, or the timer does.
    pub(super) fn waits_for_company(&mut self, now: Instant) -> bool {
        let company = match (self.wants_company(), self.requester.company) {
            (true, Company::Unneeded) => Company::AwaitedUntil(now + PATIENCE),
            (true, Company::AwaitedUntil(until)) => Company::AwaitedUntil(until),
            (true, Company::GivenUp) | (false, _) => Company::Unneeded,
        };
        self.requester.company = company;
        company != Company::Unneeded
    }

    fn wants_company(&self) -> bool {
        let requester = &self.requester;
        let Some(next) = self.send.at(requester.position) else {
            return false;
        };
        let is_whole = next.first().is_none_or(|it| it == requester.cursor);
        let requests = (self.send.len() - requester.position) as u32;
        let packets = next.packets.saturating_mul(requests);
        requester.position >= MANY && is_whole && (1..ENOUGH).contains(&packets)
    }
}

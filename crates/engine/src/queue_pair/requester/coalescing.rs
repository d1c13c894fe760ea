//! Coalescing: small requests wait briefly, because one send of many packets costs little more than
//! a send of one.

use std::time::{Duration, Instant};

use super::super::QueuePair;
use crate::now::Now;

/// Coalescing starts when this many requests are in flight. With fewer, a request is sent at once.
const MIN_REQUESTS_UNDER_WAY: usize = 16;

/// This many packets are sent without waiting for more.
const ENOUGH_PACKETS: u32 = 16;

/// How long a request waits at most. It is shorter than a round trip to a distant peer, whose
/// acknowledgement would end the wait.
const MAX_COALESCING_DELAY: Duration = Duration::from_micros(50);

/// Whether the next requests wait to be coalesced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coalescing {
    Off,
    Until(Instant),
    /// The delay is over: the requests are sent now.
    Expired,
}

impl QueuePair {
    /// Whether the next requests wait to be coalesced with later ones. This happens behind many
    /// requests that are in flight. All of those requested an acknowledgement, so either an
    /// acknowledgement or the timer ends the wait.
    pub(super) fn waits_to_coalesce(&mut self, now: &Now) -> bool {
        let coalescing = match (self.may_coalesce(), self.requester.coalescing) {
            (true, Coalescing::Off) => Coalescing::Until(now.get() + MAX_COALESCING_DELAY),
            (true, Coalescing::Until(until)) => Coalescing::Until(until),
            (true, Coalescing::Expired) | (false, _) => Coalescing::Off,
        };
        self.requester.coalescing = coalescing;
        coalescing != Coalescing::Off
    }

    fn may_coalesce(&self) -> bool {
        let requester = &self.requester;
        let Some(next) = self.send.at(requester.position) else {
            return false;
        };
        let is_whole = next.first().is_none_or(|it| it == requester.cursor);
        let requests = (self.send.len() - requester.position) as u32;
        let packets = next.packets.saturating_mul(requests);
        // One that has its turn on its path has waited already, and others would have their turns first.
        !requester.has_turn()
            && requester.position >= MIN_REQUESTS_UNDER_WAY
            && is_whole
            && (1..ENOUGH_PACKETS).contains(&packets)
    }
}

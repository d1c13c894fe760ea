//! Pacing of requests on long paths: packets of a window are spread over the round trip.
//!
//! An acknowledgement of many packets, such as the one that follows a repair, would otherwise admit as many at once, and a short
//! queue on the path would lose some of them.

use std::time::Duration;

use super::super::{PeerRoute, QueuePair};
use super::Requester;
use crate::now::Now;

/// Shorter round trips are not paced: a timer of a process is late by up to a tenth of a millisecond.
const MIN_PACED_ROUND_TRIP: Duration = Duration::from_micros(500);

/// A paced send has at most this part of the window, and at least four packets.
const SENDS_PER_WINDOW: u32 = 16;

impl Requester {
    pub(in crate::queue_pair) fn end_pause(&mut self) {
        self.paused_until = None;
    }

    /// A window that is to grow is sent a little faster than it is acknowledged.
    fn pause_per_packet(&self, round_trip: Duration, mtu: usize) -> Duration {
        let window = self.window.packets(mtu);
        let packets = match (self.window.is_starting(), &self.repair) {
            (true, _) => window * 2,
            (false, None) => window + window / 4,
            (false, Some(_)) => window,
        };
        round_trip / packets
    }
}

impl QueuePair {
    /// Whether the next packets wait, so that they are spread over the round trip.
    pub(super) fn is_paused(&self, now: &Now) -> bool {
        let until = self.requester.paused_until;
        until.is_some_and(|until| now.get() < until)
    }

    /// How many packets one send may have.
    pub(super) fn paced_packets(&self, link: &PeerRoute) -> u32 {
        match self.paced_round_trip(link) {
            Some(_) => (self.requester.window.packets(link.mtu()) / SENDS_PER_WINDOW).max(4),
            None => u32::MAX,
        }
    }

    /// As many packets were sent: the next ones follow after a pause.
    pub(super) fn pause_after(&mut self, packets: u32, link: &PeerRoute, now: &Now) {
        if packets > 0
            && let Some(round_trip) = self.paced_round_trip(link)
        {
            let pause = self.requester.pause_per_packet(round_trip, link.mtu()) * packets;
            // A timer that was late does not slow the sender down, as long as it is late by less than a pause.
            let now = now.get();
            let begin = self.requester.paused_before;
            let begin = begin.filter(|begin| *begin + pause >= now).unwrap_or(now);
            self.requester.paused_before = Some(begin + pause);
            self.requester.paused_until = Some(begin + pause);
        }
    }

    /// The round trip over which packets are spread. Those to this host are not: there, its length shows how busy the host is.
    fn paced_round_trip(&self, link: &PeerRoute) -> Option<Duration> {
        if link.is_within_host() {
            return None;
        }
        let shortest = self.requester.round_trip.shortest()?;
        let smoothed = self.requester.round_trip.smoothed();
        smoothed.filter(|_| shortest >= MIN_PACED_ROUND_TRIP)
    }
}

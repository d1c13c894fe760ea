//! Pacing of requests on paths to other hosts: packets are spread, so that a short queue on the path takes them.

use std::time::{Duration, Instant};

use super::super::QueuePair;
use super::Requester;
use super::congestion::MIN_PACKETS;
use crate::now::Now;

/// Shorter round trips are not paced, unless they have few packets: a timer of a process is late by up to a tenth of a millisecond.
const MIN_PACED_ROUND_TRIP: Duration = Duration::from_micros(500);

/// Packets of this time are sent at once, so that there are few timers. In the simulator (one seed), beside one TCP connection, 250 µs
/// left us 34 % of a link with a short queue instead of 37 %, and 50 µs 11 % of one with a long queue instead of 42 %.
const BURST: Duration = Duration::from_micros(150);

/// A timer that is late by no more does not slow the sender down.
const MAX_LATENESS: Duration = Duration::from_micros(250);

impl Requester {
    /// The time between two packets, if they are spread.
    fn pause_per_packet(&self) -> Option<Duration> {
        let shortest = self.round_trip.shortest()?;
        let is_slow = |pause: &Duration| *pause > shortest / MIN_PACKETS;
        let pause = self.window.pause();
        pause.filter(|pause| shortest >= MIN_PACED_ROUND_TRIP || is_slow(pause))
    }

    /// Whether a message is sent in part, and the peer was asked for no acknowledgement of that part. The rest follows after a pause.
    pub(super) fn waits_for_rest(&self) -> bool {
        self.paced_until.is_some() && self.unacknowledged() <= self.packets_since_ack_request
    }
}

impl QueuePair {
    /// The pause is over. Timers that did not run meanwhile do so now, because nothing may be left to send.
    pub(in crate::queue_pair) fn end_pause(&mut self, now: Instant) {
        self.requester.paused_until = None;
        if self.state.transmits() && self.requester.awaits_response() {
            self.arm_acknowledgement_timer(&now.into());
        }
    }

    /// The rest of a message is sent: the acknowledgement timer runs from now on.
    pub(super) fn end_wait_for_rest(&mut self) {
        if self.requester.waits_for_rest() {
            self.requester.acknowledgement_due = None;
        }
    }

    /// Whether the next packets wait, so that they are spread.
    pub(super) fn is_paused(&self, now: &Now) -> bool {
        let until = self.requester.paused_until;
        until.is_some_and(|until| now.get() < until)
    }

    /// How many packets one send may have.
    pub(super) fn paced_packets(&self) -> u32 {
        let packets = |pause: Duration| (BURST.as_nanos() / pause.as_nanos().max(1)) as u32;
        let pause = self.requester.pause_per_packet();
        pause.map_or(u32::MAX, |pause| packets(pause).max(1))
    }

    /// As many packets were sent: the next ones follow after a pause, or, if they were few, at once.
    pub(super) fn pause_after(&mut self, packets: u32, now: &Now) {
        if packets > 0
            && let Some(pause) = self.requester.pause_per_packet()
        {
            let now = now.get();
            let begin = self.requester.paced_until;
            let begin = begin
                .filter(|begin| *begin + MAX_LATENESS >= now)
                .unwrap_or(now);
            let end = begin + pause * packets;
            self.requester.paced_until = Some(end);
            self.requester.paused_until = (end > now + BURST / 2).then_some(end);
        }
    }
}

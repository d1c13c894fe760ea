//! Recovery from losses: timers, retransmission, and the end of the retries.

use std::time::{Duration, Instant};

use wire::Psn;

use super::super::{QueuePair, Timer};
use super::Requester;
use super::coalescing::Coalescing;
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::planted_bug::Bug;

/// How often the acknowledgement timeout doubles.
const MAX_DOUBLINGS: u32 = 2;

/// Doubling does not extend the timeout beyond this. A busy peer gets a processor within about a
/// second, and a lost packet should not wait longer either.
const MAX_DOUBLED_TIMEOUT: Duration = Duration::from_secs(1);

impl Requester {
    pub(in crate::queue_pair) fn deadline(&self) -> Option<Instant> {
        let timers = [
            self.acknowledgement_due,
            self.rnr_wait_until,
            self.coalescing_deadline(),
        ];
        timers.into_iter().flatten().min()
    }

    fn coalescing_deadline(&self) -> Option<Instant> {
        match self.coalescing {
            Coalescing::Until(until) => Some(until),
            Coalescing::Off | Coalescing::Expired => None,
        }
    }

    pub(in crate::queue_pair) fn expired(&self, now: Instant) -> Option<Timer> {
        let reached = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if reached(self.rnr_wait_until) {
            return Some(Timer::ReceiverNotReady);
        }
        if reached(self.acknowledgement_due) {
            return Some(Timer::Acknowledgement);
        }
        reached(self.coalescing_deadline()).then_some(Timer::Coalescing)
    }

    pub(in crate::queue_pair) fn end_coalescing(&mut self) {
        self.coalescing = Coalescing::Expired;
    }

    pub(in crate::queue_pair) fn end_rnr_wait(&mut self) {
        self.rnr_wait_until = None;
    }

    pub(in crate::queue_pair) fn stop(&mut self) {
        self.rnr_wait_until = None;
        self.acknowledgement_due = None;
        self.coalescing = Coalescing::Off;
        self.awaited.clear();
        self.position = 0;
        self.lasting_retries = None;
    }

    pub(super) fn begin_rnr_wait(&mut self, until: Instant) {
        self.go_back();
        self.rnr_wait_until = Some(until);
    }

    /// The next packet to send is the oldest one that is not acknowledged.
    fn go_back(&mut self) {
        self.cursor = self.oldest;
        self.position = 0;
        self.awaited.clear();
        self.packets_since_ack_request = 0;
        self.acknowledgement_due = None;
        self.coalescing = Coalescing::Off;
    }
}

impl QueuePair {
    /// C9-139: a timer runs while requests wait for their responses.
    pub(super) fn arm_acknowledgement_timer(&mut self, now: &Now) {
        if self.requester.acknowledgement_due.is_none() {
            self.requester.acknowledgement_due = self.acknowledgement_deadline(now);
        }
    }

    /// C9-139, for requests that were delivered within the device: usually their responses are here already.
    pub(crate) fn arm_timer_after_delivery(&mut self, now: &Now) {
        if self.state.transmits() && self.requester.in_flight() > 0 {
            self.arm_acknowledgement_timer(now);
        }
    }

    /// C9-140: a requester waits between one and four times 4.096 µs · 2^code; code 0 disables the timer.
    /// The first timeout is one interval, so that a loss is repaired soon. Later timeouts double,
    /// because a peer that does not answer at all probably waits for a processor.
    fn acknowledgement_deadline(&self, now: &Now) -> Option<Instant> {
        let interval = self.attributes.ack_timeout?.interval()?;
        let interval = interval.max(self.settings.min_ack_timeout);
        let doubled = interval * (1 << self.requester.timeouts.min(MAX_DOUBLINGS));
        Some(now.get() + interval.max(doubled.min(MAX_DOUBLED_TIMEOUT)))
    }

    /// Packets were acknowledged: renews retries and timer.
    pub(in crate::queue_pair) fn made_progress(&mut self, now: &Now, before: Psn) {
        let packets = self.requester.oldest.ahead_of(before);
        let mtu = self.link.map_or(0, |link| link.mtu());
        self.requester.window.grow(packets, mtu);
        self.requester.retries_left = self.attributes.retry_count.unwrap_or(0);
        self.requester.rnr_retries_left = self.attributes.rnr_retry.unwrap_or(0);
        self.requester.retransmitted_at = None;
        self.requester.timeouts = 0;
        self.requester.lasting_retries = None;
        self.requester.acknowledgement_due = match (self.requester.in_flight(), now.known()) {
            (0, _) => None,
            (_, Some(_)) => self.acknowledgement_deadline(now),
            // The response was delivered within the device. The end of that call starts the timer.
            (_, None) => None,
        };
    }

    /// A packet or its response is lost: goes back to it, once per loss.
    pub(super) fn recover_loss(&mut self, device: &mut DeviceState) {
        let missing = self.requester.oldest;
        // After going back, nothing is in flight until the next send.
        let is_back = self.requester.in_flight() == 0;
        if is_back || self.requester.retransmitted_at == Some(missing) {
            return;
        }
        self.retry(device);
        self.requester.retransmitted_at = Some(missing);
    }

    pub(in crate::queue_pair) fn acknowledgement_timed_out(&mut self, device: &mut DeviceState) {
        device.counters.timeouts += 1;
        self.counters.timeouts += 1;
        self.requester.timeouts += 1;
        self.retry(device);
        self.requester.retransmitted_at = None;
    }

    fn retry(&mut self, device: &mut DeviceState) {
        if self.requester.retries_left == 0 && !device.planted.is(Bug::RetriesForEver) {
            device.counters.retries_exhausted += 1;
            return self.fail_send(Status::RetriesExhausted, device);
        }
        self.requester.retries_left = self.requester.retries_left.saturating_sub(1);
        self.requester.window.shrink();
        self.requester.go_back();
    }
}

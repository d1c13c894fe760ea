//! What happens when answers do not come: timers, going back, giving up.

use std::time::{Duration, Instant};

use wire::Psn;

use super::super::{QueuePair, Timer};
use super::Requester;
use super::company::Company;
use crate::completion::Status;
use crate::sabotage::Bug;
use crate::shared::Shared;

/// How often the interval between two attempts doubles.
const MAX_DOUBLINGS: u32 = 2;

/// Nobody waits for a processor longer than a few of these; a lost packet should not, either.
const PATIENT_ENOUGH: Duration = Duration::from_secs(1);

impl Requester {
    pub(in crate::queue_pair) fn deadline(&self) -> Option<Instant> {
        let timers = [
            self.acknowledgement_due,
            self.rnr_wait_until,
            self.company_until(),
        ];
        timers.into_iter().flatten().min()
    }

    fn company_until(&self) -> Option<Instant> {
        match self.company {
            Company::AwaitedUntil(until) => Some(until),
            Company::Unneeded | Company::GivenUp => None,
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
        reached(self.company_until()).then_some(Timer::Company)
    }

    pub(in crate::queue_pair) fn give_up_company(&mut self) {
        self.company = Company::GivenUp;
    }

    pub(in crate::queue_pair) fn end_rnr_wait(&mut self) {
        self.rnr_wait_until = None;
    }

    pub(in crate::queue_pair) fn stop(&mut self) {
        self.rnr_wait_until = None;
        self.acknowledgement_due = None;
        self.company = Company::Unneeded;
        self.awaited.clear();
        self.position = 0;
    }

    pub(super) fn begin_rnr_wait(&mut self, until: Instant) {
        self.go_back();
        self.rnr_wait_until = Some(until);
    }

    /// The next packet to send is the oldest that is not acknowledged.
    fn go_back(&mut self) {
        self.cursor = self.oldest;
        self.position = 0;
        self.awaited.clear();
        self.unasked = 0;
        self.acknowledgement_due = None;
        self.company = Company::Unneeded;
    }
}

impl QueuePair {
    pub(super) fn arm_acknowledgement_timer(&mut self, now: Instant) {
        if self.requester.acknowledgement_due.is_none() {
            self.requester.acknowledgement_due = self.acknowledgement_deadline(now);
        }
    }

    /// A requester may wait between one and four times the interval that it was given. The first time
    /// it doesn't, so that a loss is mended soon; but who gets no answer at all talks to a peer
    /// that waits for a processor, and more patience costs nothing.
    fn acknowledgement_deadline(&self, now: Instant) -> Option<Instant> {
        let interval = self.attributes.ack_timeout?.interval()?;
        let interval = interval.max(self.settings.min_ack_timeout);
        let patient = interval * (1 << self.requester.timeouts.min(MAX_DOUBLINGS));
        Some(now + interval.max(patient.min(PATIENT_ENOUGH)))
    }

    /// Something was acknowledged: patience is renewed.
    pub(super) fn made_progress(&mut self, now: Instant, before: Psn) {
        let packets = self.requester.oldest.ahead_of(before);
        let mtu = self.link.map_or(0, |link| link.mtu());
        self.requester.window.grow(packets, mtu);
        self.requester.retries_left = self.attributes.retry_count.unwrap_or(0);
        self.requester.rnr_retries_left = self.attributes.rnr_retry.unwrap_or(0);
        self.requester.asked_again = None;
        self.requester.timeouts = 0;
        self.requester.acknowledgement_due = match self.requester.in_flight() {
            0 => None,
            _ => self.acknowledgement_deadline(now),
        };
    }

    /// A packet or its response is known to be lost: go back to it, once.
    pub(super) fn ask_again(&mut self, shared: &mut Shared) {
        let missing = self.requester.oldest;
        // Who has gone back and not sent yet has nothing to go back for.
        let is_back = self.requester.in_flight() == 0;
        if is_back || self.requester.asked_again == Some(missing) {
            return;
        }
        self.retry(shared);
        self.requester.asked_again = Some(missing);
    }

    pub(in crate::queue_pair) fn acknowledgement_timed_out(&mut self, shared: &mut Shared) {
        shared.counters.timeouts += 1;
        self.requester.timeouts += 1;
        self.retry(shared);
        self.requester.asked_again = None;
    }

    fn retry(&mut self, shared: &mut Shared) {
        if self.requester.retries_left == 0 && !shared.sabotage.has(Bug::RetriesForEver) {
            return self.fail_send(Status::RetriesExhausted, shared);
        }
        self.requester.retries_left = self.requester.retries_left.saturating_sub(1);
        self.requester.window.shrink();
        self.requester.go_back();
    }
}

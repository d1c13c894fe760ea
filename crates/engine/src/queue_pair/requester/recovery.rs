//! Recovery from losses: timers, retransmission, and the end of the retries.

use std::time::{Duration, Instant};

use wire::Psn;

use super::super::kept_packets::KeptPackets;
use super::super::{QueuePair, Timer};
use super::Requester;
use super::coalescing::Coalescing;
use super::repair::Loss;
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::paths::{INITIAL_RESPONSE_TIMEOUT, News, Paths};
use crate::planted_bug::Bug;

/// How often the acknowledgement timeout doubles.
const MAX_DOUBLINGS: u32 = 2;

/// How often the estimated response timeout doubles.
const MAX_PROBE_DOUBLINGS: u32 = 8;

/// Doubling does not extend the timeout beyond this. A busy peer gets a processor within about a
/// second, and a lost packet should not wait longer either.
const MAX_DOUBLED_TIMEOUT: Duration = Duration::from_secs(1);

/// All retries were used.
struct NoRetries;

impl Requester {
    pub(in crate::queue_pair) fn deadline(&self) -> Option<Instant> {
        let timers = [
            self.acknowledgement_due,
            self.response_due,
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
        if reached(self.response_due) {
            return Some(Timer::Response);
        }
        reached(self.coalescing_deadline()).then_some(Timer::Coalescing)
    }

    /// Packets before `oldest` have arrived, which may end a measurement.
    pub(super) fn measure(&mut self, oldest: Psn, now: Instant, paths: &mut Paths) {
        if let Some(sample) = self.round_trip.acknowledged(oldest, now) {
            self.window.note_round_trip(sample, paths);
        }
    }

    /// What has been acknowledged since `before` and was not known to have arrived.
    fn news_since(&self, before: Psn) -> News {
        let (oldest, next) = (self.oldest, self.next);
        let (packets, outstanding) = match self.holes() {
            Some(holes) => (holes.news_before(oldest), holes.on_the_way(next)),
            None => (oldest.ahead_of(before), next.ahead_of(before)),
        };
        News {
            oldest,
            packets,
            outstanding: outstanding.max(packets),
            is_repairing: self.is_repairing(),
        }
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
        self.response_due = None;
        self.repair = None;
        self.coalescing = Coalescing::Off;
        self.kept = KeptPackets::default();
        self.awaited.clear();
        self.position = 0;
        self.lasting_retries = None;
    }

    pub(in crate::queue_pair) fn drop_kept(&mut self) {
        self.kept = KeptPackets::default();
    }

    pub(super) fn begin_rnr_wait(&mut self, until: Instant) {
        self.go_back();
        self.rnr_wait_until = Some(until);
    }

    /// The next packet to send is the oldest one that is not acknowledged.
    fn go_back(&mut self) {
        self.cursor = self.oldest;
        self.position = 0;
        self.kept = KeptPackets::default();
        self.awaited.clear();
        self.packets_since_ack_request = 0;
        self.acknowledgement_due = None;
        self.response_due = None;
        self.repair = None;
        self.round_trip.sent_again();
        self.window.sent_again();
        self.coalescing = Coalescing::Off;
    }
}

impl QueuePair {
    /// C9-139: a timer runs while requests wait for their responses.
    pub(super) fn arm_acknowledgement_timer(&mut self, now: &Now) {
        if self.requester.acknowledgement_due.is_none() {
            self.requester.acknowledgement_due = self.acknowledgement_deadline(now);
        }
        if self.requester.response_due.is_none() {
            self.requester.response_due = self.response_deadline(now);
        }
    }

    /// When the oldest packet is sent again although the acknowledgement timeout, which takes a retry, has not expired. Each time
    /// without a response takes twice as long. After a timeout nothing is sent before the next one: the peer is probably gone.
    fn response_deadline(&self, now: &Now) -> Option<Instant> {
        let requester = &self.requester;
        if requester.timeouts > 0 {
            return None;
        }
        let measured = requester.window.response_timeout();
        let timeout = measured.or_else(|| self.initial_response_timeout())?;
        Some(now.get() + timeout * (1 << requester.probes.min(MAX_PROBE_DOUBLINGS)))
    }

    pub(in crate::queue_pair) fn response_overdue(&mut self, now: Instant, paths: &mut Paths) {
        self.requester.window.overdue(now, paths);
        self.requester.probes += 1;
        self.requester.overdue_before = Some(self.requester.next);
        self.probe();
        self.requester.response_due = self.response_deadline(&now.into());
    }

    /// C9-139, for requests that were delivered within the device: usually their responses are here already.
    pub(crate) fn arm_timer_after_delivery(&mut self, now: &Now) {
        if self.state.transmits() && self.requester.awaits_response() {
            self.arm_acknowledgement_timer(now);
        }
    }

    /// C9-140: a requester waits between one and four times 4.096 µs · 2^code; code 0 disables the timer.
    /// The first timeout is one interval, so that a loss is repaired soon. Later timeouts double,
    /// because a peer that does not answer at all probably waits for a processor.
    fn acknowledgement_deadline(&self, now: &Now) -> Option<Instant> {
        let interval = self.acknowledgement_interval()?;
        let doubled = interval * (1 << self.requester.timeouts.min(MAX_DOUBLINGS));
        Some(now.get() + interval.max(doubled.min(MAX_DOUBLED_TIMEOUT)))
    }

    /// When a response of another host is overdue if no round trip was measured. Without a timeout nothing ever is.
    fn initial_response_timeout(&self) -> Option<Duration> {
        self.requester.window.as_shared()?;
        self.acknowledgement_interval()?;
        Some(INITIAL_RESPONSE_TIMEOUT)
    }

    /// The acknowledgement timeout of a queue pair, unless it has none.
    fn acknowledgement_interval(&self) -> Option<Duration> {
        let interval = self.attributes.ack_timeout?.interval()?;
        Some(interval.max(self.settings.min_ack_timeout))
    }

    /// Packets were acknowledged: renews retries and timer.
    pub(in crate::queue_pair) fn made_progress(
        &mut self,
        now: &Now,
        before: Psn,
        device: &mut DeviceState,
    ) {
        let requester = &mut self.requester;
        // A response that was delivered within the device comes with no time. The end of that call starts the timer.
        if let Some(at) = now.known() {
            let news = requester.news_since(before);
            let paths = &mut device.paths;
            requester.window.acknowledged_there(at, &news, paths);
            requester.measure(requester.oldest, at, paths);
        }
        self.note_progress(before);
        self.advance_repair(&mut device.paths);
        if now.known().is_some() && self.requester.awaits_response() {
            self.arm_acknowledgement_timer(now);
        }
    }

    /// The part of progress that depends on no time.
    fn note_progress(&mut self, before: Psn) {
        let news = self.requester.news_since(before);
        self.requester.window.acknowledged_here(&news);
        self.end_retries();
    }

    pub(in crate::queue_pair) fn end_retries(&mut self) {
        self.requester.renew_retries(&self.attributes);
        self.requester.retransmitted_at = None;
        self.requester.lasting_retries = None;
        self.stop_timers();
    }

    /// Advances by the packets of a message, which this device acknowledged at once. Nothing was under way, and nothing is repaired.
    #[inline]
    pub(in crate::queue_pair) fn skip(&mut self, packets: u32) {
        self.requester.skip(packets);
        self.requester.window.acknowledged_here(&News {
            oldest: self.requester.oldest,
            packets,
            outstanding: packets,
            is_repairing: false,
        });
    }

    /// The peer has responded, so what is in flight is not overdue.
    fn stop_timers(&mut self) {
        self.requester.timeouts = 0;
        self.requester.probes = 0;
        self.requester.overdue_before = None;
        self.requester.acknowledgement_due = None;
        self.requester.response_due = None;
    }

    /// More packets have arrived at the peer, though none is acknowledged. As many as are in flight can, so this ends.
    pub(super) fn restart_timers(&mut self, now: &Now) {
        self.stop_timers();
        self.arm_acknowledgement_timer(now);
    }

    /// Sends all packets again that are not acknowledged.
    pub(super) fn recover_all(&mut self, device: &mut DeviceState) {
        if self.use_retry(device).is_ok() {
            let again = self.requester.unacknowledged();
            let in_repair = again;
            let loss = Loss::Packets { again, in_repair };
            self.requester.window.lost(loss, &mut device.paths);
            self.requester.go_back();
        }
    }

    /// A response is lost: requests it again, once per loss. The peer has executed the requests behind it, unlike those behind a
    /// lost request.
    pub(super) fn recover_response(&mut self, device: &mut DeviceState) {
        if !self.requester.is_round_under_way() {
            let goes_back = self.requester.goes_back();
            self.recover(goes_back, device);
        }
    }

    /// A packet is lost: sends it again, once per loss.
    pub(super) fn recover_loss(&mut self, device: &mut DeviceState) {
        // Those that are to be requested again already are not awaited meanwhile.
        let goes_back = self.requester.goes_back() || !self.requester.awaited.is_empty();
        self.recover(goes_back, device);
    }

    fn recover(&mut self, goes_back: bool, device: &mut DeviceState) {
        let missing = self.requester.oldest;
        // After going back, nothing is in flight until the next send.
        let is_back = !self.requester.awaits_response();
        if is_back || self.requester.retransmitted_at == Some(missing) {
            return;
        }
        if self.use_retry(device).is_ok() {
            self.requester.retransmitted_at = Some(missing);
            let paths = &mut device.paths;
            if goes_back {
                self.requester.window.lost(Loss::Response, paths);
                self.requester.go_back();
            } else {
                self.repair_loss(paths);
            }
        }
    }

    pub(in crate::queue_pair) fn acknowledgement_timed_out(
        &mut self,
        now: Instant,
        device: &mut DeviceState,
    ) {
        device.counters.timeouts += 1;
        self.counters.timeouts += 1;
        self.requester.timeouts += 1;
        if self.use_retry(device).is_ok() {
            let interval = self.acknowledgement_interval().unwrap_or_default();
            let since = now.checked_sub(interval).unwrap_or(now);
            let paths = &mut device.paths;
            let is_first = self.requester.timeouts == 1;
            let loss = Loss::Timeout { since, is_first };
            self.requester.window.lost(loss, paths);
            self.requester.go_back();
            self.requester.window.leave_line(paths);
        }
        self.requester.retransmitted_at = None;
    }

    /// Takes one of the retries. Without any, the oldest request fails.
    fn use_retry(&mut self, device: &mut DeviceState) -> Result<(), NoRetries> {
        if self.requester.retries_left == 0 && !device.planted.is(Bug::RetriesForEver) {
            device.counters.retries_exhausted += 1;
            self.fail_send(Status::RetriesExhausted, device);
            return Err(NoRetries);
        }
        self.requester.retries_left = self.requester.retries_left.saturating_sub(1);
        Ok(())
    }
}

//! Records an incident when a request has been retried for long, because the program sees no completion meanwhile.

use std::time::{Duration, Instant};

use super::super::QueuePair;
use super::Requester;
use crate::device_state::DeviceState;
use crate::incident::{Incident, RetriedSend, RetryReason};

/// After what time without progress an incident is recorded. Ordinary losses are repaired sooner.
const RETRY_REPORT_DELAY: Duration = Duration::from_secs(1);

/// Retries without progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProlongedRetries {
    /// When the oldest packet was sent, or its first RNR NAK came.
    since: Instant,
    /// The last timeout or RNR NAK.
    latest: Instant,
    not_ready: bool,
    naks: u32,
    /// Whether an incident was recorded.
    told: bool,
}

impl Requester {
    /// Notes a timeout or an RNR NAK. `waited` is how long its packet had waited.
    fn note_retry(&mut self, now: Instant, waited: Duration, not_ready: bool) {
        let lasting = self.lasting_retries.get_or_insert(ProlongedRetries {
            since: now.checked_sub(waited).unwrap_or(now),
            latest: now,
            not_ready,
            naks: 0,
            told: false,
        });
        lasting.latest = now;
        lasting.not_ready = not_ready;
        lasting.naks += u32::from(not_ready);
    }

    /// How long it has retried without progress.
    pub(in crate::queue_pair) fn retried_for(&self) -> Duration {
        let lasting = self.lasting_retries.as_ref();
        lasting.map_or(Duration::ZERO, |lasting| lasting.latest - lasting.since)
    }
}

impl QueuePair {
    /// Notes that the acknowledgement timer expired.
    pub(in crate::queue_pair) fn note_timeout(&mut self, now: Instant) {
        let interval = self
            .attributes
            .ack_timeout
            .and_then(wire::AckTimeout::interval);
        let interval = interval
            .unwrap_or_default()
            .max(self.settings.min_ack_timeout);
        self.requester.note_retry(now, interval, false);
    }

    /// Notes that the peer had no receive posted.
    pub(super) fn note_not_ready(&mut self, now: Instant) {
        self.requester.note_retry(now, Duration::ZERO, true);
    }

    /// Records an incident if the retries have lasted long enough, once until there is progress.
    pub(in crate::queue_pair) fn tell_retries(&mut self, device: &mut DeviceState) {
        let waited = self.requester.retried_for();
        let timeouts = self.requester.timeouts();
        let responses = self.peer_responses();
        let (path, endless) = (self.path(), self.attributes.rnr_retry == Some(7));
        let (Some(lasting), Some(front)) = (&mut self.requester.lasting_retries, self.send.front())
        else {
            return;
        };
        if lasting.told || waited < RETRY_REPORT_DELAY {
            return;
        }
        lasting.told = true;
        let reason = if lasting.not_ready {
            RetryReason::NotReady {
                naks: lasting.naks,
                endless,
            }
        } else {
            RetryReason::NoResponse {
                timeouts,
                responses,
            }
        };
        let retried = RetriedSend {
            queue_pair: self.number,
            path,
            id: front.request.id,
            work: *front.work(),
            length: front.length,
            waited,
            reason,
        };
        device.incidents.note(|| Incident::StillRetrying(retried));
    }
}

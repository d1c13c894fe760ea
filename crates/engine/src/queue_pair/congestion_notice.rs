//! Notifications of congestion to the peer: packets have arrived that a router has marked, and the peer is to send less.

use std::time::{Duration, Instant};

use wire::{Opcode, PacketHead, Psn, Route};

use super::QueuePair;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::transmit::Batch;

/// A peer is notified no more often. NICs have the same default (DCQCN), and a reduction shows after a round trip.
const MIN_INTERVAL: Duration = Duration::from_micros(50);

/// The data of a notification, which is reserved.
const RESERVED: [u8; 16] = [0; 16];

/// Whether the peer is to be notified.
#[derive(Debug, Default)]
pub(super) struct CongestionNotice {
    is_due: bool,
    /// When it was due last.
    latest: Option<Instant>,
}

impl CongestionNotice {
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// A marked packet arrives.
    fn note_mark(&mut self, now: Instant) {
        let is_soon = self.latest.is_some_and(|at| now < at + MIN_INTERVAL);
        if !is_soon {
            self.is_due = true;
            self.latest = Some(now);
        }
    }
}

impl QueuePair {
    /// A packet of the peer arrives. If a router has marked it, the peer is to be notified.
    #[inline]
    pub(super) fn note_marks(&mut self, route: &Route, now: &Now, device: &mut DeviceState) {
        if route.is_marked() {
            device.counters.congestion_marks += 1;
            self.notice.note_mark(now.get());
        }
    }

    /// Sends a notification by itself: routers do not mark it, unlike other packets.
    pub(super) fn transmit_notification(
        &mut self,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) {
        self.notice.is_due = false;
        let Some(link) = self.link else { return };
        // Annex A17.9.3: the PSN and MigReq of a notification are 0, and BECN is set.
        let head = PacketHead::new(Opcode::CongestionNotification, link.peer, Psn::ZERO)
            .partition(self.partition())
            .migrated(false)
            .congestion(false, true);
        let route = link.route.with_marks_allowed(false);
        batch.push_with(&route, head, RESERVED.len(), |out| {
            out.extend_from_slice(&RESERVED);
        });
        device.counters.congestion_notifications_sent += 1;
    }
}

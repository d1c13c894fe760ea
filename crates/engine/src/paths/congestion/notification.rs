//! The reaction to congestion notifications: the more round trips have one, the less remains of the window.
//!
//! As DCQCN and DCTCP do, but once per round trip instead of once per 50 µs, because a reduction shows after a round trip.

/// The part of the estimate that the last round trip decides, as in DCTCP.
const WEIGHT: f64 = 1.0 / 16.0;

/// How often the peer has told of marked packets.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// The estimated share of round trips with a notification; `None` before the first one, which halves the window.
    share: Option<f64>,
    /// Whether the present round trip has one.
    is_notified: bool,
}

impl Notifications {
    /// A notification arrives. Returns what remains of the window.
    pub(super) fn notified(&mut self) -> f64 {
        if std::mem::replace(&mut self.is_notified, true) {
            return 1.0;
        }
        1.0 - *self.share.get_or_insert(1.0) / 2.0
    }

    /// A round trip is over.
    pub(super) fn end_round(&mut self) {
        let latest = if self.is_notified { 1.0 } else { 0.0 };
        if let Some(share) = &mut self.share {
            *share += WEIGHT * (latest - *share);
        }
        self.is_notified = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_notification_halves_and_others_of_its_round_trip_change_nothing() {
        let mut notifications = Notifications::default();
        (0..100).for_each(|_| notifications.end_round());
        assert_eq!(notifications.notified(), 0.5);
        assert_eq!(notifications.notified(), 1.0);
    }

    #[test]
    fn rare_notifications_reduce_little() {
        let mut notifications = Notifications::default();
        notifications.notified();
        (0..100).for_each(|_| notifications.end_round());
        assert!(notifications.notified() > 0.99);
    }
}

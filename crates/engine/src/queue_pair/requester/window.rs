//! The send window: how much may be unacknowledged.

use std::time::Duration;

/// The limits of the send window, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// The minimum.
    pub min: u32,
    /// The initial size.
    pub initial: u32,
    /// The initial size if the peer is on another host, where the burst of a first window may exceed a queue.
    pub initial_elsewhere: u32,
    /// The maximum for round trips of up to a millisecond. Longer ones admit as many times more.
    pub max: u32,
}

impl Default for WindowLimits {
    /// Large enough for a fast loopback, small enough for common socket receive buffers.
    fn default() -> Self {
        Self {
            min: 32 << 10,
            initial: 256 << 10,
            initial_elsewhere: 32 << 10,
            max: 1 << 20,
        }
    }
}

/// A send window. It doubles with each round trip until the first loss. Each loss halves it, and then it grows slowly.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendWindow {
    limits: WindowLimits,
    bytes: u32,
    /// Whether it has not met a loss.
    is_starting: bool,
    /// How many times the usual maximum it may have.
    stretch: u32,
}

/// The maximum number of packets in a window, because small packets cost a receiver more than their
/// bytes.
const MAX_PACKETS: u32 = 2048;

/// How many times the usual maximum a window may have. All of it fits into what a peer keeps.
const MAX_STRETCH: u32 = 16;

/// After a loss the window grows by this part of what is acknowledged. A window that fills its queue exceeds it by as much each
/// round trip, and is repaired without a pause.
const GROWTH: u32 = 32;

impl SendWindow {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            bytes: limits.initial,
            is_starting: true,
            stretch: 1,
        }
    }

    /// The peer is on another host.
    pub(super) fn start_elsewhere(&mut self) {
        self.bytes = self.limits.initial.min(self.limits.initial_elsewhere);
    }

    /// The window in packets of `mtu` bytes.
    pub(super) fn packets(&self, mtu: usize) -> u32 {
        (self.bytes / mtu as u32).clamp(4, MAX_PACKETS * self.stretch)
    }

    /// As many packets were acknowledged while most of the window was in use.
    pub(super) fn grow(&mut self, packets: u32, mtu: usize) {
        let bytes = packets.saturating_mul(mtu as u32);
        let bytes = if self.is_starting {
            bytes
        } else {
            bytes / GROWTH
        };
        let max = self.limits.max.saturating_mul(self.stretch);
        self.bytes = self.bytes.saturating_add(bytes).min(max);
    }

    pub(super) fn shrink(&mut self) {
        self.is_starting = false;
        self.bytes = (self.bytes / 2).max(self.limits.min);
    }

    /// Admits more for longer round trips.
    pub(super) fn stretch(&mut self, shortest_round_trip: Duration) {
        let millis = u32::try_from(shortest_round_trip.as_millis()).unwrap_or(u32::MAX);
        self.stretch = millis.clamp(1, MAX_STRETCH);
    }

    /// Whether it has not met a loss.
    pub(super) fn is_starting(&self) -> bool {
        self.is_starting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_to_its_maximum_and_halves_to_its_minimum() {
        let mut window = SendWindow::new(WindowLimits::default());
        assert_eq!(window.packets(4096), 64);
        window.grow(1000, 4096);
        assert_eq!(window.packets(4096), 256);
        for _ in 0..20 {
            window.shrink();
        }
        assert_eq!(window.packets(4096), 8);
    }

    #[test]
    fn window_grows_slowly_after_a_loss() {
        let mut window = SendWindow::new(WindowLimits::default());
        window.shrink();
        assert_eq!(window.packets(4096), 32);
        window.grow(32, 4096);
        assert_eq!(window.packets(4096), 33);
    }

    #[test]
    fn window_is_limited_in_packets_of_a_small_mtu() {
        let window = SendWindow::new(WindowLimits {
            min: 1,
            initial: 1 << 20,
            ..WindowLimits::default()
        });
        assert_eq!(window.packets(256), MAX_PACKETS);
    }

    #[test]
    fn window_for_long_round_trips_is_larger() {
        let mut window = SendWindow::new(WindowLimits::default());
        window.stretch(Duration::from_millis(20));
        window.grow(100_000, 1024);
        assert_eq!(window.packets(1024), 16 << 10);
    }
}

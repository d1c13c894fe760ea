//! The send window: how much may be unacknowledged.

/// The limits of the send window, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// The minimum.
    pub min: u32,
    /// The initial size.
    pub initial: u32,
    /// The maximum.
    pub max: u32,
}

impl Default for WindowLimits {
    /// Large enough for a fast loopback, small enough for common socket receive buffers.
    fn default() -> Self {
        Self {
            min: 32 << 10,
            initial: 256 << 10,
            max: 1 << 20,
        }
    }
}

/// A send window. It grows with acknowledgements and halves with losses.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendWindow {
    limits: WindowLimits,
    bytes: u32,
}

/// The maximum number of packets in a window, because small packets cost a receiver more than their
/// bytes.
const MAX_PACKETS: u32 = 2048;

impl SendWindow {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            bytes: limits.initial,
        }
    }

    /// The window in packets of `mtu` bytes.
    pub(super) fn packets(&self, mtu: usize) -> u32 {
        (self.bytes / mtu as u32).clamp(4, MAX_PACKETS)
    }

    pub(super) fn grow(&mut self, packets: u32, mtu: usize) {
        let bytes = packets.saturating_mul(mtu as u32);
        self.bytes = self.bytes.saturating_add(bytes).min(self.limits.max);
    }

    pub(super) fn shrink(&mut self) {
        self.bytes = (self.bytes / 2).max(self.limits.min);
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
    fn window_is_limited_in_packets_of_a_small_mtu() {
        let window = SendWindow::new(WindowLimits {
            min: 1,
            initial: 1 << 20,
            max: 1 << 20,
        });
        assert_eq!(window.packets(256), MAX_PACKETS);
    }
}

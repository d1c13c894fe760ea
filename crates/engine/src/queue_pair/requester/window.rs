//! How much may be under way without an acknowledgement.

/// Bounds of the send window, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// It never shrinks below this.
    pub min: u32,
    /// It begins with this.
    pub initial: u32,
    /// It never grows above this.
    pub max: u32,
}

impl Default for WindowLimits {
    /// Large enough for a fast loopback, small enough for ordinary receive buffers.
    fn default() -> Self {
        Self {
            min: 32 << 10,
            initial: 256 << 10,
            max: 1 << 20,
        }
    }
}

/// A send window that grows with what arrives and halves with what is lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    limits: WindowLimits,
    bytes: u32,
}

/// Small packets cost a receiver more than their bytes: no window has more of them.
const MAX_PACKETS: u32 = 2048;

impl Window {
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
    fn grows_to_its_limit_and_halves_to_its_floor() {
        let mut window = Window::new(WindowLimits::default());
        assert_eq!(window.packets(4096), 64);
        window.grow(1000, 4096);
        assert_eq!(window.packets(4096), 256);
        for _ in 0..20 {
            window.shrink();
        }
        assert_eq!(window.packets(4096), 8);
    }

    #[test]
    fn many_small_packets_are_no_larger_a_window() {
        let window = Window::new(WindowLimits {
            min: 1,
            initial: 1 << 20,
            max: 1 << 20,
        });
        assert_eq!(window.packets(256), MAX_PACKETS);
    }
}

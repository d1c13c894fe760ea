//! The window to a peer on this host: no link is between, only the peer's buffer can overflow.

use super::repair::Loss;
use crate::paths::{News, WindowLimits};

/// After a loss the window grows by this part of what is acknowledged.
const GROWTH: u32 = 32;

/// Losses of fewer than one packet in this many are not a sign of a full buffer, which loses more.
const TOLERATED: u32 = 32;

/// It doubles with each round trip until the first loss. Each loss halves it, and then it grows slowly.
#[derive(Debug)]
pub(super) struct Local {
    mtu: u32,
    min: u32,
    max: u32,
    bytes: u32,
    /// Whether it has not met a loss.
    is_starting: bool,
    /// Whether the losses that are being repaired have reduced it.
    is_reduced: bool,
}

impl Local {
    pub(super) fn new(limits: WindowLimits, mtu: usize) -> Self {
        Self {
            mtu: mtu as u32,
            min: limits.min,
            max: limits.max,
            bytes: limits.initial,
            is_starting: true,
            is_reduced: false,
        }
    }

    fn shrink(&mut self) {
        self.is_starting = false;
        self.bytes = (self.bytes / 2).max(self.min);
    }

    #[inline]
    pub(super) fn acknowledged(&mut self, told: &News) {
        // A window that is not needed does not grow, nor one that was just reduced.
        let is_needed = told.outstanding * 2 >= self.window();
        if !is_needed || told.is_repairing && self.is_reduced {
            return;
        }
        let bytes = told.packets.saturating_mul(self.mtu);
        let growth = if self.is_starting {
            bytes
        } else {
            bytes / GROWTH
        };
        self.bytes = self.bytes.saturating_add(growth).min(self.max);
    }

    pub(super) fn lost(&mut self, loss: Loss) {
        match loss {
            Loss::Response | Loss::Timeout { .. } => self.shrink(),
            Loss::Packets { again, in_repair } => {
                self.is_reduced &= again < in_repair;
                if !self.is_reduced && in_repair > self.window() / TOLERATED {
                    self.is_reduced = true;
                    self.shrink();
                }
            }
        }
    }

    /// How many packets may be unacknowledged.
    pub(super) fn window(&self) -> u32 {
        self.bytes / self.mtu
    }
}

#[cfg(test)]
mod tests {
    use wire::Psn;

    use super::*;

    fn acknowledged(packets: u32) -> News {
        News {
            oldest: Psn::ZERO,
            packets,
            outstanding: packets,
            is_repairing: false,
        }
    }

    #[test]
    fn window_grows_to_its_maximum_and_halves_to_its_minimum() {
        let mut window = Local::new(WindowLimits::default(), 4096);
        assert_eq!(window.window(), 64);
        window.acknowledged(&acknowledged(1000));
        assert_eq!(window.window(), 256);
        (0..20).for_each(|_| window.lost(Loss::Response));
        assert_eq!(window.window(), 8);
    }

    #[test]
    fn window_grows_slowly_after_a_loss() {
        let mut window = Local::new(WindowLimits::default(), 4096);
        window.lost(Loss::Response);
        assert_eq!(window.window(), 32);
        window.acknowledged(&acknowledged(32));
        assert_eq!(window.window(), 33);
    }

    #[test]
    fn few_losses_do_not_reduce_it_and_many_do_once() {
        let mut window = Local::new(WindowLimits::default(), 4096);
        for (again, in_repair, left) in [(1, 1, 64), (2, 3, 32), (4, 7, 32)] {
            window.lost(Loss::Packets { again, in_repair });
            assert_eq!(window.window(), left);
        }
    }
}

//! The numbers of a device's queue pairs.

use wire::Qpn;

/// The range of numbers that a device may assign to its queue pairs: `count` numbers, starting at
/// `first`.
///
/// Devices and processes that share one address have ranges that do not overlap. The numbers 0, 1
/// and 0xffffff have a special meaning and are not assigned. At most half of the others are in use
/// at a time. Numbers are drawn at random, and a released number is quarantined before it is used
/// again, so that late packets of an old connection reach no queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpnRange {
    /// The lowest number.
    pub first: u32,
    /// How many numbers: a power of two, at most 2^24.
    pub count: u32,
}

impl Default for QpnRange {
    /// 2^18 numbers, about a quarter of a million.
    fn default() -> Self {
        Self {
            first: 0,
            count: 1 << 18,
        }
    }
}

impl QpnRange {
    /// The maximum number of queue pairs at a time.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        match self.usable() {
            0 => 0,
            usable => (usable / 2).max(1),
        }
    }

    /// Whether the number belongs to a queue pair of this device, if there is one. Queue pair 1 is not among
    /// them: processes share it.
    #[inline]
    pub(crate) fn assigns(&self, number: Qpn) -> bool {
        self.contains(number) && !RESERVED.contains(&number)
    }

    pub(crate) fn usable(&self) -> u32 {
        let reserved = RESERVED.into_iter().filter(|number| self.contains(*number));
        self.count - reserved.count() as u32
    }

    pub(crate) fn contains(&self, number: Qpn) -> bool {
        self.offset(number).is_some()
    }

    #[inline]
    pub(crate) fn offset(&self, number: Qpn) -> Option<usize> {
        let offset = number.value().checked_sub(self.first)?;
        (offset < self.count).then_some(offset as usize)
    }
}

/// Queue pair 0 (subnet management), queue pair 1 (general services) and the multicast number.
pub(crate) const RESERVED: [Qpn; 3] = [Qpn::new(0), Qpn::GSI, Qpn::MULTICAST];

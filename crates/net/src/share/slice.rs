//! A member's part of the number space.

use std::fmt;
use std::ops::Range;

use wire::Qpn;

/// How many bits of a queue pair number are left to its owner.
const OWN_BITS: u32 = 18;

/// How many bits of a communication id are left to its owner: the same six bits name the slice.
const OWN_COMMUNICATION_BITS: u32 = 26;

const MASK: u32 = 0x3f;

/// One of 62 parts of the queue pair numbers, of 2^18 numbers each.
///
/// The parts 0 and 63 belong to nobody: queue pair 1, which all members serve, is in the one, and
/// the destination of multicast packets in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice(u8);

impl Slice {
    /// The lowest.
    pub const FIRST: Slice = Slice(1);
    /// The highest.
    pub const LAST: Slice = Slice(62);
    /// How many there are.
    pub const COUNT: usize = Self::LAST.0 as usize;

    /// The slice with this number, if there is one.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if Self::FIRST.0 <= number && number <= Self::LAST.0 {
            Some(Slice(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whose queue pair it is; none for numbers that all share.
    #[must_use]
    pub const fn of(qpn: Qpn) -> Option<Self> {
        Self::new((qpn.value() >> OWN_BITS) as u8)
    }

    /// The numbers its queue pairs may have.
    #[must_use]
    pub const fn qpn_range(self) -> Range<u32> {
        (self.0 as u32) << OWN_BITS..(self.0 as u32 + 1) << OWN_BITS
    }

    /// Whose connection it is, from the communication id that its owner chose.
    #[must_use]
    pub const fn of_communication(id: u32) -> Option<Self> {
        Self::new((id >> OWN_COMMUNICATION_BITS & MASK) as u8)
    }

    /// The communication ids that its owner may choose.
    #[must_use]
    pub const fn communication_ids(self) -> Range<u32> {
        let first = (self.0 as u32) << OWN_COMMUNICATION_BITS;
        first..first + (1 << OWN_COMMUNICATION_BITS)
    }

    /// The slice after this one, and the first after the last.
    pub(super) const fn next(self) -> Self {
        match Self::new(self.0 + 1) {
            Some(next) => next,
            None => Self::FIRST,
        }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_numbers_belong_to_nobody() {
        for qpn in [Qpn::SMI, Qpn::GSI, Qpn::MULTICAST, Qpn::new(0x3_ffff)] {
            assert_eq!(Slice::of(qpn), None, "{qpn}");
        }
        assert_eq!(Slice::of_communication(5), None);
    }

    #[test]
    fn every_number_of_a_slice_leads_back_to_it() {
        for number in 1..=62 {
            let slice = Slice::new(number).unwrap();
            let qpns = slice.qpn_range();
            for qpn in [qpns.start, qpns.end - 1] {
                assert_eq!(Slice::of(Qpn::new(qpn)), Some(slice));
            }
            let ids = slice.communication_ids();
            for id in [ids.start, ids.end - 1] {
                assert_eq!(Slice::of_communication(id), Some(slice));
            }
        }
        assert_eq!(Slice::LAST.next(), Slice::FIRST);
    }
}

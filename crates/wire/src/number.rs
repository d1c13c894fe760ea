//! The numbers of the protocol. Each has its own type, so they cannot be mixed up.

mod gid;
mod mtu;
mod timer;

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

pub use gid::{Gid, GidParseError};
pub use mtu::PathMtu;
pub use timer::{AckTimeout, RnrTimer};

const LOW_24_BITS: u32 = 0x00ff_ffff;

/// A packet sequence number: 24 bits that wrap.
///
/// There is no `<`, because the order of two wrapping numbers depends on a reference point. Use a
/// distance instead: [`Psn::since`] or [`Psn::ahead_of`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Psn(u32);

impl Psn {
    /// The first number of the space.
    pub const ZERO: Psn = Psn(0);

    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Psn(value & LOW_24_BITS)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Signed distance from `other` to `self`, in -2^23..2^23.
    #[inline]
    pub const fn since(self, other: Psn) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// How many increments lead from `other` to `self`, in 0..2^24.
    #[inline]
    pub const fn ahead_of(self, other: Psn) -> u32 {
        self.0.wrapping_sub(other.0) & LOW_24_BITS
    }
}

impl Add<u32> for Psn {
    type Output = Psn;

    #[inline]
    fn add(self, steps: u32) -> Psn {
        Psn::new(self.0.wrapping_add(steps))
    }
}

impl Sub<u32> for Psn {
    type Output = Psn;

    #[inline]
    fn sub(self, steps: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(steps))
    }
}

impl AddAssign<u32> for Psn {
    #[inline]
    fn add_assign(&mut self, steps: u32) {
        *self = *self + steps;
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A queue pair number: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The subnet management interface (SMI). RoCE has no subnet manager and does not use it.
    pub const SMI: Qpn = Qpn(0);
    /// The general services interface (GSI), which carries connection manager messages.
    pub const GSI: Qpn = Qpn(1);
    /// The destination of every multicast packet.
    pub const MULTICAST: Qpn = Qpn(LOW_24_BITS);

    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Qpn(value & LOW_24_BITS)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// The number of a shared receive queue, by which XRC requests name it: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Srqn(u32);

impl Srqn {
    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Srqn(value & LOW_24_BITS)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A memory key, local or remote.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Key(u32);

impl Key {
    /// Wraps a key from the wire or from a work request.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Key(value)
    }

    /// All 32 bits.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A Q_Key: a datagram must carry the Q_Key of the queue pair that receives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueKey(u32);

impl QueueKey {
    /// The well-known Q_Key of queue pair 1.
    pub const GSI: QueueKey = QueueKey(0x8001_0000);

    /// Wraps a key from the wire or from a work request.
    #[inline]
    pub const fn new(value: u32) -> Self {
        QueueKey(value)
    }

    /// All 32 bits.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Whether only privileged consumers may set it. A work request with such a key means "use the
    /// Q_Key of the queue pair".
    #[inline]
    pub const fn is_privileged(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A P_Key: the partition of a packet and the membership of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PartitionKey(u16);

impl PartitionKey {
    const FULL_MEMBER: u16 = 0x8000;
    const PARTITION: u16 = 0x7fff;

    /// Wraps a key from the wire.
    #[inline]
    pub const fn new(value: u16) -> Self {
        PartitionKey(value)
    }

    /// All 16 bits.
    #[inline]
    pub const fn value(self) -> u16 {
        self.0
    }

    /// Whether a port with this key accepts a packet with key `other`: both name the same valid
    /// partition, and at least one of them is a full member.
    #[inline]
    pub const fn matches(self, other: PartitionKey) -> bool {
        let same_partition = (self.0 ^ other.0) & Self::PARTITION == 0;
        let valid = self.0 & Self::PARTITION != 0;
        let one_is_full = (self.0 | other.0) & Self::FULL_MEMBER != 0;
        same_partition && valid && one_is_full
    }
}

impl Default for PartitionKey {
    /// Full member of the default partition, which is the only partition of most RoCE networks.
    fn default() -> Self {
        PartitionKey(0xffff)
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_wraps_at_24_bits() {
        let last = Psn::new(0x00ff_ffff);
        assert_eq!(last + 1, Psn::ZERO);
        assert_eq!(Psn::ZERO - 1, last);
        assert_eq!(Psn::new(0x0100_0005), Psn::new(5));
        let mut psn = last;
        psn += 3;
        assert_eq!(psn.value(), 2);
    }

    #[test]
    fn psn_distance_across_the_wrap_is_short() {
        let before = Psn::new(0x00ff_fffe);
        let after = Psn::new(3);
        assert_eq!(after.since(before), 5);
        assert_eq!(before.since(after), -5);
        assert_eq!(after.ahead_of(before), 5);
        assert_eq!(before.ahead_of(after), (1 << 24) - 5);
    }

    #[test]
    fn psn_half_the_space_away_counts_as_behind() {
        let half = Psn::new(1 << 23);
        assert_eq!(half.since(Psn::ZERO), -(1 << 23));
        assert_eq!((half - 1).since(Psn::ZERO), (1 << 23) - 1);
        assert_eq!(half.ahead_of(Psn::ZERO), 1 << 23);
    }

    #[test]
    fn partition_keys_match_if_one_is_a_full_member() {
        let full = PartitionKey::new(0x8001);
        let limited = PartitionKey::new(0x0001);
        assert!(full.matches(full));
        assert!(full.matches(limited));
        assert!(limited.matches(full));
        assert!(
            !limited.matches(limited),
            "two limited members must not communicate"
        );
        assert!(!full.matches(PartitionKey::default()));
        let invalid = PartitionKey::new(0x8000);
        assert!(!invalid.matches(invalid), "partition 0 does not exist");
    }

    #[test]
    fn gsi_queue_key_is_privileged() {
        assert!(QueueKey::GSI.is_privileged());
        assert!(!QueueKey::new(0x1111_1111).is_privileged());
    }

    #[test]
    fn numbers_are_formatted_as_in_rdma_tools() {
        assert_eq!(Qpn::new(17).to_string(), "0x000011");
        assert_eq!(Key::new(0x1a2b).to_string(), "0x00001a2b");
        assert_eq!(QueueKey::GSI.to_string(), "0x80010000");
        assert_eq!(PartitionKey::default().to_string(), "0xffff");
        assert_eq!(Psn::new(7).to_string(), "7");
    }
}

//! What the driver decides once.

use std::ops::RangeInclusive;

use wire::cm::{CommunicationId, Timeout};

/// What the driver decides about a [`Manager`](crate::Manager) before it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// The device's GUID, by which peers tell devices apart. Processes that share an address may
    /// share it.
    pub guid: u64,
    /// The communication identifiers that belong to this process.
    pub slice: Slice,
    /// Where unpredictable numbers come from: sequence numbers, identifiers, ports. It must be
    /// secret, and different for each manager.
    pub seed: [u8; 32],
    /// The ports to choose from when the application leaves the choice to us.
    pub ephemeral_ports: RangeInclusive<u16>,
    /// How long our device takes to acknowledge.
    pub ack_delay: Timeout,
    /// Hop limit of answers.
    pub hop_limit: u8,
    /// The backlog of a listener that asks for none or for more.
    pub max_backlog: usize,
    /// How many ids there may be, at most [`Config::MOST_IDS`]. Requests of peers are dropped at
    /// this bound. How many of them are connections with one peer is not limited, as on Linux: a
    /// peer that confirms its requests can use them all.
    pub max_ids: usize,
    /// How many requests of peers may be half-open: received but not answered, or accepted but not
    /// confirmed by the peer. Further requests are dropped, as with a full backlog: the peer
    /// repeats them.
    pub max_half_open: usize,
    /// How many of those may come from one IPv4 address or one IPv6 network of 64 bits, so that one
    /// sender can't keep out all others.
    pub max_half_open_per_source: usize,
    /// Whether there are exit notices: see
    /// [`poll_exit_notice`](crate::Manager::poll_exit_notice).
    pub exit_notices: bool,
}

impl Config {
    /// The most ids that there may be. Even if as many connections of destroyed ids are remembered,
    /// the smallest [`Slice`] has about half of its identifiers left, so a random one is soon free.
    pub const MOST_IDS: usize = 1 << 17;

    /// What Linux does, for the device with this GUID. `seed` comes from the operating system's
    /// random numbers, except in simulations.
    pub fn new(guid: u64, seed: [u8; 32]) -> Self {
        Config {
            guid,
            slice: Slice::WHOLE,
            seed,
            ephemeral_ports: 32768..=60999,
            ack_delay: Timeout::new(15).expect("a code has five bits"),
            hop_limit: 64,
            max_backlog: 1024,
            max_ids: 65536,
            max_half_open: 4096,
            max_half_open_per_source: 1024,
            exit_notices: false,
        }
    }
}

/// A part of the communication identifiers: those whose highest bits have one value. Processes that
/// share an address each take another part, so that anyone can tell whom a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    bits: u32,
    value: u32,
}

impl Slice {
    /// The most bits that a slice can give away. Every process keeps 2^19 identifiers at least.
    pub const MOST_BITS: u32 = 13;

    /// All of them.
    pub const WHOLE: Slice = Slice { bits: 0, value: 0 };

    /// The identifiers whose `bits` highest bits are `value`. At most
    /// [`MOST_BITS`](Self::MOST_BITS) can be given away.
    pub const fn new(bits: u32, value: u32) -> Option<Slice> {
        if bits > Self::MOST_BITS || value >> bits != 0 {
            return None;
        }
        Some(Slice { bits, value })
    }

    /// Whether an identifier belongs to it.
    pub const fn contains(self, id: CommunicationId) -> bool {
        match id.value().checked_shr(u32::BITS - self.bits) {
            Some(top) => top == self.value,
            None => true,
        }
    }

    /// The identifier with the given low bits.
    pub(crate) const fn identifier(self, low: u32) -> CommunicationId {
        match self.value.checked_shl(u32::BITS - self.bits) {
            Some(top) => CommunicationId::new(top | low & (u32::MAX >> self.bits)),
            None => CommunicationId::new(low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_contains_what_it_forms() {
        let slice = Slice::new(6, 0x2a).expect("a slice");
        for low in [0, 1, u32::MAX] {
            let id = slice.identifier(low);
            assert!(slice.contains(id));
            assert_eq!(id.value() >> 26, 0x2a);
        }
        assert!(!slice.contains(CommunicationId::new(0)));
        assert_eq!(slice.identifier(u32::MAX).value(), 0xabff_ffff);
    }

    #[test]
    fn the_whole_contains_everything() {
        assert!(Slice::WHOLE.contains(CommunicationId::new(u32::MAX)));
        assert_eq!(Slice::WHOLE.identifier(7).value(), 7);
    }

    #[test]
    fn a_value_must_fit_its_bits() {
        assert_eq!(Slice::new(2, 4), None);
        assert!(Slice::new(13, 0x1fff).is_some());
        assert_eq!(Slice::new(14, 0), None);
        assert_eq!(Slice::new(0, 0), Some(Slice::WHOLE));
    }
}

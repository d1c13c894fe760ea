//! The configuration of a manager.

use std::ops::RangeInclusive;

use wire::PathMtu;
use wire::cm::{CommunicationId, Timeout};

/// The configuration of a [`Manager`](crate::Manager).
#[derive(Debug, Clone)]
pub struct Config {
    /// The device's GUID, by which peers distinguish devices. Processes that share an address may
    /// share it.
    pub guid: u64,
    /// The communication ids of this process.
    pub id_range: IdRange,
    /// The seed of PSNs, communication ids and ports. It must be secret, and different for each
    /// manager.
    pub seed: [u8; 32],
    /// The ports that port 0 chooses from.
    pub ephemeral_ports: RangeInclusive<u16>,
    /// How long our device takes to acknowledge a packet.
    pub ack_delay: Timeout,
    /// The largest path MTU of the port. A request with a larger one is rejected, and the peer may repeat it with this
    /// one.
    pub max_mtu: PathMtu,
    /// Hop limit of responses to peers without an exchange.
    pub hop_limit: u8,
    /// The largest backlog of a listener, and the one of a listener that sets none.
    pub max_backlog: usize,
    /// The maximum number of ids, at most [`Config::MAX_IDS`]. At this limit, requests of peers are
    /// dropped. As on Linux, the number of connections with one peer is not limited: a peer that
    /// confirms its requests can use all ids.
    pub max_ids: usize,
    /// The maximum number of half-open requests of peers: received but not answered, or accepted but
    /// not confirmed. Further requests are dropped, as with a full backlog, and the peer retransmits
    /// them.
    pub max_half_open: usize,
    /// The maximum number of half-open requests from one IPv4 address or one /64 IPv6 network, so that
    /// one sender can't exclude all others.
    pub max_half_open_per_source: usize,
    /// Whether [`poll_exit_notice`](crate::Manager::poll_exit_notice) returns exit notices.
    pub exit_notices: bool,
}

impl Config {
    /// The upper limit of [`Config::max_ids`]. Even with as many connections in time-wait, about half
    /// of the smallest [`IdRange`] is free, so a random choice soon finds a free communication id.
    pub const MAX_IDS: usize = 1 << 17;

    /// The values of Linux, for the device with this GUID. `seed` comes from the operating system's
    /// random number generator, except in simulations.
    pub fn new(guid: u64, seed: [u8; 32]) -> Self {
        Config {
            guid,
            id_range: IdRange::ALL,
            seed,
            ephemeral_ports: 32768..=60999,
            ack_delay: Timeout::new(15).expect("a code has five bits"),
            max_mtu: PathMtu::Mtu4096,
            hop_limit: 64,
            max_backlog: 1024,
            max_ids: 65536,
            max_half_open: 4096,
            max_half_open_per_source: 1024,
            exit_notices: false,
        }
    }
}

/// A part of the communication ids: those whose highest bits have one value. Each process that shares
/// an address has its own range, so a communication id names the process that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    bits: u32,
    value: u32,
}

impl IdRange {
    /// The most bits that a range can fix. Every range has at least 2^19 communication ids.
    pub const MAX_BITS: u32 = 13;

    /// All communication ids.
    pub const ALL: IdRange = IdRange { bits: 0, value: 0 };

    /// The communication ids whose `bits` highest bits are `value`. None if `bits` is more than
    /// [`MAX_BITS`](Self::MAX_BITS) or `value` does not fit.
    pub const fn new(bits: u32, value: u32) -> Option<IdRange> {
        if bits > Self::MAX_BITS || value >> bits != 0 {
            return None;
        }
        Some(IdRange { bits, value })
    }

    /// Whether the range contains a communication id.
    pub const fn contains(self, id: CommunicationId) -> bool {
        match id.value().checked_shr(u32::BITS - self.bits) {
            Some(top) => top == self.value,
            None => true,
        }
    }

    /// The communication id with the given low bits.
    #[must_use]
    pub const fn communication_id(self, low: u32) -> CommunicationId {
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
    fn a_range_contains_the_ids_it_forms() {
        let id_range = IdRange::new(6, 0x2a).expect("a range");
        for low in [0, 1, u32::MAX] {
            let id = id_range.communication_id(low);
            assert!(id_range.contains(id));
            assert_eq!(id.value() >> 26, 0x2a);
        }
        assert!(!id_range.contains(CommunicationId::new(0)));
        assert_eq!(id_range.communication_id(u32::MAX).value(), 0xabff_ffff);
    }

    #[test]
    fn the_whole_range_contains_every_id() {
        assert!(IdRange::ALL.contains(CommunicationId::new(u32::MAX)));
        assert_eq!(IdRange::ALL.communication_id(7).value(), 7);
    }

    #[test]
    fn a_range_value_must_fit_its_bits() {
        assert_eq!(IdRange::new(2, 4), None);
        assert!(IdRange::new(13, 0x1fff).is_some());
        assert_eq!(IdRange::new(14, 0), None);
        assert_eq!(IdRange::new(0, 0), Some(IdRange::ALL));
    }
}

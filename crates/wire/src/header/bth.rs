//! The base transport header.

use zerocopy::byteorder::big_endian::{U16, U32};

use super::declare_header::header;
use crate::number::{PartitionKey, Psn, Qpn};

header! {
    /// Base transport header (BTH). Every packet starts with it.
    Bth, 12 {
        opcode: u8,
        flags: u8,
        partition: U16,
        congestion_and_destination: U32,
        acknowledge_and_psn: U32,
    }
}

impl Bth {
    const SOLICITED: u8 = 0x80;
    const MIGRATED: u8 = 0x40;
    const PAD_SHIFT: u32 = 4;
    const FORWARD: u32 = 1 << 31;
    const BACKWARD: u32 = 1 << 30;
    const ACKNOWLEDGE: u32 = 1 << 31;

    /// A header in the default partition with MigReq set. Some hardware rejects packets without
    /// MigReq.
    #[inline]
    pub fn new(opcode: u8, destination: Qpn, psn: Psn) -> Self {
        Bth {
            opcode,
            flags: Self::MIGRATED,
            partition: PartitionKey::default().value().into(),
            congestion_and_destination: destination.value().into(),
            acknowledge_and_psn: psn.value().into(),
        }
    }

    /// The opcode byte, known or unknown.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// Whether the receiver raises a solicited event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// The state of path migration (MigReq).
    #[inline]
    pub fn migrated(&self) -> bool {
        self.flags & Self::MIGRATED != 0
    }

    /// How many pad bytes, 0 to 3, extend the payload to a multiple of four.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.flags >> Self::PAD_SHIFT & 3
    }

    /// The transport header version. Only version 0 is defined.
    #[inline]
    pub fn transport_version(&self) -> u8 {
        self.flags & 0x0f
    }

    /// The partition of the packet.
    #[inline]
    pub fn partition(&self) -> PartitionKey {
        PartitionKey::new(self.partition.get())
    }

    /// FECN: the packet met congestion on its path.
    #[inline]
    pub fn forward_congestion(&self) -> bool {
        self.congestion_and_destination.get() & Self::FORWARD != 0
    }

    /// BECN: packets in the opposite direction met congestion.
    #[inline]
    pub fn backward_congestion(&self) -> bool {
        self.congestion_and_destination.get() & Self::BACKWARD != 0
    }

    /// The destination queue pair.
    #[inline]
    pub fn destination(&self) -> Qpn {
        Qpn::new(self.congestion_and_destination.get())
    }

    /// Whether the sender requests an acknowledgement.
    #[inline]
    pub fn acknowledge(&self) -> bool {
        self.acknowledge_and_psn.get() & Self::ACKNOWLEDGE != 0
    }

    /// The packet sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(self.acknowledge_and_psn.get())
    }

    /// Sets [`Bth::solicited`].
    #[inline]
    pub fn set_solicited(&mut self, solicited: bool) {
        self.flags = with_bit(self.flags.into(), Self::SOLICITED.into(), solicited) as u8;
    }

    /// Sets [`Bth::migrated`].
    #[inline]
    pub fn set_migrated(&mut self, migrated: bool) {
        self.flags = with_bit(self.flags.into(), Self::MIGRATED.into(), migrated) as u8;
    }

    /// Sets [`Bth::pad`].
    #[inline]
    pub fn set_pad(&mut self, pad: u8) {
        debug_assert!(pad < 4, "pad of {pad} bytes exceeds 3");
        self.flags = self.flags & !(3 << Self::PAD_SHIFT) | (pad & 3) << Self::PAD_SHIFT;
    }

    /// Sets [`Bth::partition`].
    #[inline]
    pub fn set_partition(&mut self, partition: PartitionKey) {
        self.partition = partition.value().into();
    }

    /// Sets [`Bth::forward_congestion`] and [`Bth::backward_congestion`].
    #[inline]
    pub fn set_congestion(&mut self, forward: bool, backward: bool) {
        let word = self.congestion_and_destination.get();
        let word = with_bit(word, Self::FORWARD, forward);
        self.congestion_and_destination = with_bit(word, Self::BACKWARD, backward).into();
    }

    /// Sets [`Bth::acknowledge`].
    #[inline]
    pub fn set_acknowledge(&mut self, acknowledge: bool) {
        let word = self.acknowledge_and_psn.get();
        self.acknowledge_and_psn = with_bit(word, Self::ACKNOWLEDGE, acknowledge).into();
    }
}

#[inline]
const fn with_bit(word: u32, bit: u32, set: bool) -> u32 {
    if set { word | bit } else { word & !bit }
}

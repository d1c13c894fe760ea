//! The headers of a packet to send.

use std::fmt;

use zerocopy::{FromBytes, IntoBytes};

use super::BTH_LENGTH;
use crate::header::{Bth, Extension, ExtensionHeader};
use crate::number::{PartitionKey, Psn, Qpn};
use crate::opcode::Opcode;

/// BTH and extension headers of a packet to send, built on the stack.
#[derive(Clone, Copy)]
pub struct PacketHead {
    bytes: [u8; Opcode::MAX_HEADER_LENGTH],
    length: usize,
}

impl PacketHead {
    /// A BTH in the default partition with MigReq set, no other flag and no extension.
    #[inline]
    pub fn new(opcode: Opcode, destination: Qpn, psn: Psn) -> Self {
        let mut bytes = [0; Opcode::MAX_HEADER_LENGTH];
        let base = Bth::new(opcode.byte(), destination, psn);
        bytes[..BTH_LENGTH].copy_from_slice(base.as_bytes());
        PacketHead {
            bytes,
            length: BTH_LENGTH,
        }
    }

    /// Sets whether the receiver raises a solicited event.
    #[inline]
    #[must_use]
    pub fn solicited(mut self, solicited: bool) -> Self {
        self.base().set_solicited(solicited);
        self
    }

    /// Sets the state of path migration (MigReq).
    #[inline]
    #[must_use]
    pub fn migrated(mut self, migrated: bool) -> Self {
        self.base().set_migrated(migrated);
        self
    }

    /// Sets how many pad bytes, 0 to 3, follow the payload.
    #[inline]
    #[must_use]
    pub fn pad(mut self, pad: u8) -> Self {
        self.base().set_pad(pad);
        self
    }

    /// Sets the partition.
    #[inline]
    #[must_use]
    pub fn partition(mut self, partition: PartitionKey) -> Self {
        self.base().set_partition(partition);
        self
    }

    /// Sets the two congestion bits.
    #[inline]
    #[must_use]
    pub fn congestion(mut self, forward: bool, backward: bool) -> Self {
        self.base().set_congestion(forward, backward);
        self
    }

    /// Sets whether the receiver must acknowledge the packet.
    #[inline]
    #[must_use]
    pub fn acknowledge(mut self, acknowledge: bool) -> Self {
        self.base().set_acknowledge(acknowledge);
        self
    }

    /// Appends the next extension header of the opcode.
    #[inline]
    #[must_use]
    pub fn push<T: ExtensionHeader>(mut self, extension: &T) -> Self {
        debug_assert!(self.expects(T::KIND), "{:?} is not next", T::KIND);
        let end = self.length + size_of::<T>();
        self.bytes[self.length..end].copy_from_slice(extension.as_bytes());
        self.length = end;
        self
    }

    /// The destination queue pair.
    #[inline]
    pub fn destination(&self) -> Qpn {
        let (base, _) = Bth::ref_from_prefix(&self.bytes).expect("a head starts with a BTH");
        base.destination()
    }

    /// The bytes written so far.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn expects(&self, extension: Extension) -> bool {
        let opcode = Opcode::from_byte(self.bytes[0]).expect("a head starts with its opcode");
        opcode.offset_of(extension) == Some(self.length - BTH_LENGTH)
    }

    #[inline]
    fn base(&mut self) -> &mut Bth {
        let (base, _) = Bth::mut_from_prefix(&mut self.bytes).expect("a head starts with a BTH");
        base
    }
}

impl fmt::Debug for PacketHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketHead({:02x?})", self.bytes())
    }
}

impl PartialEq for PacketHead {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for PacketHead {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Immediate;

    fn head(opcode: Opcode) -> PacketHead {
        PacketHead::new(opcode, Qpn::new(0x11), Psn::new(1234))
    }

    #[test]
    fn new_head_has_the_default_partition_and_migreq_set() {
        let bytes = [4, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0x04, 0xd2];
        assert_eq!(head(Opcode::RcSendOnly).bytes(), bytes);
    }

    #[test]
    fn every_setter_sets_its_bits() {
        let head = head(Opcode::RcSendOnly)
            .solicited(true)
            .migrated(false)
            .pad(3)
            .partition(PartitionKey::new(0x8001))
            .congestion(true, true)
            .acknowledge(true);
        let bytes = [4, 0xb0, 0x80, 0x01, 0xc0, 0, 0, 0x11, 0x80, 0, 0x04, 0xd2];
        assert_eq!(head.bytes(), bytes);
    }

    #[test]
    #[should_panic(expected = "Immediate is not next")]
    #[cfg(debug_assertions)]
    fn pushing_an_extension_out_of_order_panics() {
        _ = head(Opcode::RcWriteOnlyImmediate).push(&Immediate::new([0; 4]));
    }
}

//! The headers of a RoCEv2 packet as they lie in memory: big-endian, without alignment.

mod syndrome;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable as NoCells, IntoBytes, KnownLayout, Unaligned};

use crate::number::{Key, PartitionKey, Psn, Qpn, QueueKey};

pub use syndrome::{NakCode, Syndrome};

/// A header between the BTH and the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extension {
    /// The shared receive queue an XRC request is for.
    Xrceth,
    /// Who sent a datagram, and the key that lets it in.
    Deth,
    /// Where in the peer's memory.
    Reth,
    /// Where, and with which operands.
    AtomicEth,
    /// Acknowledgement: syndrome and message sequence number.
    Aeth,
    /// What an atomic operation found.
    AtomicAckEth,
    /// Immediate data.
    Immediate,
    /// The key to invalidate.
    Ieth,
    /// What to flush, and how far.
    Feth,
}

impl Extension {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = Extension::Feth as usize + 1;

    /// Its length in bytes.
    #[inline]
    pub const fn length(self) -> usize {
        match self {
            Extension::Xrceth => size_of::<Xrceth>(),
            Extension::Deth => size_of::<Deth>(),
            Extension::Reth => size_of::<Reth>(),
            Extension::AtomicEth => size_of::<AtomicEth>(),
            Extension::Aeth => size_of::<Aeth>(),
            Extension::AtomicAckEth => size_of::<AtomicAckEth>(),
            Extension::Immediate => size_of::<Immediate>(),
            Extension::Ieth => size_of::<Ieth>(),
            Extension::Feth => size_of::<Feth>(),
        }
    }
}

/// A header that can stand between the BTH and the payload.
pub trait ExtensionHeader: FromBytes + IntoBytes + NoCells + KnownLayout + Unaligned {
    /// Which of the extensions it is.
    const KIND: Extension;
}

/// Declares a header: its layout, its asserted size and, for extensions, its kind.
macro_rules! header {
    ($(#[$attribute:meta])* $name:ident, $length:literal, $kind:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        header!($(#[$attribute])* $name, $length { $($field: $type),+ });

        impl ExtensionHeader for $name {
            const KIND: Extension = Extension::$kind;
        }
    };
    ($(#[$attribute:meta])* $name:ident, $length:literal { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, NoCells, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($field: $type),+ }

        const _: () = assert!(size_of::<$name>() == $length);
    };
}

header! {
    /// Base transport header: in every packet.
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

    /// A header with the given numbers, the default partition and MigReq set:
    /// some hardware refuses packets without it.
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

    /// The opcode's byte, known or not.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// Whether the receiver is to raise a solicited event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// The state of path migration (MigReq).
    #[inline]
    pub fn migrated(&self) -> bool {
        self.flags & Self::MIGRATED != 0
    }

    /// How many bytes, 0 to 3, fill the payload up to a multiple of four.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.flags >> Self::PAD_SHIFT & 3
    }

    /// The version of the transport headers: 0 in every version there is.
    #[inline]
    pub fn transport_version(&self) -> u8 {
        self.flags & 0x0f
    }

    /// The partition the packet belongs to.
    #[inline]
    pub fn partition(&self) -> PartitionKey {
        PartitionKey::new(self.partition.get())
    }

    /// FECN: a switch on the way here was congested.
    #[inline]
    pub fn forward_congestion(&self) -> bool {
        self.congestion_and_destination.get() & Self::FORWARD != 0
    }

    /// BECN: the packets that this one answers met congestion.
    #[inline]
    pub fn backward_congestion(&self) -> bool {
        self.congestion_and_destination.get() & Self::BACKWARD != 0
    }

    /// The queue pair it is for.
    #[inline]
    pub fn destination(&self) -> Qpn {
        Qpn::new(self.congestion_and_destination.get())
    }

    /// Whether the sender asks for an acknowledgement.
    #[inline]
    pub fn acknowledge(&self) -> bool {
        self.acknowledge_and_psn.get() & Self::ACKNOWLEDGE != 0
    }

    /// Its sequence number.
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
        debug_assert!(pad < 4, "a pad of {pad} bytes");
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

header! {
    /// RDMA extended transport header: where in the peer's memory, and how much.
    Reth, 16, Reth { virtual_address: U64, remote_key: U32, dma_length: U32 }
}

impl Reth {
    /// `dma_length` is the length of the whole message.
    #[inline]
    pub fn new(virtual_address: u64, remote_key: Key, dma_length: u32) -> Self {
        Reth {
            virtual_address: virtual_address.into(),
            remote_key: remote_key.value().into(),
            dma_length: dma_length.into(),
        }
    }

    /// Where, in the peer's address space.
    #[inline]
    pub fn virtual_address(&self) -> u64 {
        self.virtual_address.get()
    }

    /// What permits the access.
    #[inline]
    pub fn remote_key(&self) -> Key {
        Key::new(self.remote_key.get())
    }

    /// The length of the whole message, not of this packet.
    #[inline]
    pub fn dma_length(&self) -> u32 {
        self.dma_length.get()
    }
}

header! {
    /// Extended transport header of the two atomic requests.
    AtomicEth, 28, AtomicEth {
        virtual_address: U64,
        remote_key: U32,
        swap_or_add: U64,
        compare: U64,
    }
}

impl AtomicEth {
    /// `compare` means nothing to fetch-and-add.
    #[inline]
    pub fn new(virtual_address: u64, remote_key: Key, swap_or_add: u64, compare: u64) -> Self {
        AtomicEth {
            virtual_address: virtual_address.into(),
            remote_key: remote_key.value().into(),
            swap_or_add: swap_or_add.into(),
            compare: compare.into(),
        }
    }

    /// Where, in the peer's address space.
    #[inline]
    pub fn virtual_address(&self) -> u64 {
        self.virtual_address.get()
    }

    /// What permits the access.
    #[inline]
    pub fn remote_key(&self) -> Key {
        Key::new(self.remote_key.get())
    }

    /// What to store if equal, or what to add.
    #[inline]
    pub fn swap_or_add(&self) -> u64 {
        self.swap_or_add.get()
    }

    /// What to compare with.
    #[inline]
    pub fn compare(&self) -> u64 {
        self.compare.get()
    }
}

header! {
    /// The answer to an atomic request.
    AtomicAckEth, 8, AtomicAckEth { original: U64 }
}

impl AtomicAckEth {
    /// Carries what the memory held before the operation.
    #[inline]
    pub fn new(original: u64) -> Self {
        AtomicAckEth {
            original: original.into(),
        }
    }

    /// What the memory held before the operation.
    #[inline]
    pub fn original(&self) -> u64 {
        self.original.get()
    }
}

header! {
    /// Datagram extended transport header: who sent it, and the key that lets it in.
    Deth, 8, Deth { queue_key: U32, source: U32 }
}

impl Deth {
    /// A datagram from queue pair `source`.
    #[inline]
    pub fn new(queue_key: QueueKey, source: Qpn) -> Self {
        Deth {
            queue_key: queue_key.value().into(),
            source: source.value().into(),
        }
    }

    /// The key the receiving queue pair must have.
    #[inline]
    pub fn queue_key(&self) -> QueueKey {
        QueueKey::new(self.queue_key.get())
    }

    /// The queue pair that sent it.
    #[inline]
    pub fn source(&self) -> Qpn {
        Qpn::new(self.source.get())
    }
}

header! {
    /// Immediate data. The protocol gives it no byte order: it is opaque.
    Immediate, 4, Immediate { bytes: [u8; 4] }
}

impl Immediate {
    /// Carries the bytes as they are.
    #[inline]
    pub fn new(bytes: [u8; 4]) -> Self {
        Immediate { bytes }
    }

    /// The bytes as they came.
    #[inline]
    pub fn bytes(&self) -> [u8; 4] {
        self.bytes
    }
}

header! {
    /// The key that the receiver is to invalidate.
    Ieth, 4, Ieth { key: U32 }
}

impl Ieth {
    /// Names a key of the receiver.
    #[inline]
    pub fn new(key: Key) -> Self {
        Ieth {
            key: key.value().into(),
        }
    }

    /// The receiver's key.
    #[inline]
    pub fn key(&self) -> Key {
        Key::new(self.key.get())
    }
}

header! {
    /// The shared receive queue that an XRC request is for.
    Xrceth, 4, Xrceth { shared_receive_queue: U32 }
}

impl Xrceth {
    /// Names a shared receive queue of the receiver.
    #[inline]
    pub fn new(shared_receive_queue: Qpn) -> Self {
        Xrceth {
            shared_receive_queue: shared_receive_queue.value().into(),
        }
    }

    /// The receiver's shared receive queue.
    #[inline]
    pub fn shared_receive_queue(&self) -> Qpn {
        Qpn::new(self.shared_receive_queue.get())
    }
}

header! {
    /// What a flush covers and how far it goes.
    Feth, 4, Feth { word: U32 }
}

impl Feth {
    const RANGE_SHIFT: u32 = 4;

    /// A flush of `range` to `placement`.
    #[inline]
    pub fn new(placement: FlushPlacement, range: FlushRange) -> Self {
        let word = u32::from(placement.bits()) | (range as u32) << Self::RANGE_SHIFT;
        Feth { word: word.into() }
    }

    /// How far the data must get.
    #[inline]
    pub fn placement(&self) -> FlushPlacement {
        FlushPlacement::new(self.word.get() as u8)
    }

    /// What is covered, or none if the selectivity is one of the reserved two.
    #[inline]
    pub fn range(&self) -> Option<FlushRange> {
        match self.word.get() >> Self::RANGE_SHIFT & 3 {
            0 => Some(FlushRange::Range),
            1 => Some(FlushRange::Region),
            _ => None,
        }
    }
}

/// How far flushed data must get: a set of four bits, two of them defined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlushPlacement(u8);

impl FlushPlacement {
    /// Visible to everybody on the peer's machine.
    pub const GLOBAL: FlushPlacement = FlushPlacement(1);
    /// Safe from a loss of power.
    pub const PERSISTENT: FlushPlacement = FlushPlacement(2);

    /// Keeps the low four bits.
    #[inline]
    pub const fn new(bits: u8) -> Self {
        FlushPlacement(bits & 0x0f)
    }

    /// The four bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether everything in `other` is asked for.
    #[inline]
    pub const fn contains(self, other: FlushPlacement) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlushRange {
    /// Address and length of the RETH.
    Range = 0,
    /// The whole memory region behind the key.
    Region = 1,
}

header! {
    /// Acknowledgement extended transport header.
    Aeth, 4, Aeth { word: U32 }
}

impl Aeth {
    const SEQUENCE: u32 = 0x00ff_ffff;

    /// `message_sequence` counts completed messages; its low 24 bits are carried.
    #[inline]
    pub fn new(syndrome: Syndrome, message_sequence: u32) -> Self {
        let word = u32::from(syndrome.byte()) << 24 | message_sequence & Self::SEQUENCE;
        Aeth { word: word.into() }
    }

    /// The verdict.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte((self.word.get() >> 24) as u8)
    }

    /// How many messages the responder has completed, modulo 2^24.
    #[inline]
    pub fn message_sequence(&self) -> u32 {
        self.word.get() & Self::SEQUENCE
    }
}

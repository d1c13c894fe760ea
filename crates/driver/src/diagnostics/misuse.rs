//! Calls that the C libraries reject before they reach the engine.

use engine::{Address, AddressError, Attribute};

/// An invalid argument of a C program that the engine has no type for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// An address without a global route.
    NoGlobalRoute,
    /// Unknown bits of an attribute mask.
    UnknownAttributes(u32),
    /// A number that is not a valid value of an attribute.
    BadValue {
        /// The attribute.
        attribute: Attribute,
        /// The number.
        value: u64,
    },
    /// Memory that is not mapped, or that can't be written.
    UnmappedMemory {
        /// Its address.
        address: usize,
        /// Its length in bytes.
        length: usize,
        /// Whether it was to be written.
        writing: bool,
    },
    /// Memory of a GPU that can't be registered.
    GpuMemory {
        /// Its address.
        address: usize,
        /// Why.
        reason: String,
    },
    /// An address that cannot be used.
    Address(Address, AddressError),
    /// A call about memory of the device.
    DeviceMemory {
        /// Its name.
        call: &'static str,
        /// What is wrong.
        mistake: DeviceMemoryMistake,
    },
}

/// What is wrong with a call about memory of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceMemoryMistake {
    /// The device has less memory.
    TooLarge {
        /// The requested length in bytes.
        length: u64,
        /// The most that the device has.
        max: u64,
    },
    /// A region is to have the addresses of the program, which this memory does not have.
    NotZeroBased,
    /// The range is not all in the allocated memory.
    OutOfRange {
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// How many bytes were allocated.
        size: u64,
    },
    /// The range does not consist of whole units.
    NotInUnits {
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// The bytes of a unit.
        unit: u64,
    },
    /// A memory region still uses it.
    Registered,
}

impl Misuse {
    /// Whether it names attributes beyond those that every device knows. rdma-core itself rejects these
    /// as unsupported.
    #[must_use]
    pub fn asks_for_newer_attributes(&self) -> bool {
        let newest = Attribute::DESTINATION.bits();
        matches!(self, Self::UnknownAttributes(bits) if *bits > newest)
    }
}

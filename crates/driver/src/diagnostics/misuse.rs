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

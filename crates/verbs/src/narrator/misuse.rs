//! What the engine never hears of, because the C libraries refuse it.

use engine::{Address, AddressError, Attribute};

/// What a C program asked for that has no words in the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// An address without a global route.
    NoGlobalRoute,
    /// Bits of an attribute mask that mean nothing here.
    UnknownAttributes(u32),
    /// A number that stands for nothing.
    BadValue {
        /// Of which attribute.
        attribute: Attribute,
        /// The number.
        value: u64,
    },
    /// An address handle that leads nowhere.
    Address(Address, AddressError),
}

impl Misuse {
    /// Whether it is about attributes that came after those which every device knows. rdma-core
    /// refuses them itself, as unsupported.
    #[must_use]
    pub fn asks_for_newer_attributes(&self) -> bool {
        let newest = Attribute::DESTINATION.bits();
        matches!(self, Self::UnknownAttributes(bits) if *bits > newest)
    }
}

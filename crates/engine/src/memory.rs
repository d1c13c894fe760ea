//! Registered memory: regions, windows, and the keys that open them.
//!
//! A [`region`] is memory that the application gave us, in a protection domain and with rights; a
//! [`window`] opens a part of a region to peers for a while. Both are found by their [`keys`].
//!
//! Every access from a work request or from the wire goes through [`Memory::local`] or
//! [`Memory::remote`], which check key, protection domain, rights and bounds and give back a
//! [`View`]: the only thing that can be read or written. The bytes themselves are touched in
//! [`extent`] and [`buffer`], the only files of the engine with `unsafe`.

mod access;
mod buffer;
mod diagnosis;
mod error;
mod extent;
mod keys;
mod region;
mod window;

pub use access::{Access, AccessError};
pub use buffer::Buffer;
pub use error::{BindError, MemoryError};
pub use extent::{Extent, ForeignAccess};
pub use region::Registration;
pub use window::{Binding, WindowKind};

pub(crate) use access::{Requirement, View};

use crate::device::Limits;
use crate::random::Random;
use crate::table::Id;
use keys::Keys;
use region::Region;
use smallvec::SmallVec;
use window::Window;
use wire::{Key, Qpn};

/// Keeps queue pairs from using memory that was not registered for them.
///
/// It has no content of its own: two objects may meet when they stand in the same domain.
#[derive(Debug)]
pub struct ProtectionDomain {
    pub(crate) users: u32,
}

/// A piece of registered memory that a work request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins, in the region's own addresses.
    pub address: u64,
    /// How many bytes.
    pub length: u32,
    /// The local key of the region.
    pub key: Key,
}

/// The segments of one work request; most have one.
pub type Segments = SmallVec<[Segment; 1]>;

/// Who asks for access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Party {
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) queue_pair: Qpn,
}

/// All memory that a device may touch.
pub(crate) struct Memory {
    keys: Keys<Holder>,
    limits: Limits,
    regions: u32,
    windows: u32,
    /// How many type-2 windows are bound.
    private_windows: u32,
}

/// What a key opens.
enum Holder {
    Region(Region),
    Window(Window),
}

impl Memory {
    pub(crate) fn new(random: Random, limits: Limits) -> Self {
        Self {
            keys: Keys::new(random),
            limits,
            regions: 0,
            windows: 0,
            private_windows: 0,
        }
    }

    /// How many regions and windows exist.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Memory that a work request of the application names.
    #[inline]
    pub(crate) fn local(
        &self,
        domain: Id<ProtectionDomain>,
        segment: &Segment,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        let Some(Holder::Region(region)) = self.keys.get(segment.key) else {
            return Err(AccessError::UnknownKey);
        };
        if region.domain != domain {
            return Err(AccessError::OtherDomain);
        }
        region.view(segment.address, u64::from(segment.length), requirement)
    }

    /// Memory that a peer names.
    #[inline]
    pub(crate) fn remote(
        &self,
        party: Party,
        key: Key,
        address: u64,
        length: u64,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        match self.keys.get(key).ok_or(AccessError::UnknownKey)? {
            Holder::Region(region) if region.domain != party.domain => {
                Err(AccessError::OtherDomain)
            }
            Holder::Region(region) => region.view(address, length, requirement),
            Holder::Window(window) => {
                self.through_window(window, party, address, length, requirement)
            }
        }
    }

    /// Whether a peer may use the key for this at all.
    pub(crate) fn permits(
        &self,
        party: Party,
        key: Key,
        requirement: Requirement,
    ) -> Result<(), AccessError> {
        let base = match self.keys.get(key).ok_or(AccessError::UnknownKey)? {
            Holder::Region(region) => region.address,
            Holder::Window(window) => window
                .bound
                .map_or(0, |bound| bound.binding.first_address()),
        };
        self.remote(party, key, base, 0, requirement).map(drop)
    }
}

#[cfg(test)]
mod tests;

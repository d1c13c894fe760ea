//! Registered memory: regions, windows and their keys.
//!
//! A [`region`] is memory that the application registered in a protection domain, with access
//! rights. A [`window`] grants peers access to a part of a region until it is unbound. Both are
//! found by their [`keys`].
//!
//! Every access by a work request or a peer goes through [`Memory::local`] or [`Memory::remote`].
//! They check key, protection domain, access rights and bounds, and return a [`View`], which is the
//! only way to read or write the memory. The bytes are accessed in [`extent`] and [`buffer`], or, where
//! the processor can't access them, by copies of an [`accelerator`]. All `unsafe` code of the engine is here.

mod accelerator;
mod access;
mod buffer;
mod diagnosis;
mod error;
mod extent;
mod keys;
mod output;
mod read_mostly;
mod region;
mod transfer;
mod window;

pub use accelerator::{AcceleratorMemory, InMessage};
pub use access::{Access, AccessError};
pub use buffer::{Buffer, OwnedMemory, RawMemory};
pub use diagnosis::{KeyRange, SegmentFault};
pub use error::{BindError, MemoryError};
pub use extent::{Extent, MappingChange, ProgramMemoryAccess};
pub use region::{RegionState, Registration};
pub use window::{Binding, WindowKind};

pub(crate) use access::{Requirement, View};
pub(crate) use output::Output;
pub(crate) use read_mostly::{ReadMostly, Reading, Writing};
pub(crate) use transfer::{Place, Span};

use crate::limits::Limits;
use crate::random::Random;
use crate::slab::Id;
use keys::Keys;
use region::Region;
use smallvec::SmallVec;
use window::Window;
use wire::{Key, Qpn};

/// Separates queue pairs from memory that was registered for others.
///
/// It has no content: a queue pair may use memory of its own protection domain only.
#[derive(Debug)]
pub struct ProtectionDomain {
    pub(crate) users: u32,
}

/// A range of registered memory in a work request. It has the layout of `ibv_sge`, so that devices of the system take it without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Segment {
    /// The address of the first byte, in the address space of the region.
    pub address: u64,
    /// The length in bytes.
    pub length: u32,
    /// The L_Key of the region.
    pub key: Key,
}

/// One segment where several are possible: `post_receive(1, memory.all())`.
impl IntoIterator for Segment {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

/// The segments of one work request. Most requests have one.
pub type Segments = SmallVec<[Segment; 1]>;

/// The queue pair that requests an access, and its protection domain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accessor {
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) queue_pair: Qpn,
}

/// All registered memory of a device.
pub(crate) struct Memory {
    keys: Keys<KeyedMemory>,
    limits: Limits,
    regions: u32,
    windows: u32,
    /// How many type-2 windows are bound.
    private_windows: u32,
    /// How many regions are memory of an accelerator.
    accelerated: u32,
}

/// The object that a key names.
enum KeyedMemory {
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
            accelerated: 0,
        }
    }

    /// Waits until no copy to or from accelerators is under way, because the program may use the memory of a request that has failed,
    /// or was discarded.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.accelerated > 0 {
            self.settle_all();
        }
    }

    #[cold]
    fn settle_all(&self) {
        for (_, object) in self.keys.iter() {
            if let KeyedMemory::Region(region) = object {
                region.extent.settle();
            }
        }
    }

    /// How many regions and windows exist.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    fn region(&self, key: Key) -> Option<&Region> {
        match self.keys.get(key) {
            Some(KeyedMemory::Region(region)) => Some(region),
            _ => None,
        }
    }

    /// The memory of a segment in a local work request.
    #[inline]
    pub(crate) fn local(
        &self,
        domain: Id<ProtectionDomain>,
        segment: &Segment,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        let region = self.region(segment.key).ok_or(AccessError::UnknownKey)?;
        if region.domain != domain {
            return Err(AccessError::OtherDomain);
        }
        region.view(segment.address, u64::from(segment.length), requirement)
    }

    /// The memory that a peer names.
    #[inline]
    pub(crate) fn remote(
        &self,
        accessor: Accessor,
        key: Key,
        address: u64,
        length: u64,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        match self.keys.get(key).ok_or(AccessError::UnknownKey)? {
            KeyedMemory::Region(region) if region.domain != accessor.domain => {
                Err(AccessError::OtherDomain)
            }
            KeyedMemory::Region(region) => region.view(address, length, requirement),
            KeyedMemory::Window(window) => {
                self.through_window(window, accessor, address, length, requirement)
            }
        }
    }

    /// Checks whether a peer may use the key for this operation, for any range.
    pub(crate) fn permits(
        &self,
        accessor: Accessor,
        key: Key,
        requirement: Requirement,
    ) -> Result<(), AccessError> {
        let base = match self.keys.get(key).ok_or(AccessError::UnknownKey)? {
            KeyedMemory::Region(region) => region.address,
            KeyedMemory::Window(window) => window
                .bound
                .map_or(0, |bound| bound.binding.first_address()),
        };
        self.remote(accessor, key, base, 0, requirement).map(drop)
    }
}

#[cfg(test)]
mod tests;

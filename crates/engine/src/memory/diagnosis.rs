//! Finds out why memory could not be used, after a failure and only for incidents.

use super::{Access, AccessError, KeyedMemory, Memory, ProtectionDomain, Requirement, Segment};
use crate::slab::Id;
use wire::Key;

/// A segment that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFault {
    /// The segment.
    pub segment: Segment,
    /// Why it cannot be used.
    pub error: AccessError,
    /// The memory of its key, if the key is valid.
    pub key_range: Option<KeyRange>,
}

/// The memory that a key grants access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRange {
    /// The address of the first byte.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
    /// The access rights.
    pub access: Access,
}

impl Memory {
    /// The first segment of a message that cannot be used.
    #[cold]
    pub(crate) fn fault_in(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        requirement: Requirement,
    ) -> Option<SegmentFault> {
        let used = segments.iter().filter(|segment| segment.length > 0);
        used.map(|segment| (*segment, self.local(domain, segment, requirement)))
            .find_map(|(segment, tried)| {
                Some(SegmentFault {
                    segment,
                    error: tried.err()?,
                    key_range: self.key_range(segment.key),
                })
            })
    }

    /// The memory that a key grants access to.
    #[cold]
    pub(crate) fn key_range(&self, key: Key) -> Option<KeyRange> {
        match self.keys.get(key)? {
            KeyedMemory::Region(region) => Some(KeyRange {
                address: region.address,
                length: region.extent.length(),
                access: region.access,
            }),
            KeyedMemory::Window(window) => window.bound.map(|bound| KeyRange {
                address: bound.binding.first_address(),
                length: bound.binding.length,
                access: bound.binding.access,
            }),
        }
    }
}

//! Why memory could not be used: looked up again, once that is so, for whoever wants to know.

use super::{Holder, Memory, ProtectionDomain, Requirement, Segment};
use crate::incident::{Opened, SegmentFault};
use crate::table::Id;
use wire::Key;

impl Memory {
    /// The first of a message's segments that can't be used, for whoever wants to know.
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
                    opened: self.opened(segment.key),
                })
            })
    }

    /// What a key opens, for whoever wants to know.
    #[cold]
    pub(crate) fn opened(&self, key: Key) -> Option<Opened> {
        match self.keys.get(key)? {
            Holder::Region(region) => Some(Opened {
                address: region.address,
                length: region.extent.length(),
                access: region.access,
            }),
            Holder::Window(window) => window.bound.map(|bound| Opened {
                address: bound.binding.first_address(),
                length: bound.binding.length,
                access: bound.binding.access,
            }),
        }
    }
}

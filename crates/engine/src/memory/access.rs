//! Access rights, and checked views of memory.

use std::fmt;
use std::sync::atomic::AtomicU64;

use super::accelerator::InMessage;
use super::error::NotAccessible;
use super::extent::Few;
use super::{Extent, Memory, Output, ProtectionDomain, Segment};
use crate::slab::Id;
use wire::PayloadBytes;

bitflags::bitflags! {
    /// The access rights of a region, a window or a queue pair.
    ///
    /// The values are those of `enum ibv_access_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The device may write the memory for local work requests: receives and results of reads.
        const LOCAL_WRITE = 1 << 0;
        /// A peer may write the memory.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read the memory.
        const REMOTE_READ = 1 << 2;
        /// A peer may execute atomic operations on the memory.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const WINDOW_BIND = 1 << 4;
        /// The addresses of the region start at 0.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging. In user space all memory is pageable, so it has no effect.
        const ON_DEMAND = 1 << 6;
        /// The memory is on huge pages. A hint without effect here.
        const HUGE_PAGES = 1 << 7;
        /// A peer may flush it to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// A peer may flush it to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes may be reordered. A hint without effect here.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl fmt::Display for Access {
    /// `LOCAL_WRITE | REMOTE_READ`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

/// Why an access to memory is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The key is invalid: never assigned, stale, or of an unbound window.
    #[error("the key is not valid")]
    UnknownKey,
    /// The memory belongs to another protection domain.
    #[error("the memory belongs to another protection domain")]
    OtherDomain,
    /// The window is bound through another queue pair.
    #[error("the memory window is bound through another queue pair")]
    OtherQueuePair,
    /// The memory does not grant these rights.
    #[error("the memory was registered without {0}")]
    Forbidden(Access),
    /// The range exceeds the registered memory.
    #[error("the range exceeds the registered memory")]
    OutOfRange,
    /// The range is inside the region, but the program has unmapped or protected the memory.
    #[error("the memory is not mapped, or not for this access")]
    NotMapped,
}

impl From<NotAccessible> for AccessError {
    fn from(NotAccessible: NotAccessible) -> Self {
        Self::NotMapped
    }
}

/// The access rights that an operation needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requirement(Access);

impl Requirement {
    pub(crate) const NOTHING: Self = Self(Access::empty());
    pub(crate) const LOCAL_WRITE: Self = Self(Access::LOCAL_WRITE);
    pub(crate) const REMOTE_WRITE: Self = Self(Access::REMOTE_WRITE);
    pub(crate) const REMOTE_READ: Self = Self(Access::REMOTE_READ);
    pub(crate) const REMOTE_ATOMIC: Self = Self(Access::REMOTE_ATOMIC);

    pub(crate) const fn of(access: Access) -> Self {
        Self(access)
    }

    #[inline]
    pub(crate) fn allowed_by(self, granted: Access) -> Result<(), AccessError> {
        if granted.contains(self.0) {
            Ok(())
        } else {
            Err(AccessError::Forbidden(self.0.difference(granted)))
        }
    }
}

/// Memory that passed all checks for one operation.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    extent: &'a Extent,
    offset: u64,
    length: u64,
}

impl<'a> View<'a> {
    pub(super) fn new(extent: &'a Extent, offset: u64, length: u64) -> Self {
        Self {
            extent,
            offset,
            length,
        }
    }

    /// Appends `length` bytes, starting at `offset`, to `out`.
    #[inline]
    pub(crate) fn append_to(
        &self,
        out: &mut Output<'_>,
        offset: u64,
        length: usize,
        place: InMessage,
    ) -> Result<(), AccessError> {
        assert!(offset + length as u64 <= self.length);
        Ok(self
            .extent
            .append_to(out, self.offset + offset, length, place)?)
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn store(
        &self,
        offset: u64,
        bytes: PayloadBytes<'_>,
        place: InMessage,
    ) -> Result<(), AccessError> {
        assert!(offset + bytes.len() as u64 <= self.length);
        Ok(self.extent.store(self.offset + offset, bytes, place)?)
    }

    /// The first bytes as words, if they are whole words of a buffer.
    #[inline(always)]
    pub(super) fn words(&self, length: usize) -> Option<&'a [AtomicU64]> {
        if length as u64 > self.length {
            return None;
        }
        self.extent.words(self.offset, length)
    }

    /// Copies the first bytes out of it. Returns false, and may have copied some, if they are not whole words of a buffer, nor accessible
    /// memory of a C program.
    #[inline]
    pub(super) fn load_few(&self, into: &mut Few, length: usize) -> bool {
        assert!(length as u64 <= self.length);
        self.extent.load_few(into, self.offset, length)
    }

    /// Copies bytes into it, as [`load_few`](Self::load_few).
    #[inline]
    pub(super) fn store_few(&self, from: &Few, length: usize) -> bool {
        assert!(length as u64 <= self.length);
        self.extent.store_few(from, self.offset, length)
    }

    /// Changes the first eight bytes atomically. Returns the previous value, or `None` if they are
    /// not aligned.
    pub(crate) fn update_word(
        &self,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, AccessError> {
        assert!(self.length >= 8);
        Ok(self.extent.update_word(self.offset, change)?)
    }
}

impl Memory {
    /// Appends `length` bytes of a message in `segments`, starting at `offset`, to `out`.
    #[inline]
    pub(crate) fn gather(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        offset: u64,
        length: usize,
        out: &mut Output<'_>,
    ) -> Result<(), AccessError> {
        for part in parts_of(segments, offset, length) {
            let view = self.local(domain, part.segment, Requirement::NOTHING)?;
            view.append_to(out, part.offset, part.length, part.place())?;
        }
        Ok(())
    }

    /// Copies `bytes` into a message in `segments`, starting at `offset`. `ends` says whether they are the last of the message, if
    /// it may be shorter than the segments.
    #[inline]
    pub(crate) fn scatter(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        offset: u64,
        bytes: PayloadBytes<'_>,
        ends: bool,
    ) -> Result<(), AccessError> {
        let mut rest = bytes;
        for part in parts_of(segments, offset, bytes.len()) {
            let (now, later) = rest.split_at(part.length);
            let view = self.local(domain, part.segment, Requirement::LOCAL_WRITE)?;
            let mut place = part.place();
            if ends {
                place.following = 0;
            }
            view.store(part.offset, now, place)?;
            rest = later;
        }
        debug_assert!(rest.is_empty(), "the segments are as long as the message");
        Ok(())
    }
}

struct SegmentPart<'a> {
    segment: &'a Segment,
    offset: u64,
    length: usize,
}

impl SegmentPart<'_> {
    #[inline]
    fn place(&self) -> InMessage {
        InMessage::of(self.offset, self.length, self.segment.length.into())
    }
}

/// The parts of `segments` that hold `length` bytes of the message, starting at `offset`.
#[inline]
fn parts_of(
    segments: &[Segment],
    offset: u64,
    length: usize,
) -> impl Iterator<Item = SegmentPart<'_>> {
    let mut skip = offset;
    let mut left = length as u64;
    segments.iter().filter_map(move |segment| {
        let size = u64::from(segment.length);
        let start = skip.min(size);
        skip -= start;
        let taken = left.min(size - start);
        left -= taken;
        (taken > 0).then_some(SegmentPart {
            segment,
            offset: start,
            length: taken as usize,
        })
    })
}

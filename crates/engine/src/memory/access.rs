//! Rights, and the window onto memory that passing the checks gives.

use super::extent::Absent;
use super::{Extent, Memory, ProtectionDomain, Segment};
use crate::table::Id;

bitflags::bitflags! {
    /// What may be done with a region or window, or through a queue pair.
    ///
    /// The values are those of `enum ibv_access_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The device may write it for local work requests: receives, and results of reads.
        const LOCAL_WRITE = 1 << 0;
        /// A peer may write it.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read it.
        const REMOTE_READ = 1 << 2;
        /// A peer may do atomic operations on it.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const WINDOW_BIND = 1 << 4;
        /// Its addresses begin at 0.
        const ZERO_BASED = 1 << 5;
        /// Pages may come and go; in user space that is always so.
        const ON_DEMAND = 1 << 6;
        /// It lies on huge pages; a hint without effect here.
        const HUGE_PAGES = 1 << 7;
        /// A peer may flush it to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// A peer may flush it to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes may land in any order; a hint without effect here.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// Why memory can't be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The key opens nothing: invented, stale, or a window that is not bound.
    #[error("the key opens no memory")]
    UnknownKey,
    /// The memory is in another protection domain.
    #[error("the memory belongs to another protection domain")]
    OtherDomain,
    /// The window is bound through another queue pair.
    #[error("the memory window is bound through another queue pair")]
    OtherQueuePair,
    /// The right was not granted.
    #[error("the memory was registered without {0:?}")]
    Forbidden(Access),
    /// The range is not inside.
    #[error("the range reaches outside of the registered memory")]
    OutOfRange,
    /// The range is inside of the region, but the program has unmapped or protected the memory.
    #[error("the program has no memory there, or not for this")]
    Absent,
}

impl From<Absent> for AccessError {
    fn from(Absent: Absent) -> Self {
        Self::Absent
    }
}

/// The right that an operation needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requirement(Access);

impl Requirement {
    pub(crate) const NOTHING: Self = Self(Access::empty());
    pub(crate) const LOCAL_WRITE: Self = Self(Access::LOCAL_WRITE);
    pub(crate) const REMOTE_READ: Self = Self(Access::REMOTE_READ);
    pub(crate) const REMOTE_ATOMIC: Self = Self(Access::REMOTE_ATOMIC);

    pub(crate) const fn of(access: Access) -> Self {
        Self(access)
    }

    #[inline]
    pub(crate) fn allowed_by(self, granted: Access) -> Result<(), AccessError> {
        match granted.contains(self.0) {
            true => Ok(()),
            false => Err(AccessError::Forbidden(self.0.difference(granted))),
        }
    }
}

/// Memory that an operation may touch now: the checks are behind it.
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

    /// Appends `length` bytes from `offset` on to `out`.
    #[inline]
    pub(crate) fn append_to(
        &self,
        out: &mut Vec<u8>,
        offset: u64,
        length: usize,
    ) -> Result<(), AccessError> {
        assert!(offset + length as u64 <= self.length);
        Ok(self.extent.append_to(out, self.offset + offset, length)?)
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        assert!(offset + bytes.len() as u64 <= self.length);
        Ok(self.extent.store(self.offset + offset, bytes)?)
    }

    /// Changes its first eight bytes atomically and gives their former value, or nothing when they
    /// are not aligned.
    pub(crate) fn update_word(
        &self,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, AccessError> {
        assert!(self.length >= 8);
        Ok(self.extent.update_word(self.offset, change)?)
    }
}

impl Memory {
    /// Appends `length` bytes of a message that lies in `segments`, from `offset` on.
    #[inline]
    pub(crate) fn gather(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        offset: u64,
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        for piece in pieces(segments, offset, length) {
            let view = self.local(domain, piece.segment, Requirement::NOTHING)?;
            view.append_to(out, piece.offset, piece.length)?;
        }
        Ok(())
    }

    /// Puts `bytes` into a message that lies in `segments`, from `offset` on.
    #[inline]
    pub(crate) fn scatter(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let mut rest = bytes;
        for piece in pieces(segments, offset, bytes.len()) {
            let (now, later) = rest.split_at(piece.length);
            let view = self.local(domain, piece.segment, Requirement::LOCAL_WRITE)?;
            view.store(piece.offset, now)?;
            rest = later;
        }
        debug_assert!(rest.is_empty(), "the caller compared the lengths");
        Ok(())
    }
}

struct Piece<'a> {
    segment: &'a Segment,
    offset: u64,
    length: usize,
}

/// The parts of `segments` that hold `length` bytes from `offset` on.
#[inline]
fn pieces(segments: &[Segment], offset: u64, length: usize) -> impl Iterator<Item = Piece<'_>> {
    let mut skip = offset;
    let mut left = length as u64;
    segments.iter().filter_map(move |segment| {
        let size = u64::from(segment.length);
        let start = skip.min(size);
        skip -= start;
        let taken = left.min(size - start);
        left -= taken;
        (taken > 0).then_some(Piece {
            segment,
            offset: start,
            length: taken as usize,
        })
    })
}

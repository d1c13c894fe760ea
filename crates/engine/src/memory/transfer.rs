//! Copies of whole messages within the device.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::extent::Few;
use super::{
    AccessError, Accessor, InMessage, Memory, Output, ProtectionDomain, Requirement, Segment, View,
};
use crate::slab::Id;
use wire::Key;

/// How many bytes are copied at once. They stay in the first-level cache between the two places.
const PIECE: u64 = 16 << 10;

/// Where a message is, or belongs.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    /// The segments of a work request, in memory of this domain.
    Segments(Id<ProtectionDomain>, &'p [Segment]),
    /// The address in the memory of a key, which a peer names.
    Remote(Accessor, Key, u64),
}

/// A segment in memory of a domain, and what is done with it.
#[derive(Clone, Copy)]
pub(crate) struct Span(Id<ProtectionDomain>, Segment, Requirement);

impl Span {
    #[inline(always)]
    pub(crate) fn of(domain: Id<ProtectionDomain>, segment: Segment, needs: Requirement) -> Self {
        Self(domain, segment, needs)
    }
}

/// The memory of a place.
enum Found<'f> {
    /// All of it is in one region.
    View(View<'f>),
    Segments(Id<ProtectionDomain>, &'f [Segment]),
}

/// What is required of segments, and of memory that a peer names.
#[derive(Clone, Copy)]
struct Needs {
    local: Requirement,
    remote: Requirement,
}

const SOURCE: Needs = Needs {
    local: Requirement::NOTHING,
    remote: Requirement::REMOTE_READ,
};

const TARGET: Needs = Needs {
    local: Requirement::LOCAL_WRITE,
    remote: Requirement::REMOTE_WRITE,
};

impl Memory {
    /// Copies a short message from one span to another. Returns false if the message or one of the spans is something else, or if memory is
    /// not as it should be; then parts may be copied.
    #[inline(always)]
    pub(crate) fn copy_few(&self, from: Span, to: Span, length: u32) -> bool {
        let length = length as usize;
        if length > size_of::<Few>() {
            return false;
        }
        let (Some(from), Some(to)) = (self.view_of(from, length), self.view_of(to, length)) else {
            return false;
        };
        if let Some([from]) = from.words(length)
            && let Some([to]) = to.words(length)
        {
            copy_word(to, from);
            return true;
        }
        copy_words(&to, &from, length)
    }

    /// The memory of a span, if it is in a region that is accessible.
    #[inline(always)]
    fn view_of(&self, span: Span, length: usize) -> Option<View<'_>> {
        let Span(domain, segment, requirement) = span;
        let region = self.region(segment.key)?;
        if region.domain != domain || length > segment.length as usize {
            return None;
        }
        let view = region.view(segment.address, segment.length.into(), requirement);
        view.ok()
    }

    /// Copies a message from one place to another. Fails if memory is not as it should be; then parts may be copied.
    pub(crate) fn transfer(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        length: u64,
        piece: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        let (from, to) = (
            self.find(from, length, SOURCE)?,
            self.find(to, length, TARGET)?,
        );
        let mut offset = 0;
        while offset < length {
            let count = (length - offset).min(PIECE);
            let place = InMessage::of(offset, count as usize, length);
            piece.clear();
            let out = &mut Output::Private(piece);
            match &from {
                Found::View(view) => view.append_to(out, offset, count as usize, place)?,
                Found::Segments(domain, segments) => {
                    self.gather(*domain, segments, offset, count as usize, out)?;
                }
            }
            self.store(&to, offset, piece, place)?;
            offset += count;
        }
        Ok(())
    }

    /// Copies a message to a place. Fails as [`transfer`](Self::transfer).
    pub(crate) fn fill(&self, to: Place<'_>, message: &[u8]) -> Result<(), AccessError> {
        let to = self.find(to, message.len() as u64, TARGET)?;
        self.store(&to, 0, message, InMessage::WHOLE)
    }

    /// The memory of a place.
    fn find<'f>(
        &'f self,
        place: Place<'f>,
        length: u64,
        needs: Needs,
    ) -> Result<Found<'f>, AccessError> {
        Ok(match place {
            Place::Segments(domain, [segment]) if length <= u64::from(segment.length) => {
                Found::View(self.local(domain, segment, needs.local)?)
            }
            Place::Segments(domain, segments) => Found::Segments(domain, segments),
            Place::Remote(accessor, key, address) => {
                Found::View(self.remote(accessor, key, address, length, needs.remote)?)
            }
        })
    }

    fn store(
        &self,
        to: &Found<'_>,
        offset: u64,
        bytes: &[u8],
        place: InMessage,
    ) -> Result<(), AccessError> {
        match to {
            Found::View(view) => view.store(offset, bytes.into(), place),
            Found::Segments(domain, segments) => {
                let ends = place.following == 0;
                self.scatter(*domain, segments, offset, bytes.into(), ends)
            }
        }
    }
}

/// Copies a word that others may access at the same time, with the guarantees of [`Buffer`](super::Buffer).
#[inline]
fn copy_word(to: &AtomicU64, from: &AtomicU64) {
    let word = from.load(Ordering::Relaxed);
    fence(Ordering::AcqRel);
    to.store(word, Ordering::Relaxed);
}

/// Copies few bytes. Returns false if they are not whole words of a buffer, nor in memory of a C program that is there.
fn copy_words(to: &View<'_>, from: &View<'_>, length: usize) -> bool {
    let mut few = Few::default();
    from.load_few(&mut few, length) && to.store_few(&few, length)
}

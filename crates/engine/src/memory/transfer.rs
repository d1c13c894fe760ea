//! Copies of whole messages within the device.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{
    AccessError, Accessor, InMessage, Memory, Output, ProtectionDomain, Requirement, Segment, View,
};
use crate::slab::Id;
use wire::Key;

/// How many bytes are copied at once. They stay in the first-level cache between the two places.
const PIECE: u64 = 16 << 10;

/// How many words are copied at once without a buffer.
const FEW: usize = 8;

/// Where a message is, or belongs.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    /// The segments of a work request, in memory of this domain.
    Segments(Id<ProtectionDomain>, &'p [Segment]),
    /// The address in the memory of a key, which a peer names.
    Remote(Accessor, Key, u64),
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
    /// Copies a message from one place to another. Fails if memory is not as it should be; then parts may be copied.
    #[inline]
    pub(crate) fn transfer(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        length: u64,
        piece: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        if length <= (FEW * size_of::<u64>()) as u64
            && let Some(source) = self.whole_words(from, length, SOURCE)
            && let Some(target) = self.whole_words(to, length, TARGET)
        {
            copy_few(target, source);
            return Ok(());
        }
        self.transfer_pieces(from, to, length, piece)
    }

    fn transfer_pieces(
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

    /// The memory of a place, if it is whole words of a buffer. `None` also stands for what must not be accessed.
    #[inline]
    fn whole_words(&self, place: Place<'_>, length: u64, needs: Needs) -> Option<&[AtomicU64]> {
        let (domain, key, address, size, requirement) = match place {
            Place::Segments(domain, [segment]) => {
                let size = u64::from(segment.length);
                (domain, segment.key, segment.address, size, needs.local)
            }
            Place::Segments(..) => return None,
            Place::Remote(accessor, key, address) => {
                (accessor.domain, key, address, length, needs.remote)
            }
        };
        let region = self.region(key).filter(|it| it.domain == domain)?;
        let view = region.view(address, size, requirement).ok()?;
        view.words(length)
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

/// Copies words that others may access at the same time, with the guarantees of [`Buffer`](super::Buffer).
#[inline]
fn copy_few(to: &[AtomicU64], from: &[AtomicU64]) {
    let mut words = [0; FEW];
    for (word, from) in words.iter_mut().zip(from) {
        *word = from.load(Ordering::Relaxed);
    }
    fence(Ordering::AcqRel);
    for (to, word) in to.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
}

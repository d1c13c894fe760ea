//! Checksums of a message, to find out whether the program changes it while it is outstanding.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::device_state::DeviceState;
use crate::memory::{AccessError, Memory, Output, ProtectionDomain, Segment, Segments};
use crate::receive_queue::Contents;
use crate::slab::Id;

/// The checksums of a message when it was posted, one for each packet of the path MTU.
///
/// Until the program's call ends, the program cannot change the message. So a packet that is built before has the bytes that were
/// posted, and its checksum is taken from it. [`Device::take_observations`](crate::Device::take_observations) adds the others.
#[derive(Debug)]
pub(crate) struct Checksums {
    piece: usize,
    length: usize,
    /// The first pieces.
    of_pieces: RefCell<SmallVec<[u32; 1]>>,
    /// The first byte of a piece that was found changed.
    pub(crate) changed_at: Cell<Option<u32>>,
}

impl Checksums {
    /// Those of a message of this length, without any piece.
    pub(crate) fn new(piece: usize, length: usize) -> Self {
        Self {
            piece,
            length,
            of_pieces: RefCell::default(),
            changed_at: Cell::new(None),
        }
    }

    /// The length of each piece but the last.
    pub(crate) fn piece(&self) -> usize {
        self.piece
    }

    /// The part of the message whose checksums are not known.
    pub(crate) fn missing(&self) -> Range<usize> {
        let known = self.of_pieces.borrow().len() * self.piece;
        known.min(self.length)..self.length
    }

    /// Adds the checksums that are missing, as far as the message in `segments` can be read.
    pub(crate) fn add_missing(
        &self,
        memory: &Memory,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
    ) -> Result<(), AccessError> {
        let missing = self.missing();
        let mut copy = Vec::new();
        for start in missing.clone().step_by(self.piece) {
            let end = missing.end.min(start + self.piece);
            self.compare_piece(memory, domain, segments, start..end, &mut copy)?;
        }
        Ok(())
    }

    /// Compares a piece of the message in `segments` with what was posted. `copy` has room for the piece, or grows.
    pub(crate) fn compare_piece(
        &self,
        memory: &Memory,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        piece: Range<usize>,
        copy: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        copy.clear();
        let mut out = Output::Private(copy);
        memory.gather(domain, segments, piece.start as u64, piece.len(), &mut out)?;
        self.compare(piece.start, copy);
        Ok(())
    }

    /// Compares the whole message with what was posted. `now` has the checksums of those pieces that can be read.
    pub(crate) fn compare_all(&self, now: &[u32]) {
        let of_pieces = self.of_pieces.borrow();
        let mut pieces = of_pieces.iter().zip(now);
        if self.changed_at.get().is_none()
            && let Some(changed) = pieces.position(|(posted, now)| posted != now)
        {
            self.changed_at.set(Some((changed * self.piece) as u32));
        }
    }

    /// Compares the piece at `offset` with what was posted, or adds its checksum.
    pub(crate) fn compare(&self, offset: usize, bytes: &[u8]) {
        let is_piece = offset.is_multiple_of(self.piece)
            && offset < self.length
            && bytes.len() == self.piece.min(self.length - offset);
        if self.changed_at.get().is_some() || !is_piece {
            return;
        }
        let mut of_pieces = self.of_pieces.borrow_mut();
        let index = offset / self.piece;
        match of_pieces.get(index) {
            Some(posted) if *posted != crc32fast::hash(bytes) => {
                self.changed_at.set(Some(offset as u32));
            }
            None if index == of_pieces.len() => of_pieces.push(crc32fast::hash(bytes)),
            _ => {}
        }
    }
}

/// The checksums of memory at one moment.
///
/// Programs often send the same memory again and again. Messages whose completions are polled at once are compared with one
/// reading of it.
#[derive(Debug, Default)]
pub(crate) struct Readings(HashMap<(Id<ProtectionDomain>, Segments, usize), SmallVec<[u32; 1]>>);

impl Readings {
    /// The checksums of the pieces of a message in `segments` before the first one that cannot be read: the program may have
    /// deregistered the memory meanwhile.
    pub(crate) fn read(
        &mut self,
        memory: &Memory,
        domain: Id<ProtectionDomain>,
        segments: Segments,
        piece: usize,
    ) -> &[u32] {
        let key = (domain, segments, piece);
        (self.0.entry(key)).or_insert_with_key(|(domain, segments, _)| {
            let length = segments.iter().map(|segment| segment.length as usize).sum();
            let reading = Checksums::new(piece, length);
            let _ = reading.add_missing(memory, *domain, segments);
            reading.of_pieces.into_inner()
        })
    }
}

/// How many bytes of a receive are compared. A receive may be much longer than its message.
const MAX_COMPARED: u64 = 4096;

impl DeviceState {
    /// A checksum of the first bytes in `segments`.
    #[cold]
    pub(crate) fn contents_of(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
    ) -> Contents {
        let length = segments.iter().map(|segment| u64::from(segment.length));
        let length = length.sum::<u64>().min(MAX_COMPARED) as usize;
        let mut copy = Vec::new();
        let mut out = Output::Private(&mut copy);
        let memory = self.objects.memory();
        let read = memory.gather(domain, segments, 0, length, &mut out);
        (read.is_ok() && length > 0).then(|| crc32fast::hash(&copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksums of a message, as far as `readable` says.
    fn checksums(message: &[u8], readable: usize) -> Checksums {
        let checksums = Checksums::new(4, message.len());
        let pieces = message[..readable].chunks(4).enumerate();
        pieces.for_each(|(index, piece)| checksums.compare(4 * index, piece));
        checksums
    }

    fn compare_with(posted: &Checksums, now: &Checksums) -> Option<u32> {
        posted.compare_all(&now.of_pieces.borrow());
        posted.changed_at.get()
    }

    #[test]
    fn the_first_changed_piece_is_found_by_its_offset() {
        let posted = checksums(b"123456789", 9);
        assert_eq!(compare_with(&posted, &checksums(b"123456789", 9)), None);
        assert_eq!(compare_with(&posted, &checksums(b"12345x78x", 9)), Some(4));
        assert_eq!(
            compare_with(&posted, &checksums(b"x23456789", 9)),
            Some(4),
            "the first finding stays"
        );
    }

    #[test]
    fn pieces_that_cannot_be_read_any_more_are_not_compared() {
        let posted = checksums(b"12345678", 8);
        assert_eq!(compare_with(&posted, &checksums(b"1234xxxx", 4)), None);
    }

    #[test]
    fn the_first_packet_of_a_piece_is_what_was_posted_and_the_next_one_is_compared() {
        let posted = checksums(b"123456789", 4);
        assert_eq!(posted.missing(), 4..9);
        posted.compare(8, b"9");
        assert_eq!(posted.missing(), 4..9, "a piece before it is not known");
        posted.compare(4, b"56");
        assert_eq!(posted.missing(), 4..9, "packets have another length");
        posted.compare(4, b"5678");
        posted.compare(8, b"9");
        assert_eq!((posted.missing(), posted.changed_at.get()), (9..9, None));
        posted.compare(8, b"x");
        assert_eq!(posted.changed_at.get(), Some(8));
    }
}

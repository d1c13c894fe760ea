//! Checksums of a message, to find out whether the program changes it while it is outstanding.

use std::cell::Cell;
use std::collections::HashMap;

use smallvec::SmallVec;

use crate::memory::{Memory, ProtectionDomain, Segments};
use crate::slab::Id;

/// The checksums of a message when it was posted, one for each packet of the path MTU.
#[derive(Debug)]
pub(crate) struct Checksums {
    piece: usize,
    of_pieces: SmallVec<[u32; 1]>,
    /// The first byte of a piece that was found changed.
    pub(crate) changed_at: Cell<Option<u32>>,
}

impl Checksums {
    pub(crate) fn new(piece: usize) -> Self {
        Self {
            piece,
            of_pieces: SmallVec::new(),
            changed_at: Cell::new(None),
        }
    }

    /// The length of each piece but the last.
    pub(crate) fn piece(&self) -> usize {
        self.piece
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.of_pieces.push(crc32fast::hash(piece));
    }

    /// Compares the whole message with what was posted. `now` has the checksums of those pieces that can be read.
    pub(crate) fn compare_all(&self, now: &[u32]) {
        let mut pieces = self.of_pieces.iter().zip(now);
        if self.changed_at.get().is_none()
            && let Some(changed) = pieces.position(|(posted, now)| posted != now)
        {
            self.changed_at.set(Some((changed * self.piece) as u32));
        }
    }

    /// Compares the piece at `offset` with what was posted.
    pub(crate) fn compare(&self, offset: usize, bytes: &[u8]) {
        if self.changed_at.get().is_some() || !offset.is_multiple_of(self.piece) {
            return;
        }
        let posted = self.of_pieces.get(offset / self.piece);
        if posted.is_some_and(|posted| *posted != crc32fast::hash(bytes)) {
            self.changed_at.set(Some(offset as u32));
        }
    }
}

/// The checksums of memory at one moment.
///
/// Programs often send the same memory again and again. Messages whose completions are polled at once are compared with one
/// reading of it.
#[derive(Debug, Default)]
pub(crate) struct Readings(HashMap<(Id<ProtectionDomain>, Segments, usize), Checksums>);

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
        let reading = self.0.entry(key).or_insert_with_key(|(_, segments, _)| {
            let (reading, _) = memory.readable_checksums(domain, segments, piece);
            reading
        });
        &reading.of_pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksums(pieces: &[&[u8]]) -> Checksums {
        let mut checksums = Checksums::new(4);
        pieces.iter().for_each(|piece| checksums.push(piece));
        checksums
    }

    #[test]
    fn the_first_changed_piece_is_found_by_its_offset() {
        let posted = checksums(&[b"1234", b"5678", b"9"]);
        posted.compare_all(&checksums(&[b"1234", b"5678", b"9"]).of_pieces);
        assert_eq!(posted.changed_at.get(), None);
        posted.compare_all(&checksums(&[b"1234", b"5x78", b"x"]).of_pieces);
        assert_eq!(posted.changed_at.get(), Some(4));
        posted.compare_all(&checksums(&[b"x234", b"5678", b"9"]).of_pieces);
        assert_eq!(posted.changed_at.get(), Some(4), "the first finding stays");
    }

    #[test]
    fn pieces_that_cannot_be_read_any_more_are_not_compared() {
        let posted = checksums(&[b"1234", b"5678"]);
        posted.compare_all(&checksums(&[b"1234"]).of_pieces);
        assert_eq!(posted.changed_at.get(), None);
    }
}

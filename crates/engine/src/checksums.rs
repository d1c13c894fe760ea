//! Checksums of a message, to find out whether the program changes it while it is outstanding.

use std::cell::Cell;

use smallvec::SmallVec;

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

//! Memory of a host, and a model of its expected content.

use std::ops::Range;
use std::sync::Arc;

use engine::Buffer;

use crate::CheckError;
use crate::rng::Rng;

/// A buffer of a host, and the expected content of its bytes.
///
/// The model has two copies: `settled` is the content after all completed requests; `planned` is the
/// content after all posted requests. A request that ended in an error may have had its effect: that
/// goes to `maybe`.
pub struct ModelMemory {
    /// The host's number.
    pub host: usize,
    /// The address of its first byte in work requests.
    pub base: u64,
    buffer: Arc<Buffer>,
    settled: Vec<u8>,
    planned: Vec<u8>,
    maybe: Vec<(usize, Vec<u8>)>,
    in_use: Vec<Range<usize>>,
}

/// Bytes that one request uses exclusively: pieces with gaps between them.
#[derive(Debug, Clone)]
pub struct Block {
    /// The whole range, including gaps.
    pub range: Range<usize>,
    /// The pieces in the order of the message.
    pub pieces: Vec<Range<usize>>,
}

impl ModelMemory {
    /// Memory of a host, filled with random bytes.
    #[must_use]
    pub fn new(host: usize, length: usize, base: u64, rng: &mut Rng) -> Self {
        let bytes = rng.bytes(length);
        Self {
            host,
            base,
            buffer: Buffer::copy_of(&bytes),
            planned: bytes.clone(),
            settled: bytes,
            maybe: Vec::new(),
            in_use: Vec::new(),
        }
    }

    /// The memory itself, to register it.
    #[must_use]
    pub fn buffer(&self) -> Arc<Buffer> {
        Arc::clone(&self.buffer)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.settled.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settled.is_empty()
    }

    /// The address of the byte at `offset`.
    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset as u64)
    }

    /// The content after all posted requests.
    #[must_use]
    pub fn planned(&self, range: Range<usize>) -> &[u8] {
        &self.planned[range]
    }

    /// The bytes of a block's pieces in message order, as planned.
    #[must_use]
    pub fn planned_message(&self, block: &Block) -> Vec<u8> {
        let pieces = block.pieces.iter().cloned();
        pieces
            .flat_map(|piece| self.planned(piece))
            .copied()
            .collect()
    }

    /// The bytes of a block's pieces in message order, as they are now.
    #[must_use]
    pub fn found_message(&self, block: &Block) -> Vec<u8> {
        let read = |piece: &Range<usize>| {
            let mut bytes = vec![0; piece.len()];
            self.buffer.read(piece.start, &mut bytes);
            bytes
        };
        block.pieces.iter().flat_map(read).collect()
    }

    /// Allocates `length` bytes in this number of pieces; none if a few random tries find no free range.
    pub fn allocate(&mut self, length: usize, pieces: usize, rng: &mut Rng) -> Option<Block> {
        let gaps: Vec<usize> = (0..pieces).map(|_| rng.below(12)).collect();
        let whole = length + gaps.iter().sum::<usize>();
        let start = self.find_room(whole, rng)?;
        let mut cuts: Vec<usize> = (1..pieces).map(|_| rng.below(length + 1)).collect();
        cuts.push(length);
        cuts.sort_unstable();
        let mut laid = Vec::with_capacity(pieces);
        let (mut at, mut before) = (start, 0);
        for (cut, gap) in cuts.into_iter().zip(gaps).take(pieces) {
            at += gap;
            laid.push(at..at + cut - before);
            at += cut - before;
            before = cut;
        }
        // The pieces may be in another order than the message.
        if rng.percent(30) {
            laid.reverse();
        }
        let range = start..start + whole;
        self.in_use.push(range.clone());
        Some(Block {
            range,
            pieces: laid,
        })
    }

    fn find_room(&self, length: usize, rng: &mut Rng) -> Option<usize> {
        const TRIES: usize = 8;
        let room = self.len().checked_sub(length)?;
        (0..TRIES).map(|_| rng.below(room + 1)).find(|&start| {
            let wanted = start..start + length;
            !self.in_use.iter().any(|used| overlap(used, &wanted))
        })
    }

    /// Allocates the same bytes for a second request; each request frees them.
    pub fn share(&mut self, block: &Block) -> Block {
        self.in_use.push(block.range.clone());
        block.clone()
    }

    /// Frees the bytes of a block.
    pub fn free(&mut self, block: &Block) {
        if let Some(index) = self.in_use.iter().position(|used| *used == block.range) {
            self.in_use.swap_remove(index);
        }
    }

    /// The application writes random bytes into a block that no request uses yet.
    pub fn scribble(&mut self, block: &Block, rng: &mut Rng) {
        for piece in &block.pieces {
            let bytes = rng.bytes(piece.len());
            self.buffer.write(piece.start, &bytes);
            self.planned[piece.clone()].copy_from_slice(&bytes);
            self.settled[piece.clone()].copy_from_slice(&bytes);
        }
    }

    /// A posted request will write `bytes`.
    pub fn plan(&mut self, offset: usize, bytes: &[u8]) {
        self.planned[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// A completed request has written `bytes`.
    pub fn settle(&mut self, offset: usize, bytes: &[u8]) {
        self.settled[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// A failed request may have written `bytes`.
    pub fn suspect(&mut self, offset: usize, bytes: Vec<u8>) {
        self.maybe.push((offset, bytes));
    }

    /// The content is unknown: takes the current content as expected.
    pub fn accept(&mut self, range: Range<usize>) {
        self.buffer
            .read(range.start, &mut self.settled[range.clone()]);
        let (settled, planned) = (&self.settled, &mut self.planned);
        planned[range.clone()].copy_from_slice(&settled[range]);
    }

    /// Takes all current content as expected: no request uses it, and nothing is in flight.
    pub fn accept_all(&mut self) {
        self.maybe.clear();
        self.in_use.clear();
        self.accept(0..self.len());
    }

    /// Compares a range that no request writes with its expected content.
    pub fn check(&self, range: Range<usize>) -> Result<(), CheckError> {
        let mut found = vec![0; range.len()];
        self.buffer.read(range.start, &mut found);
        let expected = &self.settled[range.clone()];
        match found.iter().zip(expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(index) => Err(self.wrong_byte(range.start + index, found[index])),
        }
    }

    /// Compares all bytes, after the last event.
    pub fn check_all(&self) -> Result<(), CheckError> {
        let found = self.buffer.to_vec();
        if found == self.settled {
            return Ok(());
        }
        for (offset, (&byte, &expected)) in found.iter().zip(&self.settled).enumerate() {
            if byte != expected && !self.is_explained(offset, byte) {
                return Err(self.wrong_byte(offset, byte));
            }
        }
        Ok(())
    }

    fn is_explained(&self, offset: usize, byte: u8) -> bool {
        self.maybe.iter().any(|(start, bytes)| {
            let index = offset.checked_sub(*start);
            index.and_then(|index| bytes.get(index)) == Some(&byte)
        })
    }

    fn wrong_byte(&self, offset: usize, found: u8) -> CheckError {
        CheckError::new(format!(
            "memory of host {} holds {found:#04x} at {:#x} (byte {offset} of {}), but {:#04x} is right",
            self.host,
            self.address(offset),
            self.len(),
            self.settled[offset],
        ))
    }
}

/// Whether two ranges have a byte in common.
#[must_use]
pub fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (ModelMemory, Rng) {
        let mut rng = Rng::new(3);
        (ModelMemory::new(0, 1000, 0x1000, &mut rng), rng)
    }

    #[test]
    fn blocks_do_not_overlap_and_pieces_add_up_to_the_length() {
        let (mut memory, mut rng) = memory();
        let mut blocks: Vec<Block> = Vec::new();
        for _ in 0..100 {
            let pieces = rng.between(0, 5);
            let length = if pieces == 0 { 0 } else { rng.below(60) };
            let Some(block) = memory.allocate(length, pieces, &mut rng) else {
                continue;
            };
            let total: usize = block.pieces.iter().map(ExactSizeIterator::len).sum();
            assert_eq!((block.pieces.len(), total), (pieces, length));
            assert!(
                !blocks
                    .iter()
                    .any(|other| overlap(&other.range, &block.range))
            );
            blocks.push(block);
        }
        assert!(blocks.len() > 10);
    }

    #[test]
    fn unexpected_byte_is_detected() {
        let (mut memory, _) = memory();
        assert!(memory.check_all().is_ok());
        let wrong = memory.planned(7..8)[0] ^ 1;
        memory.buffer().write(7, &[wrong]);
        assert!(memory.check(0..7).is_ok());
        assert!(memory.check(7..8).is_err());
        assert!(memory.check_all().is_err());
        memory.suspect(6, vec![0, wrong]);
        assert!(memory.check_all().is_ok());
    }
}

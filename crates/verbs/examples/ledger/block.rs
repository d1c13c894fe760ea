//! What a client writes into the server's memory: a block for each number, recognizable by its content.

use crate::RECEIVES;

/// Longer than one packet, so that a partial block can be detected.
pub(crate) const LENGTH: usize = 6000;

/// Blocks in the server's memory. The block of a number is written again this many numbers later,
/// when the server has certainly taken the number: it can't be behind by more than its receives.
pub(crate) const SLOTS: usize = 2 * RECEIVES;

/// Where the block of a number is.
pub(crate) fn offset(number: u64) -> usize {
    (number % SLOTS as u64) as usize * LENGTH
}

/// The block of a client's number.
pub(crate) fn content(client: u64, number: u64) -> Vec<u8> {
    let mut word = client.rotate_left(32) ^ number;
    let words = std::iter::repeat_with(|| {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        word.to_le_bytes()
    });
    words.flatten().take(LENGTH).collect()
}

//! The digest of a run: equal runs have equal digests.

/// A 64-bit digest of all events (FNV-1a over words).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Default for Digest {
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl Digest {
    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        // The shift moves high bits to low ones. A product alone does not.
        let mixed = (self.0 ^ number).wrapping_mul(PRIME);
        self.0 = mixed ^ mixed >> 29;
    }

    /// Adds bytes and their count.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// The digest.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> u64 {
        let mut digest = Digest::default();
        parts.iter().for_each(|part| digest.bytes(part));
        digest.value()
    }

    #[test]
    fn digest_depends_on_content_order_and_boundaries() {
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"a", b"b"]), of(&[b"b", b"a"]));
        assert_ne!(of(&[b"a"]), of(&[b"a\0"]));
    }
}

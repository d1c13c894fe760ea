//! Random numbers that a peer can't predict from previous ones.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A cryptographic random number generator. The same seed gives the same numbers.
#[derive(Debug)]
pub(crate) struct Random(ChaCha20Rng);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Random(ChaCha20Rng::from_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number below `bound`, which must not be zero.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_the_seed_counts() {
        let first = Random::new([0; 32]).next();
        for byte in 0..32 {
            let mut seed = [0; 32];
            seed[byte] = 1;
            assert_ne!(Random::new(seed).next(), first, "byte {byte}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut one, mut other) = (Random::new([7; 32]), Random::new([7; 32]));
        assert!((0..100).all(|_| one.next() == other.next()));
    }
}

//! Random numbers that a peer cannot guess, for memory keys and queue pair numbers.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A cryptographic random number generator. Its output reveals neither the seed nor earlier or
/// later output. The same seed gives the same numbers.
#[derive(Clone)]
pub(crate) struct Random(ChaCha12Rng);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// A number below 2^`bits`, where `bits` is 1 to 32.
    pub(crate) fn bits(&mut self, bits: u32) -> u32 {
        self.0.next_u32() >> (u32::BITS - bits)
    }

    /// Another generator, so that two users of one seed get different numbers.
    pub(crate) fn fork(&mut self) -> Self {
        Self(ChaCha12Rng::from_rng(&mut self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut random = Random::new([seed; 32]);
            [(); 4].map(|()| random.bits(32))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn fork_gives_other_numbers() {
        let mut random = Random::new([1; 32]);
        let mut fork = random.fork();
        assert_ne!(
            [fork.bits(32), fork.bits(32)],
            [random.bits(32), random.bits(32)]
        );
    }

    #[test]
    fn numbers_cover_exactly_the_range_below_their_bound() {
        let mut random = Random::new([1; 32]);
        let seen = (0..200).fold(0_u8, |seen, _| seen | 1 << random.bits(3));
        assert_eq!(seen, 0xff);
    }
}

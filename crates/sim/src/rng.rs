//! The only source of random numbers in a run.

use std::time::Duration;

/// A random number generator (xoshiro256**). The same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut spread = seed;
        Self {
            state: std::array::from_fn(|_| split_mix(&mut spread)),
        }
    }

    /// Another generator, so that the draws of one part of a run do not change those of another.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.word())
    }

    /// A seed for another generator.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for part in seed.chunks_exact_mut(8) {
            part.copy_from_slice(&self.word().to_le_bytes());
        }
        seed
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`, or 0 when there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.word()) * bound as u128;
        (product >> 64) as usize
    }

    /// A number from `low` to `high`, both possible.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with a probability of `share` per mille.
    pub fn per_mille(&mut self, share: u32) -> bool {
        self.below(1000) < share as usize
    }

    /// True with a probability of `share` percent.
    pub fn percent(&mut self, share: u32) -> bool {
        self.below(100) < share as usize
    }

    /// One of the choices.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// One of the choices, with a probability by weight.
    ///
    /// # Panics
    /// If no weight is above zero.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut point = self.below(total as usize) as u32;
        for &(weight, choice) in choices {
            if point < weight {
                return choice;
            }
            point -= weight;
        }
        panic!("at least one weight is above zero");
    }

    /// A duration of at most `most`, in nanoseconds.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(most.as_nanos() as usize + 1) as u64)
    }

    /// Overwrites `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut one = Rng::new(42);
        let mut two = Rng::new(42);
        let mut other = Rng::new(43);
        let numbers: Vec<u64> = (0..100).map(|_| one.word()).collect();
        assert!(numbers.iter().all(|&number| number == two.word()));
        assert!(numbers.iter().any(|&number| number != other.word()));
    }

    #[test]
    fn below_returns_every_number_below_the_bound() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[rng.between(2, 6) - 2] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn weights_set_the_probability() {
        let mut rng = Rng::new(9);
        let heavy = (0..1000)
            .filter(|_| rng.weighted(&[(0, 'a'), (9, 'b'), (1, 'c')]) == 'b')
            .count();
        assert!((850..950).contains(&heavy), "{heavy}");
    }
}

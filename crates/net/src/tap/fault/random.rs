//! A small random number generator: the same seed gives the same faults on every machine.

/// SplitMix64: one addition and three multiplications per number, and every seed is good.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// One of many independent streams of the same seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        Random {
            state: mix(mix(seed.wrapping_add(GOLDEN_RATIO)) ^ stream),
        }
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that never ends would need an `unwrap` at each use"
    )]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_RATIO);
        mix(self.state)
    }

    /// A number below `limit`, with nearly equal probability.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        assert_ne!(numbers(7, 1), numbers(8, 1));
    }

    #[test]
    fn numbers_below_a_limit_are_spread_evenly() {
        let mut random = Random::new(0, 0);
        let mut found = [0_u32; 10];
        for _ in 0..10_000 {
            found[random.below(10) as usize] += 1;
        }
        assert!(
            found.iter().all(|count| (900..1100).contains(count)),
            "{found:?}"
        );
    }
}

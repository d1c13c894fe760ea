//! The random numbers that decide everything.

/// SplitMix64: the same numbers for the same seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, so that one part of the storm does not shift the decisions of another.
    pub(super) fn fork(&mut self) -> Self {
        Self(self.word())
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.word() % (high - low + 1)
    }

    pub(super) fn percent(&mut self, share: u64) -> bool {
        self.between(0, 99) < share
    }

    /// One of them, unless there is none.
    pub(super) fn choose<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let last = among.len().checked_sub(1)?;
        among.get(self.between(0, last as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            std::array::from_fn::<u64, 8, _>(|_| random.between(3, 90))
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!(numbers(9).iter().all(|number| (3..=90).contains(number)));
    }
}

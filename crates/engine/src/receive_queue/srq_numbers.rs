//! The numbers by which XRC requests name shared receive queues. They are random, like queue pair
//! numbers.

use std::collections::{HashMap, VecDeque};

use wire::Srqn;

use super::SharedReceiveQueue;
use crate::random::Random;
use crate::slab::Id;

/// Shared receive queue numbers have as many bits as queue pair numbers.
const NUMBER_BITS: u32 = 24;

/// How many numbers are quarantined after their queues were destroyed, so that a late request does
/// not reach another queue.
const MAX_QUARANTINED: usize = 4096;

/// Shared receive queues by number.
pub(crate) struct SrqNumbers {
    /// `None` while the number is quarantined.
    queues: HashMap<Srqn, Option<Id<SharedReceiveQueue>>>,
    /// Quarantined numbers, oldest first.
    quarantined: VecDeque<Srqn>,
    random: Random,
}

impl SrqNumbers {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            queues: HashMap::new(),
            quarantined: VecDeque::new(),
            random,
        }
    }

    /// Draws a free number. There are at most about a million queues, so few draws find one.
    pub(crate) fn draw(&mut self) -> Srqn {
        loop {
            let number = Srqn::new(self.random.bits(NUMBER_BITS));
            // Programs use 0 for "no number".
            if number.value() != 0 && !self.queues.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn assign(&mut self, number: Srqn, queue: Id<SharedReceiveQueue>) {
        self.queues.insert(number, Some(queue));
    }

    #[inline]
    pub(crate) fn find(&self, number: Srqn) -> Option<Id<SharedReceiveQueue>> {
        *self.queues.get(&number)?
    }

    /// How many numbers are in use or quarantined.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn release(&mut self, number: Srqn) {
        self.queues.insert(number, None);
        self.quarantined.push_back(number);
        if self.quarantined.len() > MAX_QUARANTINED
            && let Some(oldest) = self.quarantined.pop_front()
        {
            self.queues.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn released_number_is_quarantined_before_it_is_used_again() {
        let mut numbers = SrqNumbers::new(Random::new([3; 32]));
        let released: Vec<Srqn> = (0..=MAX_QUARANTINED)
            .map(|_| {
                let number = numbers.draw();
                numbers.release(number);
                number
            })
            .collect();
        let distinct: HashSet<&Srqn> = released.iter().collect();
        assert_eq!(distinct.len(), MAX_QUARANTINED + 1);
        assert_eq!(numbers.find(released[MAX_QUARANTINED]), None);
        assert!(
            !numbers.queues.contains_key(&released[0]),
            "the oldest number leaves quarantine"
        );
        assert_eq!(numbers.queues.len(), MAX_QUARANTINED);
    }

    #[test]
    fn all_bits_of_numbers_vary() {
        let mut numbers = SrqNumbers::new(Random::new([3; 32]));
        let all: Vec<u32> = (0..64).map(|_| numbers.draw().value()).collect();
        assert_eq!(all.iter().fold(0, |seen, number| seen | number), 0xff_ffff);
        assert_eq!(all.iter().fold(u32::MAX, |seen, number| seen & number), 0);
    }
}

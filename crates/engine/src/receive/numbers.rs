//! The numbers by which XRC requests name shared receive queues: random, as queue pair numbers are.

use std::collections::{HashMap, VecDeque};

use wire::Qpn;

use super::SharedReceiveQueue;
use crate::random::Random;
use crate::table::Id;

/// Shared receive queue numbers have as many bits as queue pair numbers.
const NUMBER_BITS: u32 = 24;

/// How many numbers rest after their queues were destroyed: a late request finds no other queue.
const RESTING: usize = 4096;

/// Which queue has which number.
pub(crate) struct ReceiveNumbers {
    /// Nothing while the number rests.
    queues: HashMap<Qpn, Option<Id<SharedReceiveQueue>>>,
    /// Numbers that rest, the longest first.
    resting: VecDeque<Qpn>,
    random: Random,
}

impl ReceiveNumbers {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            queues: HashMap::new(),
            resting: VecDeque::new(),
            random,
        }
    }

    /// A number that nobody has. There are at most a million queues, so that a draw meets one soon.
    pub(crate) fn draw(&mut self) -> Qpn {
        loop {
            let number = Qpn::new(self.random.bits(NUMBER_BITS));
            // Programs put 0 where they have none.
            if number.value() != 0 && !self.queues.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn assign(&mut self, number: Qpn, queue: Id<SharedReceiveQueue>) {
        self.queues.insert(number, Some(queue));
    }

    #[inline]
    pub(crate) fn find(&self, number: Qpn) -> Option<Id<SharedReceiveQueue>> {
        *self.queues.get(&number)?
    }

    /// How many numbers are in use or rest.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn release(&mut self, number: Qpn) {
        self.queues.insert(number, None);
        self.resting.push_back(number);
        if self.resting.len() > RESTING
            && let Some(rested) = self.resting.pop_front()
        {
            self.queues.remove(&rested);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_number_rests_before_it_is_used_again() {
        let mut numbers = ReceiveNumbers::new(Random::new([3; 32]));
        let released: Vec<Qpn> = (0..=RESTING)
            .map(|_| {
                let number = numbers.draw();
                numbers.release(number);
                number
            })
            .collect();
        let distinct: HashSet<&Qpn> = released.iter().collect();
        assert_eq!(distinct.len(), RESTING + 1);
        assert_eq!(numbers.find(released[RESTING]), None);
        assert!(!numbers.queues.contains_key(&released[0]), "it has rested");
        assert_eq!(numbers.queues.len(), RESTING);
    }

    #[test]
    fn all_bits_of_a_number_vary() {
        let mut numbers = ReceiveNumbers::new(Random::new([3; 32]));
        let all: Vec<u32> = (0..64).map(|_| numbers.draw().value()).collect();
        assert_eq!(all.iter().fold(0, |seen, number| seen | number), 0xff_ffff);
        assert_eq!(all.iter().fold(u32::MAX, |seen, number| seen & number), 0);
    }
}

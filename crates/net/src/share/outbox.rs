//! Packets for members whose mailbox is full just now.

use std::collections::{HashSet, VecDeque};
use std::io;

use super::block::NumberBlock;

/// How many bytes may wait. Beyond that a packet is lost, as on any network.
const CAPACITY: usize = 1 << 20;

/// What is in one datagram to a mailbox.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) owner: NumberBlock,
    pub(super) packets: u64,
    pub(super) bytes: Vec<u8>,
}

/// What became of letters: how many packets were in them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

/// Letters that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    letters: VecDeque<Letter>,
    bytes: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Puts a letter behind the others.
    pub(super) fn push(&mut self, letter: Letter) -> Outcome {
        if self.bytes + letter.bytes.len() > CAPACITY {
            return Outcome {
                delivered: 0,
                lost: letter.packets,
            };
        }
        self.bytes += letter.bytes.len();
        self.letters.push_back(letter);
        Outcome::default()
    }

    /// Delivers what can be delivered. Letters to one owner keep their order, and who does not empty
    /// his mailbox does not hold up the others.
    pub(super) fn flush(&mut self, mut deliver: impl FnMut(&Letter) -> io::Result<()>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut full = HashSet::new();
        self.letters.retain(|letter| {
            if full.contains(&letter.owner) {
                return true;
            }
            match deliver(letter) {
                Ok(()) => outcome.delivered += letter.packets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    full.insert(letter.owner);
                    return true;
                }
                Err(_) => outcome.lost += letter.packets,
            }
            self.bytes -= letter.bytes.len();
            false
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(owner: u32, text: &str) -> Letter {
        Letter {
            owner: NumberBlock::new(owner << 12, 12).unwrap(),
            packets: 1,
            bytes: text.into(),
        }
    }

    /// Delivers with the answers that `answer` gives for each owner; what was delivered.
    fn flush(outbox: &mut Outbox, answer: impl Fn(u32) -> Option<io::ErrorKind>) -> Vec<String> {
        let mut seen = Vec::new();
        outbox.flush(|letter| match answer(letter.owner.first() >> 12) {
            Some(kind) => Err(kind.into()),
            None => {
                seen.push(String::from_utf8(letter.bytes.clone()).unwrap());
                Ok(())
            }
        });
        seen
    }

    #[test]
    fn one_full_mailbox_holds_up_nobody_else() {
        let mut outbox = Outbox::default();
        for (owner, text) in [(1, "a"), (2, "b"), (1, "c"), (3, "d")] {
            assert_eq!(outbox.push(letter(owner, text)), Outcome::default());
        }
        let answer = |owner| (owner == 1).then_some(io::ErrorKind::WouldBlock);
        assert_eq!(flush(&mut outbox, answer), ["b", "d"]);
        assert_eq!(flush(&mut outbox, |_| None), ["a", "c"]);
        assert!(outbox.is_empty() && outbox.bytes == 0);
    }

    #[test]
    fn letters_to_the_dead_and_beyond_the_room_are_lost() {
        let mut outbox = Outbox::default();
        outbox.push(letter(1, "a"));
        assert_eq!(
            flush(&mut outbox, |_| Some(io::ErrorKind::NotFound)),
            [""; 0]
        );
        assert!(outbox.is_empty());
        let half = "x".repeat(CAPACITY / 2);
        assert_eq!(outbox.push(letter(1, &half)).lost, 0);
        assert_eq!(outbox.push(letter(1, &half)).lost, 0);
        assert_eq!(outbox.push(letter(1, "y")).lost, 1);
    }

    #[test]
    fn letters_to_one_owner_keep_their_order() {
        let mut outbox = Outbox::default();
        for text in ["a", "b"] {
            outbox.push(letter(1, text));
        }
        // There is no room for the first, and then there is.
        let mut answers = [Err(io::ErrorKind::WouldBlock.into()), Ok(())].into_iter();
        let outcome = outbox.flush(|_| answers.next().expect("two answers"));
        assert_eq!(outcome, Outcome::default());
        assert_eq!(flush(&mut outbox, |_| None), ["a", "b"]);
    }
}

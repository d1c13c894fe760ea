//! Queued packets for members whose mailbox is full.

use std::collections::{HashSet, VecDeque};
use std::io;

use super::number_block::NumberBlock;

/// How many bytes may be queued. Further packets are dropped.
const CAPACITY: usize = 1 << 20;

/// A queued message to a mailbox.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) owner: NumberBlock,
    pub(super) packets: u64,
    pub(super) bytes: Vec<u8>,
}

/// The packets of messages that were delivered or lost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

/// Queued messages, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    messages: VecDeque<QueuedMessage>,
    bytes: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Queues a message.
    pub(super) fn push(&mut self, message: QueuedMessage) -> Outcome {
        if self.bytes + message.bytes.len() > CAPACITY {
            return Outcome {
                delivered: 0,
                lost: message.packets,
            };
        }
        self.bytes += message.bytes.len();
        self.messages.push_back(message);
        Outcome::default()
    }

    /// Delivers as many messages as possible. Messages to one owner keep their order, and a full mailbox does
    /// not delay messages to other owners.
    pub(super) fn flush(
        &mut self,
        mut deliver: impl FnMut(&QueuedMessage) -> io::Result<()>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut full = HashSet::new();
        self.messages.retain(|message| {
            if full.contains(&message.owner) {
                return true;
            }
            match deliver(message) {
                Ok(()) => outcome.delivered += message.packets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    full.insert(message.owner);
                    return true;
                }
                Err(_) => outcome.lost += message.packets,
            }
            self.bytes -= message.bytes.len();
            false
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(owner: u32, text: &str) -> QueuedMessage {
        QueuedMessage {
            owner: NumberBlock::new(owner << 12, 12).unwrap(),
            packets: 1,
            bytes: text.into(),
        }
    }

    /// Delivers with the results that `answer` gives for each owner. Returns what was delivered.
    fn flush(outbox: &mut Outbox, answer: impl Fn(u32) -> Option<io::ErrorKind>) -> Vec<String> {
        let mut seen = Vec::new();
        outbox.flush(|message| match answer(message.owner.first() >> 12) {
            Some(kind) => Err(kind.into()),
            None => {
                seen.push(String::from_utf8(message.bytes.clone()).unwrap());
                Ok(())
            }
        });
        seen
    }

    #[test]
    fn a_full_mailbox_does_not_delay_other_owners() {
        let mut outbox = Outbox::default();
        for (owner, text) in [(1, "a"), (2, "b"), (1, "c"), (3, "d")] {
            assert_eq!(outbox.push(message(owner, text)), Outcome::default());
        }
        let answer = |owner| (owner == 1).then_some(io::ErrorKind::WouldBlock);
        assert_eq!(flush(&mut outbox, answer), ["b", "d"]);
        assert_eq!(flush(&mut outbox, |_| None), ["a", "c"]);
        assert!(outbox.is_empty() && outbox.bytes == 0);
    }

    #[test]
    fn messages_to_dead_owners_or_beyond_the_capacity_are_lost() {
        let mut outbox = Outbox::default();
        outbox.push(message(1, "a"));
        assert_eq!(
            flush(&mut outbox, |_| Some(io::ErrorKind::NotFound)),
            [""; 0]
        );
        assert!(outbox.is_empty());
        let half = "x".repeat(CAPACITY / 2);
        assert_eq!(outbox.push(message(1, &half)).lost, 0);
        assert_eq!(outbox.push(message(1, &half)).lost, 0);
        assert_eq!(outbox.push(message(1, "y")).lost, 1);
    }

    #[test]
    fn messages_to_one_owner_keep_their_order() {
        let mut outbox = Outbox::default();
        for text in ["a", "b"] {
            outbox.push(message(1, text));
        }
        // The mailbox is full at the first attempt and has room at the second.
        let mut answers = [Err(io::ErrorKind::WouldBlock.into()), Ok(())].into_iter();
        let outcome = outbox.flush(|_| answers.next().expect("two answers"));
        assert_eq!(outcome, Outcome::default());
        assert_eq!(flush(&mut outbox, |_| None), ["a", "b"]);
    }
}

//! Messages of requests that have ended, until the program polls a completion that covers them.
//!
//! The device needs their memory no more, but the program cannot know that yet. They are kept only if the program is
//! checked.

use std::collections::VecDeque;

use crate::checksums::Checksums;
use crate::memory::Segments;

/// The ended requests of one send queue that the program knows nothing of, oldest first.
#[derive(Debug, Default)]
pub(super) struct Unpolled {
    requests: VecDeque<Ended>,
    /// The number of the oldest, counted from the creation or the reset of the queue pair.
    first: u64,
}

#[derive(Debug)]
struct Ended {
    message: Option<Message>,
    /// Whether it has a completion.
    completes: bool,
}

/// A message with its checksums when it was posted.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) segments: Segments,
    pub(super) checksums: Box<Checksums>,
}

impl Unpolled {
    /// Adds the newest ended request. Forgets the oldest ones of a program that polls no completion.
    pub(super) fn push(&mut self, message: Option<Message>, completes: bool, capacity: u32) {
        self.requests.push_back(Ended { message, completes });
        if self.requests.len() > 2 * capacity as usize + 16 {
            self.requests.pop_front();
            self.first += 1;
        }
    }

    /// Removes the requests that the next completion covers. Returns their messages with their numbers.
    pub(super) fn take_covered(&mut self) -> Vec<(u64, Message)> {
        let mut covered = Vec::new();
        while let Some(ended) = self.requests.pop_front() {
            covered.extend(ended.message.map(|message| (self.first, message)));
            self.first += 1;
            if ended.completes {
                break;
            }
        }
        covered
    }

    /// Removes the messages of all requests. Returns them with their numbers.
    pub(super) fn take_messages(&mut self) -> Vec<(u64, Message)> {
        let messages = (self.first..).zip(&mut self.requests);
        let messages = messages.filter_map(|(number, ended)| Some((number, ended.message.take()?)));
        messages.collect()
    }
}

//! The messages of one queue pair, and who knows that they have been executed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::clock::{Clock, Moment};
use super::record::QueuePairName;

/// How many posts, and how many polls, of each queue pair are remembered.
const MAX_REMEMBERED: usize = 1024;

/// The messages that a queue pair sends.
#[derive(Debug)]
pub(super) struct History {
    pub(super) process: u64,
    pub(super) peer: QueuePairName,
    /// The newest posts, with consecutive numbers.
    posts: VecDeque<Post>,
    first_post: u64,
    by_completion: Known,
    by_message: Known,
}

/// A request of a queue pair.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) operation: u8,
    pub(super) id: u64,
    /// What its process knew when it posted it.
    pub(super) moment: Moment,
    /// What those that changed the same word before knew, if it is an atomic that was executed.
    pub(super) result: Option<Arc<Clock>>,
}

/// When a process learned that all messages up to a number have been executed, oldest first.
#[derive(Debug, Default)]
struct Known {
    moments: VecDeque<KnownUpTo>,
    /// All before this number are forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct KnownUpTo {
    message: u64,
    process: u64,
    own: u64,
}

impl History {
    pub(super) fn new(process: u64, peer: QueuePairName) -> Self {
        Self {
            process,
            peer,
            posts: VecDeque::new(),
            first_post: 0,
            by_completion: Known::default(),
            by_message: Known::default(),
        }
    }

    pub(super) fn add_post(&mut self, message: u64, post: Post) {
        if message != self.first_post.saturating_add(self.posts.len() as u64) {
            // Records were lost.
            self.posts.clear();
            self.first_post = message;
        }
        if self.posts.len() >= MAX_REMEMBERED {
            self.posts.pop_front();
            self.first_post += 1;
        }
        self.posts.push_back(post);
    }

    pub(super) fn post(&self, message: u64) -> Option<&Post> {
        let index = message.checked_sub(self.first_post)?;
        self.posts.get(usize::try_from(index).ok()?)
    }

    pub(super) fn post_mut(&mut self, message: u64) -> Option<&mut Post> {
        let index = message.checked_sub(self.first_post)?;
        self.posts.get_mut(usize::try_from(index).ok()?)
    }

    /// The remembered posts up to a number that no completion covered before.
    pub(super) fn newly_polled(&self, message: u64) -> impl Iterator<Item = &Post> {
        let from = self.by_completion.next().max(self.first_post);
        (from..=message).map_while(|message| self.post(message))
    }

    /// The process of the requests knows that all up to this one have been executed.
    pub(super) fn polled(&mut self, message: u64, own: u64) {
        self.by_completion.add(message, self.process, own);
    }

    /// The target knows that all up to this message have been executed.
    pub(super) fn received(&mut self, message: u64, process: u64, own: u64) {
        self.by_message.add(message, process, own);
    }

    /// Whether the end of a request was known at this moment, by a completion or by a later message.
    pub(super) fn is_known(&self, message: u64, at: &Moment) -> bool {
        self.by_completion.is_known(message, at) || self.by_message.is_known(message, at)
    }
}

impl Known {
    /// The first message of which nothing is known.
    fn next(&self) -> u64 {
        let newest = self.moments.back().map(|it| it.message);
        newest.map_or(self.forgotten, |it| it.saturating_add(1))
    }

    fn add(&mut self, message: u64, process: u64, own: u64) {
        if message < self.next() {
            return;
        }
        if self.moments.len() >= MAX_REMEMBERED
            && let Some(oldest) = self.moments.pop_front()
        {
            self.forgotten = oldest.message.saturating_add(1);
        }
        self.moments.push_back(KnownUpTo {
            message,
            process,
            own,
        });
    }

    /// What is forgotten counts as known.
    fn is_known(&self, message: u64, at: &Moment) -> bool {
        let index = self.moments.partition_point(|it| it.message < message);
        let known = self.moments.get(index);
        message < self.forgotten || known.is_some_and(|it| at.covers(it.process, it.own))
    }
}

//! A queue of delayed packets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// A queue of items with the time at which each is due.
///
/// Items that are due at the same time leave in the order in which they were added, so that a
/// constant delay does not reorder packets.
#[derive(Debug)]
pub struct DelayLine<T> {
    held: BinaryHeap<Reverse<Held<T>>>,
    arrivals: u64,
}

#[derive(Debug)]
struct Held<T> {
    due: Instant,
    arrival: u64,
    item: T,
}

impl<T> DelayLine<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds `item` back until `due`.
    pub fn push(&mut self, due: Instant, item: T) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.held.push(Reverse(Held { due, arrival, item }));
    }

    /// When to call [`poll_due`](Self::poll_due) again; `None` if nothing is held back.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    /// The next item that is due at `now`. Call it until it returns `None`.
    #[must_use]
    pub fn poll_due(&mut self, now: Instant) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.pop()
    }

    /// The item that is due next, whether or not it is due yet.
    #[must_use]
    pub fn pop(&mut self) -> Option<T> {
        self.held.pop().map(|Reverse(held)| held.item)
    }

    /// How many items are held back.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<T> Default for DelayLine<T> {
    fn default() -> Self {
        DelayLine {
            held: BinaryHeap::new(),
            arrivals: 0,
        }
    }
}

impl<T> Held<T> {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.arrival)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

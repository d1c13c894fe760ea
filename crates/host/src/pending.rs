//! Connection requests that arrive before anybody listens.
//!
//! Two programs often race: one connects while the other is about to listen. A kernel takes long
//! enough to send a request for the listener to win; here it takes microseconds. So a request that
//! nobody listens for waits before it is rejected: long enough for a listener on a busy machine, and
//! shorter than the four seconds after which its sender repeats it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cm::Recipient;
use engine::Arrival;

/// How often the owner of a request is looked up, and the time between two look-ups.
const ATTEMPTS: u32 = 500;
const INTERVAL: Duration = Duration::from_millis(2);

/// How many messages may wait for a look-up. Strangers can fill this queue, so further messages are
/// dropped; their senders repeat them.
const MAX_UNRESOLVED: usize = 256;

/// How many requests may wait for a listener. Further ones are rejected at once.
const MAX_PENDING: usize = 64;

/// A management datagram whose owner is being looked up.
#[derive(Debug, Clone)]
pub struct Message {
    /// How it arrived.
    pub arrival: Arrival,
    /// The packet, from the BTH on.
    pub packet: Vec<u8>,
    /// Which process must get it.
    pub recipient: Recipient,
    attempts_left: u32,
}

impl Message {
    pub(crate) fn new(arrival: Arrival, packet: &[u8], recipient: Recipient) -> Self {
        Self {
            arrival,
            packet: packet.to_vec(),
            recipient,
            attempts_left: ATTEMPTS,
        }
    }
}

/// Messages whose owner must be looked up, now or later.
#[derive(Default)]
pub(crate) struct Pending {
    unresolved: VecDeque<Message>,
    /// Requests for a service that nobody serves yet, by the time of the next look-up. Every request
    /// waits equally long, so the queue is sorted.
    waiting: VecDeque<(Instant, Message)>,
    /// How many messages were dropped because [`MAX_UNRESOLVED`] others waited.
    pub(crate) dropped: u64,
}

impl Pending {
    /// Takes a message that has just arrived.
    pub(crate) fn add(&mut self, message: Message) {
        if self.unresolved.len() >= MAX_UNRESOLVED {
            self.dropped += 1;
            return;
        }
        self.unresolved.push_back(message);
    }

    /// The next message whose owner must be looked up now.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Message> {
        if let Some(message) = self.unresolved.pop_front() {
            return Some(message);
        }
        let (at, _) = self.waiting.front()?;
        if *at > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, message)| message)
    }

    /// Lets a request wait for its listener; gives it back if it has waited long enough or if too
    /// many others wait.
    pub(crate) fn wait(&mut self, now: Instant, mut message: Message) -> Result<(), Message> {
        let Some(left) = message.attempts_left.checked_sub(1) else {
            return Err(message);
        };
        if self.waiting.len() >= MAX_PENDING {
            return Err(message);
        }
        message.attempts_left = left;
        self.waiting.push_back((now + INTERVAL, message));
        Ok(())
    }

    /// When the next request that waits is looked up again. Messages that have just arrived are
    /// looked up at once and need no timer.
    pub(crate) fn next_lookup(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }
}

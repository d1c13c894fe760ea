//! Connection requests that arrive before a listener exists.
//!
//! Two programs often race: one connects while the other is about to listen. A kernel sends a
//! request slowly enough for the listener to win; this host sends it within microseconds. So a
//! request without a listener waits before it is rejected: long enough for a listener on a busy
//! machine, and shorter than the four seconds after which its sender repeats it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cm::Recipient;
use engine::Arrival;

/// How often the owner of a request is looked up before the request is rejected.
const MAX_LOOKUPS: u32 = 500;
/// The time between two look-ups of a request. With [`MAX_LOOKUPS`] it makes one second.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(2);

/// How many messages may wait for a look-up. Any sender can fill this queue, so further messages
/// are dropped. Their senders repeat them.
const MAX_UNRESOLVED: usize = 256;

/// How many requests may wait for a listener. Further ones are rejected at once.
const MAX_PENDING: usize = 64;

/// A management datagram whose owner is being looked up.
#[derive(Debug, Clone)]
pub struct Message {
    /// The addresses and IP fields of the packet.
    pub arrival: Arrival,
    /// The packet, from the BTH to the ICRC.
    pub packet: Vec<u8>,
    /// Which process the message is for.
    pub recipient: Recipient,
    lookups_left: u32,
}

impl Message {
    pub(crate) fn new(arrival: Arrival, packet: &[u8], recipient: Recipient) -> Self {
        Self {
            arrival,
            packet: packet.to_vec(),
            recipient,
            lookups_left: MAX_LOOKUPS,
        }
    }
}

/// Messages whose owner must be looked up now or later.
#[derive(Default)]
pub(crate) struct Pending {
    unresolved: VecDeque<Message>,
    /// Requests for a service without a listener, by the time of their next look-up. Every request
    /// waits equally long, so the queue is sorted.
    waiting: VecDeque<(Instant, Message)>,
    /// How many messages were dropped because [`MAX_UNRESOLVED`] messages waited.
    pub(crate) dropped: u64,
}

impl Pending {
    /// Adds a message that has just arrived.
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

    /// Keeps a request that waits for a listener. Returns it as `Err` if it has waited long enough
    /// or if [`MAX_PENDING`] requests wait.
    pub(crate) fn wait(&mut self, now: Instant, mut message: Message) -> Result<(), Message> {
        let Some(left) = message.lookups_left.checked_sub(1) else {
            return Err(message);
        };
        if self.waiting.len() >= MAX_PENDING {
            return Err(message);
        }
        message.lookups_left = left;
        self.waiting.push_back((now + LOOKUP_INTERVAL, message));
        Ok(())
    }

    /// When the next waiting request is looked up again. Messages that have just arrived are looked
    /// up at once and need no timer.
    pub(crate) fn next_lookup(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }
}

//! What happened, in numbers.

use wire::cm::Message;

/// How many kinds of messages there are, and the attribute of the first.
const KINDS: usize = 11;
const FIRST: u16 = 0x10;

/// One counter for each kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerMessage([u64; KINDS]);

impl PerMessage {
    /// The counter of the messages with this attribute; 0 if there is no such message.
    pub fn of(&self, attribute: u16) -> u64 {
        let index = usize::from(attribute.wrapping_sub(FIRST));
        self.0.get(index).copied().unwrap_or_default()
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn count(&mut self, message: &Message) {
        self.count_attribute(message.attribute());
    }

    pub(crate) fn count_attribute(&mut self, attribute: u16) {
        self.0[usize::from(attribute - FIRST)] += 1;
    }
}

/// Counters of one manager; they only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages sent, repetitions included.
    pub sent: PerMessage,
    /// Messages received.
    pub received: PerMessage,
    /// Messages received that had been received before.
    pub duplicates: PerMessage,
    /// Messages sent again because no answer came.
    pub repeated: u64,
    /// Messages about connections that do not exist, or not in this state.
    pub unmatched: u64,
    /// Messages about a connection from an address that is not the peer's.
    pub wrong_source: u64,
    /// Datagrams that are no management datagrams, or not for us.
    pub malformed: u64,
    /// Management datagrams of our class with an attribute that is no message. They ask for no
    /// answer of their kind (method Send), so they get none.
    pub unknown_attribute: u64,
    /// Requests for a service that nobody listens on.
    pub no_listener: u64,
    /// Requests dropped because the listener's backlog was full; the peer will repeat them.
    pub backlog_full: u64,
    /// Requests dropped because there were too many ids.
    pub too_many_ids: u64,
    /// Requests dropped because too many were half-open, from their address or in all.
    pub half_open_full: u64,
    /// Requests refused because their queue pair is already connected.
    pub stale: u64,
    /// Answers not sent because the driver did not fetch those before them.
    pub outbox_full: u64,
}

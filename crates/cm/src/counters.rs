//! Counters.

use wire::cm::Message;

/// The number of message kinds, and the attribute ID of the first.
const KINDS: usize = 11;
const FIRST: u16 = 0x10;

/// One counter for each kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerMessage([u64; KINDS]);

impl PerMessage {
    /// The counter of the messages with this attribute ID; 0 if there is no such message.
    pub fn of(&self, attribute: u16) -> u64 {
        let index = usize::from(attribute.wrapping_sub(FIRST));
        self.0.get(index).copied().unwrap_or_default()
    }

    /// All counters, in the order of the attribute IDs: REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR REQ, SIDR REP, LAP, APR.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.into_iter()
    }

    /// The sum over all kinds.
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
    /// Messages sent, including retransmissions.
    pub sent: PerMessage,
    /// Messages received.
    pub received: PerMessage,
    /// Messages received that had been received before.
    pub duplicates: PerMessage,
    /// Messages retransmitted because no response came.
    pub retransmitted: PerMessage,
    /// Messages that match no connection, or not in its phase.
    pub unmatched: u64,
    /// Messages for a connection from an address that is not the peer's.
    pub wrong_source: u64,
    /// Datagrams that are not management datagrams of the connection manager's class.
    pub malformed: u64,
    /// Management datagrams of our class with an unknown attribute ID. The method Send asks for no
    /// response, so none is sent.
    pub unknown_attribute: u64,
    /// Requests for a service without a listener.
    pub no_listener: u64,
    /// Requests dropped because the listener's backlog was full; the peer retransmits them.
    pub backlog_full: u64,
    /// Requests dropped because there were too many ids.
    pub too_many_ids: u64,
    /// Requests dropped because too many were half-open, from their source or in total.
    pub half_open_full: u64,
    /// Requests rejected because their queue pair is already connected.
    pub stale: u64,
    /// Datagrams dropped because the driver did not fetch the previous ones.
    pub outbox_full: u64,
}

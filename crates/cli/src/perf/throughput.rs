//! Throughput: the messages of a bandwidth measurement, and their rate.

use serde::{Deserialize, Serialize};

/// The messages of one measurement, as one side counted them.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct MessageCounts {
    /// Sent messages that completed.
    pub(super) messages: u64,
    /// From the first post to the last completion.
    pub(super) seconds: f64,
    /// The rate of the fastest part, in messages per second.
    pub(super) peak: f64,
    /// Received messages.
    pub(super) received: u64,
    /// From the first to the last received message.
    pub(super) receive_seconds: f64,
}

impl MessageCounts {
    /// The rate of sent messages per second.
    pub(super) fn rate(&self) -> f64 {
        rate(self.messages, self.seconds)
    }

    /// The rate of received messages per second.
    pub(super) fn receive_rate(&self) -> f64 {
        rate(self.received, self.receive_seconds)
    }

    /// The sum of two measurements.
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            seconds: self.seconds + other.seconds,
            peak: self.peak.max(other.peak),
            received: self.received + other.received,
            receive_seconds: self.receive_seconds + other.receive_seconds,
        }
    }
}

/// The rate, in messages per second.
pub(super) fn rate(messages: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        messages as f64 / seconds
    } else {
        0.0
    }
}

/// The counts of both sides of a bandwidth measurement.
pub(super) struct Seen {
    pub(super) client: MessageCounts,
    pub(super) server: MessageCounts,
    /// Whether received messages count instead of sent ones, because messages may be lost.
    pub(super) arrivals: bool,
    pub(super) bidirectional: bool,
}

impl Seen {
    /// The rate of both directions together, in messages per second.
    pub(super) fn rate(&self) -> f64 {
        match (self.arrivals, self.bidirectional) {
            (false, false) => self.client.rate(),
            (false, true) => self.client.rate() + self.server.rate(),
            (true, false) => self.server.receive_rate(),
            (true, true) => self.server.receive_rate() + self.client.receive_rate(),
        }
    }

    /// The peak rate.
    pub(super) fn peak(&self) -> f64 {
        match (self.arrivals, self.bidirectional) {
            // The sending rate means nothing if messages are lost.
            (true, _) => self.rate(),
            (false, true) => self.client.peak + self.server.peak,
            (false, false) => self.client.peak,
        }
    }

    /// The percentage of lost messages, if messages can be lost.
    pub(super) fn lost(&self) -> Option<f64> {
        if !self.arrivals {
            return None;
        }
        let sent = self.client.messages + self.server.messages;
        let arrived = self.client.received + self.server.received;
        Some(100.0 * sent.saturating_sub(arrived) as f64 / sent.max(1) as f64)
    }
}

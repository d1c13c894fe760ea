//! Messages that went through: what a measurement of bandwidth finds.

use serde::{Deserialize, Serialize};

/// What went through in one measurement.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Own messages that completed.
    pub(super) messages: u64,
    /// From the first post to the last completion.
    pub(super) seconds: f64,
    /// Messages a second in the best part.
    pub(super) peak: f64,
    /// Messages of the peer's that arrived.
    pub(super) received: u64,
    /// From the first to the last of these.
    pub(super) receive_seconds: f64,
}

impl Flow {
    /// Own messages a second.
    pub(super) fn rate(&self) -> f64 {
        rate(self.messages, self.seconds)
    }

    /// Messages of the peer's a second.
    pub(super) fn receive_rate(&self) -> f64 {
        rate(self.received, self.receive_seconds)
    }

    /// Both measured as one.
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

/// Messages a second.
pub(super) fn rate(messages: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        messages as f64 / seconds
    } else {
        0.0
    }
}

/// What both sides saw of a bandwidth measurement.
pub(super) struct Seen {
    pub(super) client: Flow,
    pub(super) server: Flow,
    /// Whether what arrives counts, and not what is sent: messages may be lost.
    pub(super) arrivals: bool,
    pub(super) bidirectional: bool,
}

impl Seen {
    /// Messages a second, in both directions together.
    pub(super) fn rate(&self) -> f64 {
        match (self.arrivals, self.bidirectional) {
            (false, false) => self.client.rate(),
            (false, true) => self.client.rate() + self.server.rate(),
            (true, false) => self.server.receive_rate(),
            (true, true) => self.server.receive_rate() + self.client.receive_rate(),
        }
    }

    /// The same in the best part.
    pub(super) fn peak(&self) -> f64 {
        match (self.arrivals, self.bidirectional) {
            // How fast something was sent says nothing if it was lost.
            (true, _) => self.rate(),
            (false, true) => self.client.peak + self.server.peak,
            (false, false) => self.client.peak,
        }
    }

    /// The percentage that did not arrive, if that can happen.
    pub(super) fn lost(&self) -> Option<f64> {
        if !self.arrivals {
            return None;
        }
        let sent = self.client.messages + self.server.messages;
        let arrived = self.client.received + self.server.received;
        Some(100.0 * sent.saturating_sub(arrived) as f64 / sent.max(1) as f64)
    }
}

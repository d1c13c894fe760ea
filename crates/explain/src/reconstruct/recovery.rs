//! Recoveries: retransmissions after a loss, an RNR NAK or a timeout.

use super::position::StreamPosition;
use crate::typed_index::{MessageId, PacketId};

/// Why a requester retransmits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// The responder reported a missing packet.
    Sequence {
        /// The packet, if it was captured at its sender.
        lost: Option<PacketId>,
    },
    /// The responder had no receive posted.
    NotReady {
        /// The requested delay, in nanoseconds.
        delay: u64,
    },
    /// Responses with data are missing.
    DataLost {
        /// How many packets.
        missing: u64,
    },
    /// The response is in the capture, but the request is retransmitted.
    ResponseLost {
        /// The response.
        response: Option<PacketId>,
        /// How long the requester waited, in nanoseconds.
        waited: u64,
    },
    /// There was no response.
    Timeout {
        /// How long the requester waited, in nanoseconds.
        waited: u64,
    },
}

impl Cause {
    /// Whether both are of the same kind.
    pub(super) fn is_like(&self, other: &Cause) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A recovery by retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    pub(super) cause: Cause,
    /// The oldest position that is affected.
    pub(super) at: StreamPosition,
    pub(super) message: Option<MessageId>,
    /// The packet that shows it.
    pub(super) packet: PacketId,
    pub(super) time: u64,
    /// How many NAKs the other end sent.
    pub(super) naks: u64,
    /// How many times the oldest position was sent again.
    pub(super) rounds: u64,
    /// How many packets were sent again.
    pub(super) retransmitted: u64,
    /// When the first packet was sent again.
    pub(super) first_retransmission: Option<u64>,
    /// The time of the last event.
    pub(super) last: u64,
    /// When the oldest position was last sent.
    attempt: Option<u64>,
    /// The longest time between two attempts.
    longest_pause: u64,
    /// When it ended. Its retransmissions may still follow.
    pub(super) overcome: Option<u64>,
}

impl Recovery {
    pub(super) fn new(
        cause: Cause,
        at: StreamPosition,
        message: Option<MessageId>,
        packet: PacketId,
        time: u64,
    ) -> Self {
        Recovery {
            cause,
            at,
            message,
            packet,
            time,
            naks: 1,
            rounds: 0,
            retransmitted: 0,
            first_retransmission: None,
            last: time,
            attempt: None,
            longest_pause: match cause {
                Cause::NotReady { delay } => delay,
                Cause::ResponseLost { waited, .. } | Cause::Timeout { waited } => waited,
                Cause::Sequence { .. } | Cause::DataLost { .. } => 0,
            },
            overcome: None,
        }
    }

    /// The other end sent another NAK.
    pub(super) fn add_nak(&mut self, time: u64) {
        self.naks += 1;
        self.last = time;
    }

    /// A packet was sent again.
    pub(super) fn count_retransmission(&mut self, position: StreamPosition, time: u64) {
        self.retransmitted += 1;
        if position == self.at {
            self.rounds += 1;
            let pause = self.attempt.map_or(0, |last| time.saturating_sub(last));
            self.longest_pause = self.longest_pause.max(pause);
            self.attempt = Some(time);
        }
        self.first_retransmission.get_or_insert(time);
        self.last = time;
    }

    /// Whether the sender has been silent for so long that it does not try any more: a timeout may last
    /// four times as long as its code says.
    pub(super) fn is_silent_at(&self, end: u64) -> bool {
        /// Other work may delay an attempt.
        const DELAY: u64 = 10_000_000;
        end.saturating_sub(self.last) > self.longest_pause.saturating_mul(4).saturating_add(DELAY)
    }

    /// Whether data is missing.
    pub(super) fn is_data_lost(&self) -> bool {
        matches!(self.cause, Cause::DataLost { .. })
    }
}

//! Something that went wrong and is not over yet.

use super::stream::Place;
use crate::id::{MessageId, PacketId};

/// Why a requester sends something again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// The responder said that a packet is missing.
    Sequence {
        /// The packet, if it was seen leaving.
        lost: Option<PacketId>,
    },
    /// The responder had no receive posted.
    NotReady {
        /// How long it asked to wait, in nanoseconds.
        delay: u64,
    },
    /// Answers with data are missing.
    DataLost {
        /// How many packets.
        missing: u64,
    },
    /// The answer is in the capture, but is asked for again.
    AnswerLost {
        /// The answer.
        answer: Option<PacketId>,
        /// How long the requester waited, in nanoseconds.
        waited: u64,
    },
    /// Nobody said anything.
    Timeout {
        /// How long the requester waited, in nanoseconds.
        waited: u64,
    },
}

impl Cause {
    /// Whether both are of one kind.
    pub(super) fn is_like(&self, other: &Cause) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Something that is to be overcome by sending again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    pub(super) cause: Cause,
    /// The oldest place that it is about.
    pub(super) at: Place,
    pub(super) message: Option<MessageId>,
    /// The packet that shows it.
    pub(super) packet: PacketId,
    pub(super) time: u64,
    /// How often the other end complained.
    pub(super) complaints: u64,
    /// How often the oldest place was sent again.
    pub(super) rounds: u64,
    /// How many packets were sent again.
    pub(super) repeated: u64,
    /// When the first packet was sent again.
    pub(super) first_repeat: Option<u64>,
    /// When the last thing happened.
    pub(super) last: u64,
    /// When it was over. Packets may still be on their way because of it.
    pub(super) overcome: Option<u64>,
}

impl Trouble {
    pub(super) fn new(
        cause: Cause,
        at: Place,
        message: Option<MessageId>,
        packet: PacketId,
        time: u64,
    ) -> Self {
        Trouble {
            cause,
            at,
            message,
            packet,
            time,
            complaints: 1,
            rounds: 0,
            repeated: 0,
            first_repeat: None,
            last: time,
            overcome: None,
        }
    }

    /// The other end complained again.
    pub(super) fn tell(&mut self, time: u64) {
        self.complaints += 1;
        self.last = time;
    }

    /// A packet was sent again.
    pub(super) fn repeat(&mut self, place: Place, time: u64) {
        self.repeated += 1;
        self.rounds += u64::from(place == self.at);
        self.first_repeat.get_or_insert(time);
        self.last = time;
    }

    /// Whether data is missing.
    pub(super) fn is_data_lost(&self) -> bool {
        matches!(self.cause, Cause::DataLost { .. })
    }
}

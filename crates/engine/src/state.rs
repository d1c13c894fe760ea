//! The states, types and attributes of queue pairs, and the table of transitions.

mod attributes;
mod queue_pair_type;
mod transition;

use std::fmt;

pub use attributes::{Attribute, Attributes};
pub use queue_pair_type::QueuePairType;
pub use transition::ModifyError;

pub(crate) use transition::{check, missing_and_surplus};

/// The state of a queue pair.
///
/// IBA 10.3.1: the state decides which requests a queue pair accepts, and whether it sends and receives.
///
/// The values are those of `enum ibv_qp_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// RESET: the state after creation, which accepts no requests and no packets.
    Reset = 0,
    /// INIT: it accepts receives, but no packets.
    Initialized = 1,
    /// RTR: it executes requests of its peer, but accepts no sends.
    ReadyToReceive = 2,
    /// RTS: it also sends.
    ReadyToSend = 3,
    /// SQD: it finishes the requests that it has begun and begins no others.
    SendQueueDrain = 4,
    /// SQE: a send of an unreliable service failed, and receiving continues.
    SendQueueError = 5,
    /// ERR: all requests are flushed, and packets are ignored.
    Error = 6,
}

impl fmt::Display for State {
    /// Its name in the specification: `RTS`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Initialized => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendQueueDrain => "SQD",
            Self::SendQueueError => "SQE",
            Self::Error => "ERR",
        })
    }
}

impl State {
    /// Whether packets of a peer are accepted.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(
            self,
            Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrain | Self::SendQueueError
        )
    }

    /// Whether the send queue accepts requests. In the error state they are flushed.
    #[must_use]
    pub const fn takes_sends(self) -> bool {
        matches!(
            self,
            Self::ReadyToSend | Self::SendQueueDrain | Self::SendQueueError | Self::Error
        )
    }

    /// Whether requests are sent and their responses accepted.
    #[must_use]
    pub const fn transmits(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrain)
    }
}

//! Events that a device reports without a poll of a particular object.

use wire::Qpn;

use crate::completion::CompletionQueue;
use crate::receive_queue::SharedReceiveQueue;
use crate::slab::Id;

/// An event that the driver must forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A completion queue has a completion that it was armed for.
    Completion(Id<CompletionQueue>),
    /// A watched completion queue received a completion of any kind.
    CompletionAdded(Id<CompletionQueue>),
    /// A queue pair received the first packet of its peer. The connection manager needs no other confirmation of the
    /// connection.
    FirstPacket(Qpn),
    /// An asynchronous event.
    Async(AsyncEvent),
}

/// An event that belongs to no single work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue overran: completions are lost, and its queue pairs are in the error
    /// state.
    CompletionQueueError(Id<CompletionQueue>),
    /// A queue pair met an error that no completion reports.
    QueuePairFatal(Qpn),
    /// A peer sent an invalid request.
    RequestError(Qpn),
    /// A peer requested access to memory that it must not access.
    AccessError(Qpn),
    /// The first packet arrived before the queue pair entered Ready to Send.
    CommunicationEstablished(Qpn),
    /// A draining send queue has finished all requests that it had begun.
    SendQueueDrained(Qpn),
    /// A queue pair in the error state takes no more receives from its shared receive queue.
    LastReceiveReached(Qpn),
    /// A shared receive queue holds fewer receives than its limit.
    SharedReceiveLimit(Id<SharedReceiveQueue>),
    /// The port went down. Packets are lost until it is active again.
    PortError,
    /// The port is active again.
    PortActive,
    /// Another event of a device of the system: its number in `enum ibv_event_type`.
    Other(u32),
}

impl AsyncEvent {
    /// Its number in `enum ibv_event_type`.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::CompletionQueueError(_) => 0,
            Self::QueuePairFatal(_) => 1,
            Self::RequestError(_) => 2,
            Self::AccessError(_) => 3,
            Self::CommunicationEstablished(_) => 4,
            Self::SendQueueDrained(_) => 5,
            Self::PortActive => 9,
            Self::PortError => 10,
            Self::SharedReceiveLimit(_) => 15,
            Self::LastReceiveReached(_) => 16,
            Self::Other(code) => code,
        }
    }

    /// The queue pair that it is about.
    #[must_use]
    pub const fn queue_pair(self) -> Option<Qpn> {
        match self {
            Self::QueuePairFatal(number)
            | Self::RequestError(number)
            | Self::AccessError(number)
            | Self::CommunicationEstablished(number)
            | Self::SendQueueDrained(number)
            | Self::LastReceiveReached(number) => Some(number),
            Self::CompletionQueueError(_)
            | Self::SharedReceiveLimit(_)
            | Self::PortError
            | Self::PortActive
            | Self::Other(_) => None,
        }
    }
}

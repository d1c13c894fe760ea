//! What a device tells without being asked for it.

use wire::Qpn;

use crate::completion::CompletionQueue;
use crate::receive::SharedReceiveQueue;
use crate::table::Id;

/// Something that a driver must pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A completion queue that was armed got the completion it was armed for.
    Completion(Id<CompletionQueue>),
    /// A completion queue that was watched got a completion, of whatever kind.
    Filled(Id<CompletionQueue>),
    /// An asynchronous event.
    Async(AsyncEvent),
}

/// An event that belongs to no single work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue overran: completions are lost, and its queue pairs are in error.
    CompletionQueueError(Id<CompletionQueue>),
    /// A queue pair met an error that no work request can tell.
    QueuePairFatal(Qpn),
    /// A peer sent a request that makes no sense.
    RequestError(Qpn),
    /// A peer wanted memory that it may not touch.
    AccessError(Qpn),
    /// The first packet came before the queue pair was told to send.
    CommunicationEstablished(Qpn),
    /// A send queue that was told to drain is drained.
    SendQueueDrained(Qpn),
    /// A queue pair in error takes nothing more from its shared receive queue.
    LastReceiveReached(Qpn),
    /// A shared receive queue fell below its limit.
    SharedReceiveLimit(Id<SharedReceiveQueue>),
}

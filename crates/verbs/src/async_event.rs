//! Asynchronous events, which belong to no single request.

use std::fmt;
use std::time::Duration;

use engine::AsyncEvent as OfEngine;
use system::verbs;
use wire::Qpn;

use crate::completion_channel::QueueToken;
use crate::context::{Context, Opened};
use crate::shared_receive_queue::ReceiveQueueToken;

/// An event of a device that belongs to no single request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overran: completions are lost, and its queue pairs are in the error state.
    CompletionQueueError(QueueToken),
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
    SharedReceiveLimit(ReceiveQueueToken),
    /// The port went down. Packets are lost until it is active again.
    PortError,
    /// The port is active again.
    PortActive,
    /// Another event of a device of the system: its number in `enum ibv_event_type`.
    Other(u32),
}

impl Context {
    /// The next asynchronous event, if there is one.
    #[must_use]
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        match self.opened() {
            Opened::Software(driver) => driver.poll_event().map(AsyncEvent::of_software),
            Opened::System(_) => self.wait_event(Duration::ZERO),
        }
    }

    /// Waits for the next asynchronous event, at most `timeout`.
    #[must_use]
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        match self.opened() {
            Opened::Software(driver) => {
                let event = driver.wait_event(driver::clock::deadline(timeout));
                event.map(AsyncEvent::of_software)
            }
            Opened::System(system) => {
                let event = system.context.wait_event(timeout);
                event.map(AsyncEvent::of_system)
            }
        }
    }
}

impl AsyncEvent {
    /// An event of one of our devices.
    pub(crate) fn of_software(event: OfEngine) -> Self {
        match event {
            OfEngine::CompletionQueueError(queue) => {
                Self::CompletionQueueError(QueueToken(crate::completion_queue::token(queue)))
            }
            OfEngine::QueuePairFatal(number) => Self::QueuePairFatal(number),
            OfEngine::RequestError(number) => Self::RequestError(number),
            OfEngine::AccessError(number) => Self::AccessError(number),
            OfEngine::CommunicationEstablished(number) => Self::CommunicationEstablished(number),
            OfEngine::SendQueueDrained(number) => Self::SendQueueDrained(number),
            OfEngine::LastReceiveReached(number) => Self::LastReceiveReached(number),
            OfEngine::SharedReceiveLimit(queue) => {
                Self::SharedReceiveLimit(ReceiveQueueToken::of_software(queue))
            }
            OfEngine::PortError => Self::PortError,
            OfEngine::PortActive => Self::PortActive,
            OfEngine::Other(number) => Self::Other(number),
        }
    }

    /// An event of a device of the system.
    pub(crate) fn of_system(event: verbs::AsyncEvent) -> Self {
        match event {
            verbs::AsyncEvent::CompletionQueueError(token) => {
                Self::CompletionQueueError(QueueToken(token))
            }
            verbs::AsyncEvent::SharedReceiveLimit(token) => {
                Self::SharedReceiveLimit(ReceiveQueueToken(token))
            }
            verbs::AsyncEvent::Other(event) => Self::of_software(event),
        }
    }
}

/// What happened, in words.
impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue_pair =
            |number: &Qpn, what: &str| format!("queue pair {:#x} {what}", number.value());
        let text = match self {
            Self::CompletionQueueError(_) => "a completion queue overran".into(),
            Self::QueuePairFatal(number) => queue_pair(number, "failed"),
            Self::RequestError(number) => queue_pair(number, "received an invalid request"),
            Self::AccessError(number) => queue_pair(number, "received a request without the right"),
            Self::CommunicationEstablished(number) => {
                queue_pair(number, "received its first packet")
            }
            Self::SendQueueDrained(number) => queue_pair(number, "has drained its send queue"),
            Self::LastReceiveReached(number) => queue_pair(number, "has used its last receive"),
            Self::SharedReceiveLimit(_) => "a shared receive queue has few receives left".into(),
            Self::PortError => "the port went down".into(),
            Self::PortActive => "the port is active again".into(),
            Self::Other(number) => format!("event {number} of the device"),
        };
        f.write_str(&text)
    }
}

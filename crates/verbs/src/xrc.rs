//! Extended reliable connections (XRC): one connection for all processes of a machine.
//!
//! Each request of the initiator names the shared receive queue of its message. The target has no queue of
//! its own.

use engine::{ModifyError, ObjectError, PostError, QueuePairType, Segment, SharedReceiveInit};
use system::verbs;
use wire::Srqn;

use crate::completion_queue::{CompletionQueue, Reservation};
use crate::error::SetupError;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::{Endpoint, Handle, PreparedQueuePair, QueuePairBuilder};
use crate::request::Request;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::xrc_domain::XrcDomain;

/// A shared receive queue that peers address by its number.
#[derive(Debug)]
pub struct XrcReceiveQueue {
    // Dropped before the objects that it uses.
    queue: SharedReceiveQueue,
    number: Srqn,
    _xrc_domain: XrcDomain,
    _completions: Reservation,
}

impl ProtectionDomain {
    /// Creates a receive queue for the targets of an XRC domain. Its receives complete in `completions`.
    pub fn create_xrc_receive_queue(
        &self,
        xrc_domain: &XrcDomain,
        completions: &CompletionQueue,
        capacity: u32,
        max_segments: u32,
    ) -> Result<XrcReceiveQueue, SetupError> {
        let reservation = completions.reserve(capacity)?;
        let queue = match (self.system(), xrc_domain.system(), completions.system()) {
            (Some(domain), Some(xrc_domain), Some(completions)) => {
                let queue = verbs::SharedReceiveQueue::create_for_xrc(
                    domain,
                    xrc_domain,
                    completions,
                    capacity,
                    max_segments,
                )
                .map_err(ObjectError::from)?;
                SharedReceiveQueue::of_system(self, queue, capacity)
            }
            _ => {
                let (_, domain) = self
                    .software("XRC receive queues with objects of our devices")
                    .map_err(ObjectError::from)?;
                let xrc = xrc_domain.id().zip(completions.id());
                let init = SharedReceiveInit {
                    domain,
                    capacity,
                    max_segments,
                    xrc: Some(xrc.ok_or(ObjectError::Unknown)?),
                };
                SharedReceiveQueue::create(self, init)?
            }
        };
        let number = queue.number().ok_or(ObjectError::Unknown)?;
        Ok(XrcReceiveQueue {
            queue,
            number,
            _xrc_domain: xrc_domain.clone(),
            _completions: reservation,
        })
    }
}

impl XrcReceiveQueue {
    /// Its number, for peers.
    #[must_use]
    pub fn number(&self) -> Srqn {
        self.number
    }

    /// Posts a receive into a segment of registered memory, or into several, one after the other.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.queue.post_receive(id, segments)
    }
}

/// An initiator that is not connected yet.
#[derive(Debug)]
pub struct PreparedXrcInitiator(PreparedQueuePair);

/// A connected initiator, which sends.
#[derive(Debug)]
pub struct XrcInitiator(Handle);

/// A target that is not connected yet.
#[derive(Debug)]
pub struct PreparedXrcTarget {
    prepared: PreparedQueuePair,
    domain: XrcDomain,
}

/// A connected target. It must exist for messages to be received.
#[derive(Debug)]
#[must_use = "dropping it destroys the queue pair"]
pub struct XrcTarget {
    _handle: Handle,
    _domain: XrcDomain,
}

impl QueuePairBuilder {
    /// Creates the initiator of an extended reliable connection.
    pub fn create_xrc_initiator(self) -> Result<PreparedXrcInitiator, SetupError> {
        self.prepare(QueuePairType::XrcInitiator)
            .map(PreparedXrcInitiator)
    }

    /// Creates the target of an extended reliable connection.
    pub fn create_xrc_target(self, domain: &XrcDomain) -> Result<PreparedXrcTarget, SetupError> {
        let prepared = self.xrc_domain(domain).prepare(QueuePairType::XrcTarget)?;
        Ok(PreparedXrcTarget {
            prepared,
            domain: domain.clone(),
        })
    }
}

impl PreparedXrcInitiator {
    /// The endpoint for the peer.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.0.endpoint()
    }

    /// Connects it to a target.
    pub fn connect(self, target: Endpoint) -> Result<XrcInitiator, ModifyError> {
        self.0.bring_up(target).map(XrcInitiator)
    }
}

impl XrcInitiator {
    /// Posts a request for the peer's shared receive queue `to`.
    pub fn post_send(&self, to: Srqn, request: Request) -> Result<(), PostError> {
        self.0.post_send(request.naming_receive_queue(to))
    }
}

impl PreparedXrcTarget {
    /// The endpoint for the peer.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.prepared.endpoint()
    }

    /// Connects it to an initiator.
    pub fn connect(self, initiator: Endpoint) -> Result<XrcTarget, ModifyError> {
        Ok(XrcTarget {
            _handle: self.prepared.bring_up(initiator)?,
            _domain: self.domain,
        })
    }
}

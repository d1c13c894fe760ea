//! What two ids have to say to each other, and what their queue pairs must then be told.

use std::net::IpAddr;
use std::time::Duration;

use cm::{Failure, Parameters, QueuePairType};
use engine::Attributes;
use wire::cm::RejectReason;

use super::Identifier;
use crate::rdma_cm::{ConnectionError, attributes};

impl Identifier {
    /// Starts to ask about the path. An event tells how it ended.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.resolve_route(now, id, timeout)?))
    }

    /// Asks the peer for a connection, or for its datagram service.
    pub fn connect(&self, parameters: &Parameters<'_>) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.connect(now, id, parameters)?))
    }

    /// The queue pair is ready: tells the peer so, after its response.
    pub fn establish(&self) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.establish(id)?))
    }

    /// The peer accepted, but the queue pair could not be made ready.
    pub fn connect_failed(&self, failure: Failure) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.connect_failed(id, failure)?))
    }

    /// Agrees to a connection or serves a datagram service.
    pub fn accept(&self, parameters: &Parameters<'_>) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.accept(now, id, parameters)?))
    }

    /// Refuses a connection or a datagram service.
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.reject(now, id, reason, private_data)?))
    }

    /// Ends a connection, or agrees to its end. The queue pair breaks.
    pub fn disconnect(&self) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.disconnect(now, id)?))
    }

    /// A packet has come to its queue pair: the peer must be ready.
    pub fn notify_established(&self, number: wire::Qpn) -> Result<bool, ConnectionError> {
        self.act(|manager, _, _| Ok(manager.notify_established(number)))
    }

    /// Joins a multicast group. An event tells how to reach it.
    pub fn join(&self, group: IpAddr, send_only: bool) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.join(id, group, send_only)?))
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: IpAddr) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.leave(id, group)?))
    }

    /// What its queue pair must be told to become initialized.
    pub fn init_attributes(&self) -> Result<Attributes, ConnectionError> {
        let told = self.act(|manager, _, id| Ok(manager.init_attributes(id)?))?;
        Ok(attributes::init(&told))
    }

    /// What its queue pair must be told to become ready to receive.
    pub fn receive_attributes(&self) -> Result<Attributes, ConnectionError> {
        if self.kind == QueuePairType::Datagram {
            return Ok(attributes::datagram_receive());
        }
        let told = self.act(|manager, _, id| Ok(manager.receive_attributes(id)?))?;
        let context = self.context().ok_or(ConnectionError::NotBound)?;
        Ok(attributes::receive(&context, &told))
    }

    /// What its queue pair must be told to become ready to send.
    pub fn send_attributes(&self) -> Result<Attributes, ConnectionError> {
        if self.kind == QueuePairType::Datagram {
            return Ok(attributes::datagram_send());
        }
        let told = self.act(|manager, _, id| Ok(manager.send_attributes(id)?))?;
        Ok(attributes::send(&told))
    }
}

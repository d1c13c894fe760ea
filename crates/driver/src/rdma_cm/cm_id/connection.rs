//! The messages between two ids, and the resulting attributes of their queue pairs.

use std::net::IpAddr;
use std::time::Duration;

use cm::{Failure, Parameters, ServiceType};
use engine::Attributes;
use wire::cm::RejectReason;

use super::CmId;
use crate::rdma_cm::{CmError, attributes};

impl CmId {
    /// Starts to resolve the route. An event reports the result.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        self.with_manager(|manager, now, id| Ok(manager.resolve_route(now, id, timeout)?))
    }

    /// Asks the peer for a connection, or for its datagram service.
    pub fn connect(&self, parameters: &Parameters<'_>) -> Result<(), CmError> {
        self.with_manager(|manager, now, id| Ok(manager.connect(now, id, parameters)?))
    }

    /// Tells the peer, after its response, that the queue pair is ready.
    pub fn establish(&self) -> Result<(), CmError> {
        self.with_manager(|manager, _, id| Ok(manager.establish(id)?))
    }

    /// Reports that the peer accepted, but the queue pair could not be made ready.
    pub fn connect_failed(&self, failure: Failure) -> Result<(), CmError> {
        self.with_manager(|manager, _, id| Ok(manager.connect_failed(id, failure)?))
    }

    /// Accepts a connection or a request for a datagram service.
    pub fn accept(&self, parameters: &Parameters<'_>) -> Result<(), CmError> {
        self.with_manager(|manager, now, id| Ok(manager.accept(now, id, parameters)?))
    }

    /// Rejects a connection or a request for a datagram service.
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), CmError> {
        self.with_manager(|manager, now, id| Ok(manager.reject(now, id, reason, private_data)?))
    }

    /// Disconnects, or agrees to a disconnection. The queue pair enters the error state.
    pub fn disconnect(&self) -> Result<(), CmError> {
        self.with_manager(|manager, now, id| Ok(manager.disconnect(now, id)?))
    }

    /// Reports that a packet has arrived at its queue pair: the peer must be ready.
    pub fn notify_established(&self, number: wire::Qpn) -> Result<bool, CmError> {
        self.with_manager(|manager, _, _| Ok(manager.notify_established(number)))
    }

    /// Reports the same without the number, for a program whose queue pair is not at the id.
    pub fn notify(&self) -> Result<bool, CmError> {
        self.with_manager(|manager, _, id| Ok(manager.notify(id)?))
    }

    /// Joins a multicast group. An event contains its address.
    pub fn join(&self, group: IpAddr, send_only: bool) -> Result<(), CmError> {
        self.with_manager(|manager, _, id| Ok(manager.join(id, group, send_only)?))
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: IpAddr) -> Result<(), CmError> {
        self.with_manager(|manager, _, id| Ok(manager.leave(id, group)?))
    }

    /// The attributes that move its queue pair to the state INIT.
    pub fn init_attributes(&self) -> Result<Attributes, CmError> {
        let told = self.with_manager(|manager, _, id| Ok(manager.init_attributes(id)?))?;
        Ok(attributes::init(&told))
    }

    /// The attributes that move its queue pair to the state RTR (ready to receive).
    pub fn receive_attributes(&self) -> Result<Attributes, CmError> {
        if self.service_type == ServiceType::Datagram {
            return Ok(attributes::datagram_receive());
        }
        let told = self.with_manager(|manager, _, id| Ok(manager.receive_attributes(id)?))?;
        let driver = self.driver().ok_or(CmError::NotBound)?;
        Ok(attributes::receive(&driver, &told))
    }

    /// The attributes that move its queue pair to the state RTS (ready to send).
    pub fn send_attributes(&self) -> Result<Attributes, CmError> {
        if self.service_type == ServiceType::Datagram {
            return Ok(attributes::datagram_send());
        }
        let told = self.with_manager(|manager, _, id| Ok(manager.send_attributes(id)?))?;
        Ok(attributes::send(&told))
    }
}

//! Datagram (UD) queue pairs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{
    Address, AddressError, Attributes, Destination, MulticastError, PostError, QueuePairType,
    Segment, State,
};
use net::socket::SocketError;
use wire::{Gid, Qpn, QueueKey};

use crate::context::{Context, Opened};
use crate::error::SetupError;
use crate::queue_pair::{Endpoint, Handle, QueuePairBuilder};
use crate::request::Request;
use driver::rdma_cm::{self, Group, PathAttributes, ServiceFound};

/// The destination of datagrams, validated once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressHandle {
    destination: Destination,
}

impl AddressHandle {
    /// The destination `queue_pair` at `gid`, reached from the local GID with index `gid_index`.
    pub fn new(
        context: &Context,
        gid: Gid,
        gid_index: u8,
        queue_pair: Qpn,
        queue_key: QueueKey,
    ) -> Result<Self, AddressError> {
        Self::checked(
            context,
            Destination {
                address: Address::new(gid, gid_index),
                queue_pair,
                queue_key,
            },
        )
    }

    /// The destination of a datagram service that the connection manager has found.
    pub fn from_service(context: &Context, found: &ServiceFound) -> Result<Self, AddressError> {
        let destination = Destination {
            address: address_of(context, &found.path),
            queue_pair: found.remote_qpn,
            queue_key: found.queue_key,
        };
        Self::checked(context, destination)
    }

    /// The destination of a multicast group that the connection manager has joined.
    pub fn from_group(context: &Context, joined: &Group) -> Result<Self, AddressError> {
        let destination = Destination {
            address: address_of(context, &joined.path),
            queue_pair: Qpn::MULTICAST,
            queue_key: joined.queue_key,
        };
        Self::checked(context, destination)
    }

    fn checked(context: &Context, destination: Destination) -> Result<Self, AddressError> {
        let address = &destination.address;
        match context.opened() {
            Opened::Software(driver) => driver.call(|device| device.check_address(address))?,
            Opened::System(system) => check_address(&system.gids, address)?,
        }
        Ok(Self { destination })
    }
}

/// The address at the end of a path.
fn address_of(context: &Context, path: &PathAttributes) -> Address {
    if let Opened::Software(driver) = context.opened() {
        return rdma_cm::address_of(driver, path);
    }
    // A table of a device of the system may have an address twice, for both versions of RoCE. These are the entries of the second.
    let mut entries = context.device().gids.iter();
    let source = entries.find(|entry| entry.gid == path.local_gid);
    Address {
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        service_level: path.service_level,
        ..Address::new(
            path.remote_gid,
            source.map_or(u8::MAX, |entry| entry.index as u8),
        )
    }
}

/// The checks of an address that need no device.
fn check_address(gids: &[Gid], address: &Address) -> Result<(), AddressError> {
    let index = address.source_index;
    let source = gids.get(usize::from(index)).filter(|gid| !gid.is_zero());
    let source = source.ok_or(AddressError::EmptySourceIndex(index))?;
    if address.destination.is_zero() {
        return Err(AddressError::NoDestination);
    }
    let is_ipv4 = |gid: &Gid| gid.ip().is_some_and(|address| address.is_ipv4());
    if is_ipv4(source) == is_ipv4(&address.destination) {
        Ok(())
    } else {
        Err(AddressError::FamilyMismatch {
            source_index: index,
            destination: address.destination,
        })
    }
}

/// A queue pair for datagrams. It needs no connection.
///
/// The first 40 bytes of each receive are for the network header.
#[derive(Debug)]
#[must_use = "dropping it destroys the queue pair"]
pub struct DatagramQueuePair {
    handle: Handle,
    endpoint: Endpoint,
    groups: Mutex<Vec<Gid>>,
}

impl QueuePairBuilder {
    /// Creates a queue pair that accepts datagrams with the Q_Key `key`.
    pub fn create_datagram(self, key: QueueKey) -> Result<DatagramQueuePair, SetupError> {
        let (handle, options) = self.kind(QueuePairType::Ud).create()?;
        let endpoint = handle.endpoint(options.gid_index)?;
        handle.modify(&Attributes {
            state: Some(State::Initialized),
            port: Some(handle.port()),
            partition_index: Some(0),
            queue_key: Some(key),
            ..Attributes::default()
        })?;
        handle.modify(&Attributes {
            state: Some(State::ReadyToReceive),
            ..Attributes::default()
        })?;
        handle.modify(&Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(endpoint.psn),
            ..Attributes::default()
        })?;
        Ok(DatagramQueuePair {
            handle,
            endpoint,
            groups: Mutex::default(),
        })
    }
}

impl DatagramQueuePair {
    /// The endpoint for peers. They also need the Q_Key.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Sends a datagram.
    pub fn post_send(&self, to: &AddressHandle, request: Request) -> Result<(), PostError> {
        self.handle.post_send(request.to(to.destination))
    }

    /// Posts a receive for a datagram and the 40 bytes of its network header.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// Joins a multicast group.
    pub fn join(&self, group: Gid) -> Result<(), JoinGroupError> {
        if let Some(queue_pair) = self.handle.system() {
            return Ok(queue_pair.attach(group).map_err(MulticastError::from)?);
        }
        let number = self.handle.number;
        let driver = self.handle.driver();
        driver.call(|device| device.attach_multicast(number, group))?;
        let mut groups = self.groups();
        if groups.contains(&group) {
            return Ok(());
        }
        let joined = driver.join(group);
        if joined.is_ok() {
            groups.push(group);
        }
        drop(groups);
        if joined.is_err() {
            // Otherwise it could leave the group, and another queue pair would lose its datagrams.
            let _ = driver.call(|device| device.detach_multicast(number, group));
        }
        Ok(joined?)
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: Gid) -> Result<(), MulticastError> {
        if let Some(queue_pair) = self.handle.system() {
            return Ok(queue_pair.detach(group)?);
        }
        let number = self.handle.number;
        let driver = self.handle.driver();
        driver.call(|device| device.detach_multicast(number, group))?;
        self.groups().retain(|other| *other != group);
        driver.leave(group);
        Ok(())
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Gid>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DatagramQueuePair {
    fn drop(&mut self) {
        let groups = std::mem::take(&mut *self.groups());
        for group in groups {
            self.handle.driver().leave(group);
        }
    }
}

/// Why a multicast group cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinGroupError {
    /// The queue pair or the group is not suitable.
    #[error(transparent)]
    Attach(#[from] MulticastError),
    /// The socket cannot join the group.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn an_address_and_its_source_are_of_one_family() {
        let ipv4: Gid = IpAddr::from([10, 0, 0, 1]).into();
        let ipv6: Gid = IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]).into();
        let nothing = Gid::from_bytes([0; 16]);
        let gids = [ipv4, ipv6, nothing];
        let check = |destination, index| check_address(&gids, &Address::new(destination, index));
        assert_eq!(check(ipv4, 0), Ok(()));
        assert_eq!(check(ipv6, 1), Ok(()));
        for (destination, source_index) in [(ipv4, 1), (ipv6, 0)] {
            let mismatch = AddressError::FamilyMismatch {
                source_index,
                destination,
            };
            assert_eq!(check(destination, source_index), Err(mismatch));
        }
        assert_eq!(check(nothing, 0), Err(AddressError::NoDestination));
        for index in [2, 3] {
            assert_eq!(
                check(ipv4, index),
                Err(AddressError::EmptySourceIndex(index))
            );
        }
    }
}

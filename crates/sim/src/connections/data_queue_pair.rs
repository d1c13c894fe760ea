//! Queue pairs of connections, with memory and the attributes of a connection manager.

use std::sync::Arc;
use std::time::Duration;

use cm::{PathAttributes, ReceiveAttributes, SendAttributes};
use engine::{
    Access, Address, Attributes, Buffer, CompletionQueue, Device, Id, ObjectError,
    ProtectionDomain, QueuePairInit, ReceiveRequest, Segment, SendRequest, State, Work,
};
use wire::{Key, Qpn, grh};

use super::process_config::Service;
use super::script::{LONGEST, MAX_MESSAGES};
use crate::CheckError;

/// The address of the memory of every queue pair.
const BASE: u64 = 0x10_0000;

/// The bytes of one message, including the GRH of a datagram.
const SLOT: usize = LONGEST + grh::LENGTH;

/// How many messages of each direction fit.
const SLOTS: usize = MAX_MESSAGES + 1;

/// A queue pair of a connection.
pub(super) struct DataQueuePair {
    pub(super) number: Qpn,
    /// Its id; none if the id is destroyed and the number is in time-wait.
    pub(super) id: Option<cm::Id>,
    /// When its last send completed, or was posted. A message of the peer does not count: it does not
    /// restore the retries of our sends.
    pub(super) progress: Duration,
    /// The stream of its requests in the tap.
    pub(super) stream: Option<usize>,
    buffer: Arc<Buffer>,
    key: Key,
}

impl DataQueuePair {
    /// Creates a queue pair; none if the device has no number left.
    pub(super) fn create(
        device: &mut Device,
        domain: Id<ProtectionDomain>,
        queue: Id<CompletionQueue>,
        service: Service,
        id: Option<cm::Id>,
    ) -> Result<Option<DataQueuePair>, CheckError> {
        let init = QueuePairInit::new(service.transport(), domain, queue);
        let number = match device.create_queue_pair(init) {
            Err(ObjectError::Exhausted) => return Ok(None),
            created => created?,
        };
        let buffer = Buffer::zeroed(2 * SLOTS * SLOT);
        let region = device.register(domain, Arc::clone(&buffer), BASE, Access::LOCAL_WRITE)?;
        Ok(Some(DataQueuePair {
            number,
            id,
            progress: Duration::ZERO,
            stream: None,
            buffer,
            key: region.local_key,
        }))
    }

    /// Destroys it.
    pub(super) fn destroy(&self, device: &mut Device) -> Result<(), CheckError> {
        device.destroy_queue_pair(self.number)?;
        Ok(device.deregister(self.key)?)
    }

    pub(super) fn move_to_error(&self, device: &mut Device) -> Result<(), CheckError> {
        Ok(device.move_to_error(self.number)?)
    }

    pub(super) fn initialize(
        &self,
        device: &mut Device,
        init: &cm::InitAttributes,
    ) -> Result<(), CheckError> {
        let access = access_of(init.access);
        let attributes = Attributes {
            port: Some(1),
            partition_index: Some(0),
            queue_key: init.queue_key,
            access: init.queue_key.is_none().then_some(access),
            ..to(State::Initialized)
        };
        Ok(device.modify(self.number, &attributes)?)
    }

    /// Brings a datagram queue pair to RTS.
    pub(super) fn open(&self, device: &mut Device) -> Result<(), CheckError> {
        device.modify(self.number, &to(State::ReadyToReceive))?;
        let ready = Attributes {
            send_psn: Some(wire::Psn::ZERO),
            ..to(State::ReadyToSend)
        };
        Ok(device.modify(self.number, &ready)?)
    }

    pub(super) fn receive(
        &self,
        device: &mut Device,
        attributes: &ReceiveAttributes,
    ) -> Result<(), CheckError> {
        let ready = Attributes {
            path: Some(address_of(&attributes.path)),
            path_mtu: Some(attributes.mtu),
            destination: Some(attributes.remote_qpn),
            receive_psn: Some(attributes.receive_psn),
            responder_resources: attributes.reliable.map(|r| r.responder_resources),
            rnr_timer: attributes.reliable.map(|r| r.min_rnr_timer),
            ..to(State::ReadyToReceive)
        };
        Ok(device.modify(self.number, &ready)?)
    }

    pub(super) fn send(
        &self,
        device: &mut Device,
        attributes: &SendAttributes,
    ) -> Result<(), CheckError> {
        let reliable = attributes.reliable;
        let ready = Attributes {
            send_psn: Some(attributes.send_psn),
            ack_timeout: reliable.map(|r| r.ack_timeout),
            retry_count: reliable.map(|r| r.retry_count),
            rnr_retry: reliable.map(|r| r.rnr_retry_count),
            initiator_depth: reliable.map(|r| r.initiator_depth),
            ..to(State::ReadyToSend)
        };
        Ok(device.modify(self.number, &ready)?)
    }

    /// Posts receives for all messages of the peer.
    pub(super) fn post_receives(&self, device: &mut Device) -> Result<(), CheckError> {
        (0..SLOTS).try_for_each(|slot| self.post_receive(device, slot))
    }

    pub(super) fn post_receive(&self, device: &mut Device, slot: usize) -> Result<(), CheckError> {
        let request = ReceiveRequest::new(slot as u64, [self.segment(slot, SLOT)]);
        device.post_receive(self.number, request).map_err(rejected)
    }

    /// The bytes of a receive.
    pub(super) fn received(&self, slot: u64, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.buffer.read(slot as usize * SLOT, &mut bytes);
        bytes
    }

    /// Sends a message. Its index is the id of its completion.
    pub(super) fn post_send(
        &self,
        device: &mut Device,
        index: usize,
        message: &[u8],
        to: Option<engine::Destination>,
    ) -> Result<(), CheckError> {
        let slot = SLOTS + index;
        self.buffer.write(slot * SLOT, message);
        let mut request =
            SendRequest::new(index as u64, Work::Send).with([self.segment(slot, message.len())]);
        request.destination = to;
        device.post_send(self.number, request).map_err(rejected)
    }

    /// Whether it can receive.
    pub(super) fn can_receive(&self, device: &Device) -> bool {
        let queue_pair = device.queue_pair(self.number);
        queue_pair.is_some_and(|queue_pair| queue_pair.state().receives())
    }

    fn segment(&self, slot: usize, length: usize) -> Segment {
        Segment {
            address: BASE + (slot * SLOT) as u64,
            length: length as u32,
            key: self.key,
        }
    }
}

/// The address of a peer, from the only local address.
pub(super) fn address_of(path: &PathAttributes) -> Address {
    Address {
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        service_level: path.service_level,
        ..Address::new(path.remote_gid, 0)
    }
}

fn access_of(access: cm::Access) -> Access {
    let mut rights = Access::empty();
    rights.set(
        Access::REMOTE_WRITE,
        access.contains(cm::Access::REMOTE_WRITE),
    );
    rights.set(
        Access::REMOTE_READ,
        access.contains(cm::Access::REMOTE_READ),
    );
    rights.set(
        Access::REMOTE_ATOMIC,
        access.contains(cm::Access::REMOTE_ATOMIC),
    );
    rights
}

fn to(state: State) -> Attributes {
    Attributes {
        state: Some(state),
        ..Attributes::default()
    }
}

fn rejected(error: engine::PostError) -> CheckError {
    CheckError::new(format!("a post was rejected: {error}"))
}

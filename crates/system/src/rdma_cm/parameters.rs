//! What the ends of a connection, and datagram services, say of themselves.

use std::ffi::c_void;
use std::ptr;
use std::slice;

use abi::{rdma_cm_event, rdma_conn_param};
use engine::Address;
use wire::{Qpn, QueueKey};

use crate::verbs::address_from;

/// Where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramDestination {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The Q_Key that datagrams must carry.
    pub queue_key: QueueKey,
    /// The address.
    pub address: Address,
}

/// What the peer says about its end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerParameters {
    /// The peer's queue pair.
    pub queue_pair: Qpn,
    /// Whether it has a shared receive queue.
    pub shared_receive_queue: bool,
    /// How many reads and atomics the peer wants to have outstanding.
    pub responder_resources: u8,
    /// How many reads and atomics may be outstanding to the peer.
    pub initiator_depth: u8,
    /// How often a request is retransmitted.
    pub retry_count: u8,
    /// How often a request is retried while the peer has no receive.
    pub rnr_retry_count: u8,
    /// The private data, with the zeros that fill its field.
    pub private_data: Vec<u8>,
}

/// What one end of a connection says to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// The queue pair.
    pub queue_pair: Qpn,
    /// Whether it has a shared receive queue.
    pub shared_receive_queue: bool,
    /// The private data.
    pub private_data: &'a [u8],
    /// How many reads and atomics of the peer may be outstanding.
    pub responder_resources: u8,
    /// How many reads and atomics are outstanding to the peer at most.
    pub initiator_depth: u8,
    /// How often a request is retransmitted.
    pub retry_count: u8,
    /// How often a request is retried while there is no receive.
    pub rnr_retry_count: u8,
}

impl Parameters<'_> {
    /// As C has them. They point at the private data. `None` if that is too long for the length's field.
    pub(super) fn to_c(self) -> Option<rdma_conn_param> {
        Some(rdma_conn_param {
            private_data: match self.private_data {
                [] => ptr::null(),
                bytes => bytes.as_ptr().cast(),
            },
            private_data_len: u8::try_from(self.private_data.len()).ok()?,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: u8::from(self.shared_receive_queue),
            qp_num: self.queue_pair.value(),
            ..rdma_conn_param::default()
        })
    }
}

/// The peer's parameters.
///
/// # Safety
/// The event must be about a connection and carry parameters, and must not be acknowledged yet.
pub(super) unsafe fn peer_parameters(event: &rdma_cm_event) -> PeerParameters {
    // SAFETY: by the caller's promise.
    let found = unsafe { event.param.conn };
    PeerParameters {
        queue_pair: Qpn::new(found.qp_num),
        shared_receive_queue: found.srq != 0,
        responder_resources: found.responder_resources,
        initiator_depth: found.initiator_depth,
        retry_count: found.retry_count,
        rnr_retry_count: found.rnr_retry_count,
        // SAFETY: the event is not acknowledged.
        private_data: unsafe { private_data(found.private_data, found.private_data_len) },
    }
}

/// Where datagrams go, and the private data of the peer.
///
/// # Safety
/// The event must be about a datagram service, and must not be acknowledged yet.
pub(super) unsafe fn service_parameters(event: &rdma_cm_event) -> (DatagramDestination, Vec<u8>) {
    // SAFETY: by the caller's promise.
    let found = unsafe { event.param.ud };
    // SAFETY: the event is not acknowledged.
    let private_data = unsafe { private_data(found.private_data, found.private_data_len) };
    // SAFETY: by the caller's promise.
    (unsafe { destination(event) }, private_data)
}

/// Where datagrams go.
///
/// # Safety
/// The event must be about datagrams.
pub(super) unsafe fn destination(event: &rdma_cm_event) -> DatagramDestination {
    // SAFETY: by the caller's promise.
    let found = unsafe { event.param.ud };
    DatagramDestination {
        queue_pair: Qpn::new(found.qp_num),
        queue_key: QueueKey::new(found.qkey),
        address: address_from(&found.ah_attr),
    }
}

/// A copy of private data.
///
/// # Safety
/// The event of the data must not be acknowledged yet.
unsafe fn private_data(start: *const c_void, length: u8) -> Vec<u8> {
    let (start, length): (*const u8, _) = (start.cast(), usize::from(length));
    if length == 0 || start.is_null() {
        return Vec::new();
    }
    // SAFETY: the event has as many bytes, until it is acknowledged.
    unsafe { slice::from_raw_parts(start, length) }.to_vec()
}

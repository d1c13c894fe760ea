//! The two messages that find a datagram queue pair: SIDR_REQ and SIDR_REP.

use super::code::ServiceStatus;
use super::field::{PrivateData, at, bytes};
use super::identifier::{CommunicationId, ServiceId};
use crate::number::{PartitionKey, Qpn, QueueKey};

layout! {
    /// SIDR_REQ: asks for the queue pair that serves something.
    ServiceRequest {
        /// What joins the answer to this question.
        request_id: CommunicationId = at(0, 32);
        /// The partition to be served in.
        partition: PartitionKey = at(4, 16);
        /// What the receiver is to listen on.
        service_id: ServiceId = at(8, 64);
        /// The application's data. `rdma_cm` starts it with an
        /// [`AddressHeader`](super::AddressHeader).
        private_data: PrivateData<216> = bytes(16, 216);
    }
}

layout! {
    /// SIDR_REP: names that queue pair.
    ServiceReply {
        /// The question that is answered.
        request_id: CommunicationId = at(0, 32);
        /// What became of it.
        status: ServiceStatus = at(4, 8);
        /// How much of `information` is filled.
        information_length: u8 = at(5, 8);
        /// The queue pair.
        qpn: Qpn = at(8, 24);
        /// What it listens on.
        service_id: ServiceId = at(12, 64);
        /// The Q_Key that lets datagrams in.
        queue_key: QueueKey = at(20, 32);
        /// More about the status.
        information: PrivateData<72> = bytes(24, 72);
        /// The application's data.
        private_data: PrivateData<136> = bytes(96, 136);
    }
}

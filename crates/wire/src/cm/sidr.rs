//! The two messages of service ID resolution (SIDR): SIDR_REQ and SIDR_REP.

use super::field::{PrivateData, at, bytes};
use super::ids::{CommunicationId, ServiceId};
use super::reason_codes::ServiceStatus;
use crate::number::{PartitionKey, Qpn, QueueKey};

layout! {
    /// SIDR_REQ: asks for the datagram queue pair that serves a service ID.
    ServiceRequest {
        /// Matches the reply to this request.
        request_id: CommunicationId = at(0, 32);
        /// The partition of the datagrams.
        partition: PartitionKey = at(4, 16);
        /// The service that the receiver listens for.
        service_id: ServiceId = at(8, 64);
        /// The application's data. `rdma_cm` starts it with an
        /// [`AddressHeader`](super::AddressHeader).
        private_data: PrivateData<216> = bytes(16, 216);
    }
}

layout! {
    /// SIDR_REP: names the datagram queue pair that serves a service ID.
    ServiceReply {
        /// The request that this message answers.
        request_id: CommunicationId = at(0, 32);
        /// Whether the service is available, or why not.
        status: ServiceStatus = at(4, 8);
        /// How many bytes of `information` are used.
        information_length: u8 = at(5, 8);
        /// The queue pair number.
        qpn: Qpn = at(8, 24);
        /// The service that it serves.
        service_id: ServiceId = at(12, 64);
        /// The Q_Key that datagrams to it must carry.
        queue_key: QueueKey = at(20, 32);
        /// Additional information about the status.
        information: PrivateData<72> = bytes(24, 72);
        /// The application's data.
        private_data: PrivateData<136> = bytes(96, 136);
    }
}

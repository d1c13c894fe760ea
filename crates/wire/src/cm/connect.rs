//! The three messages that establish a connection: REQ, REP and RTU.

use super::field::{PrivateData, at, bits, bytes};
use super::ids::{CommunicationId, ServiceId, Timeout};
use super::reason_codes::{Failover, Service};
use crate::number::{AckTimeout, Gid, PartitionKey, PathMtu, Psn, Qpn, QueueKey};

layout! {
    /// A path between two ports, from the sender's point of view.
    Path {
        /// The sender's local identifier (LID). RoCE has none and sends 0xffff.
        local_lid: u16 = at(0, 16);
        /// The receiver's LID.
        remote_lid: u16 = at(2, 16);
        /// The sender's GID.
        local_gid: Gid = bytes(4, 16);
        /// The receiver's GID.
        remote_gid: Gid = bytes(20, 16);
        /// The flow label, 20 bits. Linux derives the UDP source port from it.
        flow_label: u32 = at(36, 20);
        /// The static rate, 6 bits.
        packet_rate: u8 = bits(39, 2, 6);
        /// The traffic class of the packets.
        traffic_class: u8 = at(40, 8);
        /// The hop limit of the packets.
        hop_limit: u8 = at(41, 8);
        /// Service level, 4 bits. In RoCE it is the Ethernet priority.
        service_level: u8 = at(42, 4);
        /// Whether both ports are in the same subnet.
        subnet_local: bool = bits(42, 4, 1);
        /// The acknowledgement timeout of the sender's queue pair.
        local_ack_timeout: AckTimeout = at(43, 5);
    }
}

layout! {
    /// REQ requests a connection; its fields have the specified bits (IBA "REQ Message Contents").
    ConnectRequest {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The service that the receiver listens for.
        service_id: ServiceId = at(8, 64);
        /// The GUID of the sender's device.
        local_guid: u64 = at(16, 64);
        /// The sender's Q_Key; only for reliable datagrams.
        local_queue_key: QueueKey = at(28, 32);
        /// The sender's queue pair number.
        local_qpn: Qpn = at(32, 24);
        /// How many reads and atomics the sender can serve at once.
        responder_resources: u8 = at(35, 8);
        /// The sender's end-to-end context; only for reliable datagrams.
        local_eecn: Qpn = at(36, 24);
        /// How many reads and atomics the sender wants to have outstanding.
        initiator_depth: u8 = at(39, 8);
        /// The receiver's end-to-end context; only for reliable datagrams.
        remote_eecn: Qpn = at(40, 24);
        /// How long the receiver may take to answer.
        remote_response_timeout: Timeout = at(43, 5);
        /// The transport service of the connection.
        service: Service = bits(43, 5, 2);
        /// Whether the sender uses end-to-end flow control.
        flow_control: bool = bits(43, 7, 1);
        /// The first PSN that the **receiver** of this message must send.
        starting_psn: Psn = at(44, 24);
        /// How long the sender may take to answer.
        local_response_timeout: Timeout = at(47, 5);
        /// How often the receiver's queue pair retries, 3 bits.
        retry_count: u8 = bits(47, 5, 3);
        /// The partition of the connection.
        partition: PartitionKey = at(48, 16);
        /// The path MTU; none if the code is not one of the five.
        path_mtu: Option<PathMtu> = at(50, 4);
        /// Whether a reliable datagram channel exists.
        reliable_datagram_channel: bool = bits(50, 4, 1);
        /// How often the receiver's queue pair retries when the sender's queue pair is not ready; 3
        /// bits, 7 means without limit.
        rnr_retry_count: u8 = bits(50, 5, 3);
        /// How often each side retransmits connection manager messages, 4 bits.
        max_cm_retries: u8 = at(51, 4);
        /// Whether the sender's queue pair has a shared receive queue.
        shared_receive_queue: bool = bits(51, 4, 1);
        /// The extended transport, 3 bits: 1 is XRC. Used only with [`Service::Extended`].
        extended_transport: u8 = bits(51, 5, 3);
        /// The primary path.
        primary: Path = bytes(52, 44);
        /// The path to use if the primary path fails; all zero if there is none.
        alternate: Path = bytes(96, 44);
        /// The application's data. `rdma_cm` starts it with an
        /// [`AddressHeader`](super::AddressHeader).
        private_data: PrivateData<92> = bytes(140, 92);
    }
}

layout! {
    /// REP accepts a connection; its fields have the specified bits (IBA "REP Message Contents").
    ConnectReply {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The sender's Q_Key; only for reliable datagrams.
        local_queue_key: QueueKey = at(8, 32);
        /// The sender's queue pair number.
        local_qpn: Qpn = at(12, 24);
        /// The sender's end-to-end context, or the number of its XRC target queue pair.
        local_eecn: Qpn = at(16, 24);
        /// The first PSN that the **receiver** of this message must send.
        starting_psn: Psn = at(20, 24);
        /// How many reads and atomics the sender can serve at once.
        responder_resources: u8 = at(24, 8);
        /// How many reads and atomics the sender keeps outstanding.
        initiator_depth: u8 = at(25, 8);
        /// How long the sender's device takes to acknowledge.
        target_ack_delay: Timeout = at(26, 5);
        /// Whether the alternate path is accepted.
        failover: Failover = bits(26, 5, 2);
        /// Whether the sender uses end-to-end flow control.
        flow_control: bool = bits(26, 7, 1);
        /// How often the receiver's queue pair retries when the sender's queue pair is not ready; 3
        /// bits, 7 means without limit.
        rnr_retry_count: u8 = at(27, 3);
        /// Whether the sender's queue pair has a shared receive queue.
        shared_receive_queue: bool = bits(27, 3, 1);
        /// The GUID of the sender's device.
        local_guid: u64 = at(28, 64);
        /// The application's data.
        private_data: PrivateData<196> = bytes(36, 196);
    }
}

layout! {
    /// RTU: confirms that the connection is established.
    ReadyToUse {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The application's data.
        private_data: PrivateData<224> = bytes(8, 224);
    }
}

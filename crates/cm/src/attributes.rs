//! What to set when a queue pair changes its state.

use wire::{AckTimeout, Gid, PartitionKey, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

bitflags::bitflags! {
    /// What the peer may do with memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Write.
        const REMOTE_WRITE = 1;
        /// Read.
        const REMOTE_READ = 2;
        /// Atomics.
        const REMOTE_ATOMIC = 4;
    }
}

/// For the step to INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitAttributes {
    /// The partition.
    pub partition: PartitionKey,
    /// What the peer may do. Nothing for datagrams, and nothing before there is a conversation.
    pub access: Access,
    /// The Q_Key, for datagrams.
    pub queue_key: Option<QueueKey>,
}

/// The way to the peer, as an address handle has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAttributes {
    /// Our address.
    pub local_gid: Gid,
    /// The peer's, or a group's.
    pub remote_gid: Gid,
    /// The flow label, from which the UDP source port is computed.
    pub flow_label: u32,
    /// The traffic class (ToS).
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The Ethernet priority.
    pub service_level: u8,
    /// The static rate.
    pub packet_rate: u8,
}

/// For the step to RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveAttributes {
    /// The way to the peer.
    pub path: PathAttributes,
    /// The path MTU. Linux does not negotiate: the request's is taken as it is.
    pub mtu: PathMtu,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The first sequence number to expect.
    pub receive_psn: Psn,
    /// Reads and atomics to serve at once, and how long to let the peer wait when no receive is
    /// posted; only for reliable connections.
    pub reliable: Option<ReliableReceive>,
}

/// What a reliable connection needs for RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReliableReceive {
    /// Reads and atomics to serve at once (`max_dest_rd_atomic`).
    pub responder_resources: u8,
    /// Code 0 unless set otherwise: the longest, 655 ms.
    pub min_rnr_timer: RnrTimer,
}

/// For the step to RTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendAttributes {
    /// The first sequence number to send.
    pub send_psn: Psn,
    /// Retries and reads; only for reliable connections.
    pub reliable: Option<ReliableSend>,
}

/// What a reliable connection needs for RTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReliableSend {
    /// How long to wait for acknowledgements.
    pub ack_timeout: AckTimeout,
    /// How often to retry.
    pub retry_count: u8,
    /// How often to retry when the peer is not ready; 7 means for ever.
    pub rnr_retry_count: u8,
    /// Reads and atomics outstanding at once (`max_rd_atomic`).
    pub initiator_depth: u8,
}

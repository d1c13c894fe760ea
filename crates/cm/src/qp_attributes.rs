//! The attributes for a queue pair's transitions to INIT, RTR and RTS.

use wire::{AckTimeout, Gid, PartitionKey, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

bitflags::bitflags! {
    /// The peer's access rights to memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Write.
        const REMOTE_WRITE = 1;
        /// Read.
        const REMOTE_READ = 2;
        /// Atomics.
        const REMOTE_ATOMIC = 4;
        /// Flush to global visibility.
        const FLUSH_GLOBAL = 8;
        /// Flush to persistence.
        const FLUSH_PERSISTENT = 16;
    }
}

/// For the transition to INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitAttributes {
    /// The partition.
    pub partition: PartitionKey,
    /// The peer's access rights. Empty for datagrams, and before the exchange with the peer starts.
    pub access: Access,
    /// The Q_Key, for datagrams.
    pub queue_key: Option<QueueKey>,
}

/// The path to the peer, as in an address handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAttributes {
    /// Our address.
    pub local_gid: Gid,
    /// The address of the peer or of the multicast group.
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

/// For the transition to RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveAttributes {
    /// The path to the peer.
    pub path: PathAttributes,
    /// The path MTU of the request that the peer has accepted.
    pub mtu: PathMtu,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The first PSN to expect.
    pub receive_psn: Psn,
    /// Responder resources and RNR timer; only for reliable connections.
    pub reliable: Option<ReliableReceive>,
}

/// The attributes for RTR that only reliable connections have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReliableReceive {
    /// Reads and atomics of the peer that the queue pair serves at the same time (`max_dest_rd_atomic`).
    pub responder_resources: u8,
    /// The minimum RNR NAK timer. The default is code 0: 655 ms, the longest.
    pub min_rnr_timer: RnrTimer,
}

/// For the transition to RTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendAttributes {
    /// The first PSN to send.
    pub send_psn: Psn,
    /// Timeout, retry counts and initiator depth; only for reliable connections.
    pub reliable: Option<ReliableSend>,
}

/// The attributes for RTS that only reliable connections have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReliableSend {
    /// The acknowledge timeout.
    pub ack_timeout: AckTimeout,
    /// How many times to retransmit.
    pub retry_count: u8,
    /// How many times to retry after an RNR NAK; 7 means without limit.
    pub rnr_retry_count: u8,
    /// Reads and atomics outstanding at the same time (`max_rd_atomic`).
    pub initiator_depth: u8,
}

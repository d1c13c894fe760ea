//! The parameters of connect and accept.

use wire::{Qpn, QueueKey};

/// How many bytes of private data an application can send.
pub mod private_data {
    use wire::cm::AddressHeader;

    /// With a connection request (REQ).
    pub const REQUEST: usize = 92 - AddressHeader::LENGTH;
    /// When accepting a connection (REP).
    pub const REPLY: usize = 196;
    /// When rejecting a connection (REJ).
    pub const REJECT: usize = 148;
    /// With a request for a datagram service (SIDR_REQ).
    pub const SERVICE_REQUEST: usize = 216 - AddressHeader::LENGTH;
    /// With the response to a service request (SIDR_REP).
    pub const SERVICE_REPLY: usize = 136;
}

/// The queue pair and the connection parameters of one side, like `rdma_conn_param`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The local queue pair.
    pub qpn: Qpn,
    /// Whether it has a shared receive queue.
    pub shared_receive_queue: bool,
    /// The application's private data.
    pub private_data: &'a [u8],
    /// How many reads and atomics of the peer it serves at the same time.
    pub responder_resources: u8,
    /// How many reads and atomics it wants to have outstanding.
    pub initiator_depth: u8,
    /// Whether it supports end-to-end credits.
    pub flow_control: bool,
    /// How many times it retransmits, at most 7. Only the active side chooses it.
    pub retry_count: u8,
    /// How many times the peer retries after an RNR NAK; 7 means without limit.
    pub rnr_retry_count: u8,
    /// The Q_Key, for datagrams; none means [`DEFAULT_QUEUE_KEY`].
    pub queue_key: Option<QueueKey>,
}

impl Parameters<'_> {
    /// Default parameters: one read or atomic at a time, the most retries.
    pub const fn new(qpn: Qpn) -> Self {
        Parameters {
            qpn,
            shared_receive_queue: false,
            private_data: &[],
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            queue_key: None,
        }
    }
}

/// The Q_Key of datagram ids that do not choose one (`RDMA_UDP_QKEY`).
pub const DEFAULT_QUEUE_KEY: QueueKey = QueueKey::new(0x0123_4567);

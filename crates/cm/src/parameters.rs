//! What an application says when it connects or accepts.

use wire::{Qpn, QueueKey};

/// How many bytes of its own an application can send along.
pub mod private_data {
    use wire::cm::AddressHeader;

    /// With a request for a connection.
    pub const REQUEST: usize = 92 - AddressHeader::LENGTH;
    /// When accepting one.
    pub const REPLY: usize = 196;
    /// When refusing one.
    pub const REJECT: usize = 148;
    /// With a request for a datagram service.
    pub const SERVICE_REQUEST: usize = 216 - AddressHeader::LENGTH;
    /// With the answer to that.
    pub const SERVICE_REPLY: usize = 136;
}

/// The queue pair and the wishes of one side, like `rdma_conn_param`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The local queue pair.
    pub qpn: Qpn,
    /// Whether it has a shared receive queue.
    pub shared_receive_queue: bool,
    /// The application's own bytes.
    pub private_data: &'a [u8],
    /// How many reads and atomics of the peer it can serve at once.
    pub responder_resources: u8,
    /// How many reads and atomics it wants to have outstanding.
    pub initiator_depth: u8,
    /// Whether it counts end-to-end credits.
    pub flow_control: bool,
    /// How often it retries; 7 is the most. Only the requesting side has a say.
    pub retry_count: u8,
    /// How often the peer retries when it is not ready; 7 means for ever.
    pub rnr_retry_count: u8,
    /// The Q_Key, for datagrams; none means the usual one.
    pub queue_key: Option<QueueKey>,
}

impl Parameters<'_> {
    /// A queue pair without particular wishes: one read at a time, all retries.
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

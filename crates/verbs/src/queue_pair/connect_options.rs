//! The options of a connection.

use engine::Access;
use wire::{AckTimeout, PathMtu, RnrTimer};

/// The options of a connection: address, access rights, timeouts and retries.
///
/// Write `ConnectOptions { reads, ..ConnectOptions::default() }`, because a later version may add fields.
#[derive(Debug, Clone, Copy)]
pub struct ConnectOptions {
    /// The index of the local GID. `None`, the default: the first one of our devices, and at devices of the system a RoCEv2
    /// GID, with an IPv4 address if there is one.
    pub gid_index: Option<u8>,
    /// The access rights of the peer. The default is read, write and atomics.
    pub access: Access,
    /// The largest payload of a packet; `None`, the default, for the MTU of the device.
    pub path_mtu: Option<PathMtu>,
    /// How long to wait for an acknowledgement: 4.096 µs times 2 to this power. The default is 15, which is 134 ms.
    pub ack_timeout: AckTimeout,
    /// How often a request without an acknowledgement is retransmitted. The default is 7, the most.
    pub retry_count: u8,
    /// How often a request is retried while the peer has no receive posted; 7, the default, means without limit.
    pub rnr_retry: u8,
    /// How long the peer waits before it retries when no receive is posted here. The default is 0.64 ms.
    pub rnr_timer: RnrTimer,
    /// How many reads and atomics may be outstanding, in each direction. The default is 16.
    pub reads: u8,
    /// The IP traffic class. The default is 0.
    pub traffic_class: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            gid_index: None,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            path_mtu: None,
            // 134 ms, longer at each retry, four seconds in all: a peer in user space may have to
            // wait for a CPU.
            ack_timeout: AckTimeout::new(15).expect("a five-bit code"),
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: RnrTimer::new(12).expect("a five-bit code"),
            reads: 16,
            traffic_class: 0,
        }
    }
}

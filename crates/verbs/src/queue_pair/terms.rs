//! The terms of a connection.

use engine::Access;
use wire::{AckTimeout, PathMtu, RnrTimer};

/// How patient and how generous a connection is.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Which of the device's GIDs to use.
    pub gid_index: u8,
    /// What the peer may do.
    pub access: Access,
    /// The largest payload of a packet; the device's own if left out.
    pub path_mtu: Option<PathMtu>,
    /// How long to wait for an acknowledgement: 4.096 µs times 2 to this power.
    pub ack_timeout: AckTimeout,
    /// How often to try again.
    pub retry_count: u8,
    /// How often to try again when the peer has no receive posted; 7 is for ever.
    pub rnr_retry: u8,
    /// What a peer is told to wait when no receive is posted.
    pub rnr_timer: RnrTimer,
    /// Reads and atomics under way, in each direction.
    pub reads: u8,
    /// The IP traffic class.
    pub traffic_class: u8,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            gid_index: 0,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            path_mtu: None,
            // 134 ms, then longer, four seconds in all: a peer in user space may have to wait for a processor.
            ack_timeout: AckTimeout::new(15).expect("a five-bit code"),
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: RnrTimer::new(12).expect("a five-bit code"),
            reads: 16,
            traffic_class: 0,
        }
    }
}

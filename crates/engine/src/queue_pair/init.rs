//! What a queue pair is created with, by the application and by its device.

use std::time::Duration;

use wire::PathMtu;

use super::{Kind, WindowLimits};
use crate::completion::CompletionQueue;
use crate::memory::ProtectionDomain;
use crate::receive::{SharedReceiveQueue, XrcDomain};
use crate::table::Id;

/// What a queue pair is created with.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairInit {
    /// The service.
    pub kind: Kind,
    /// The domain of the memory it may touch.
    pub domain: Id<ProtectionDomain>,
    /// Where send requests complete.
    pub send_completions: Id<CompletionQueue>,
    /// Where receive requests complete.
    pub receive_completions: Id<CompletionQueue>,
    /// Where receives come from, if not from a queue of its own.
    pub shared_receive: Option<Id<SharedReceiveQueue>>,
    /// For an XRC target: the domain of the shared receive queues it may fill.
    pub xrc_domain: Option<Id<XrcDomain>>,
    /// How many send requests may be outstanding.
    pub max_sends: u32,
    /// How many receive requests may be outstanding.
    pub max_receives: u32,
    /// How many segments a send request may have.
    pub max_send_segments: u32,
    /// How many segments a receive request may have.
    pub max_receive_segments: u32,
    /// How many bytes may be inline in a send request.
    pub max_inline: u32,
    /// Whether every send request is signaled.
    pub signal_all: bool,
}

impl QueuePairInit {
    /// A small queue pair whose requests all complete in one queue.
    #[must_use]
    pub fn new(kind: Kind, domain: Id<ProtectionDomain>, completions: Id<CompletionQueue>) -> Self {
        Self {
            kind,
            domain,
            send_completions: completions,
            receive_completions: completions,
            shared_receive: None,
            xrc_domain: None,
            max_sends: 128,
            max_receives: 128,
            max_send_segments: 4,
            max_receive_segments: 4,
            max_inline: 256,
            signal_all: false,
        }
    }
}

/// What a device gives every queue pair to know of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) active_mtu: PathMtu,
    pub(crate) window: WindowLimits,
    pub(crate) advertise_credits: bool,
    pub(crate) min_ack_timeout: Duration,
    pub(crate) max_responder_resources: u8,
}

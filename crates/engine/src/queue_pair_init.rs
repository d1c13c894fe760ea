//! The values that an application creates a queue pair with, and the queues that they name.

use std::sync::Arc;

use crate::completion::CompletionQueue;
use crate::memory::ProtectionDomain;
use crate::receive_queue::{SharedReceiveQueue, XrcDomain};
use crate::slab::Id;
use crate::state::QueuePairType;

/// The values that an application creates a queue pair with.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairInit {
    /// The queue pair type.
    pub kind: QueuePairType,
    /// The protection domain of its memory.
    pub domain: Id<ProtectionDomain>,
    /// The completion queue of send requests.
    pub send_completions: Id<CompletionQueue>,
    /// The completion queue of receive requests.
    pub receive_completions: Id<CompletionQueue>,
    /// The shared receive queue, if the queue pair uses one instead of its own receive queue.
    pub shared_receive: Option<Id<SharedReceiveQueue>>,
    /// For an XRC target: the XRC domain of the shared receive queues that it may use.
    pub xrc_domain: Option<Id<XrcDomain>>,
    /// The maximum number of outstanding send requests.
    pub max_sends: u32,
    /// The maximum number of outstanding receive requests.
    pub max_receives: u32,
    /// The maximum number of segments in a send request.
    pub max_send_segments: u32,
    /// The maximum number of segments in a receive request.
    pub max_receive_segments: u32,
    /// The maximum number of inline bytes in a send request.
    pub max_inline: u32,
    /// Whether every send request is signaled.
    pub signal_all: bool,
}

impl QueuePairInit {
    /// A small queue pair with one completion queue for all requests.
    #[must_use]
    pub fn new(
        kind: QueuePairType,
        domain: Id<ProtectionDomain>,
        completions: Id<CompletionQueue>,
    ) -> Self {
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

/// The queues that a queue pair uses and does not own.
#[derive(Clone)]
pub(crate) struct AttachedQueues {
    pub(crate) send_completions: Arc<CompletionQueue>,
    pub(crate) receive_completions: Arc<CompletionQueue>,
    pub(crate) shared_receive: Option<Arc<SharedReceiveQueue>>,
}

//! How much a queue pair uses of its queues and of its window, for monitors.

use super::QueuePair;

/// How much a queue pair uses of its queues and of its window at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueuePairUsage {
    /// Send requests that are not completed.
    pub outstanding_sends: u32,
    /// Receives that are posted and not used, of its own receive queue.
    pub posted_receives: u32,
    /// Packets that the peer has not acknowledged.
    pub unacknowledged: u32,
    /// How many packets may be unacknowledged; 0 if the queue pair has no window.
    pub window: u32,
    /// Timeouts since the peer last acknowledged something.
    pub timeouts: u32,
    /// Whether it waits because the peer has no receive posted.
    pub waits_for_receiver: bool,
}

impl QueuePair {
    /// How much it uses of its queues and of its window.
    #[must_use]
    pub fn usage(&self) -> QueuePairUsage {
        let reliable = self.init.kind.is_reliable();
        let link = self.link.filter(|_| reliable && self.state.transmits());
        QueuePairUsage {
            outstanding_sends: self.send.len() as u32,
            posted_receives: self.receive.len() as u32,
            unacknowledged: self.requester.unacknowledged(),
            window: link.map_or(0, |link| self.requester.window_packets(link.mtu())),
            timeouts: self.requester.timeouts(),
            waits_for_receiver: self.requester.waits_for_receiver(),
        }
    }
}

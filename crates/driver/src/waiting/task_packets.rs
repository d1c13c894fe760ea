//! The packets for which an executor waits, for its tasks.

use std::io;
use std::sync::Arc;

use net::poll::{PollSet, Signal};

/// The sockets that wake an executor.
#[derive(Debug)]
pub(crate) struct TaskPackets {
    signal: Arc<Signal>,
    packets: PollSet,
}

impl TaskPackets {
    pub(crate) fn over(packets: PollSet) -> io::Result<Self> {
        let signal = Signal::new()?;
        signal.include(&packets)?;
        Ok(Self {
            signal: Arc::new(signal),
            packets,
        })
    }

    /// Readable while packets wait. An executor waits for it as long as it has this.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Replaces the sockets.
    pub(crate) fn renew(&mut self, packets: PollSet) {
        self.signal.exclude(&self.packets);
        // If the system has no memory for it, the lane's thread serves the sockets.
        let _ = self.signal.include(&packets);
        self.packets = packets;
    }

    /// Whether an executor waits for it.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.signal) > 1
    }
}

impl Drop for TaskPackets {
    /// The executor learns that the device is closed.
    fn drop(&mut self) {
        self.signal.exclude(&self.packets);
        self.signal.raise();
    }
}

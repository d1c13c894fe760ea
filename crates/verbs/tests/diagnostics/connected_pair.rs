//! Two connected queue pairs on devices with explanations.

use rocinante::{
    Access, Completion, ConnectOptions, Endpoint, MemoryRegion, OpenOptions, PreparedQueuePair,
    QueuePair, Request, Status,
};

use crate::support::{End, TIMEOUT};

/// A scenario by name.
pub(crate) type Scenario = (&'static str, fn());

/// A device at a loopback address, with the options of the environment.
pub(crate) fn end(address: &str) -> End {
    End::at(address, &OpenOptions::from_env())
}

/// For peers that respond. An RNR NAK is retried once.
pub(crate) fn connect_options() -> ConnectOptions {
    ConnectOptions {
        rnr_retry: 1,
        ..ConnectOptions::default()
    }
}

/// For peers that never respond.
pub(crate) fn short_timeouts() -> ConnectOptions {
    ConnectOptions {
        retry_count: 2,
        ..ConnectOptions::default()
    }
}

/// Two connected queue pairs.
pub(crate) struct ConnectedPair {
    pub(crate) left: End,
    pub(crate) right: End,
    pub(crate) from_left: QueuePair,
    pub(crate) from_right: QueuePair,
}

impl ConnectedPair {
    pub(crate) fn new(left: &str, right: &str) -> Self {
        Self::with(left, right, connect_options())
    }

    /// As [`new`](Self::new), with other options on the right side.
    pub(crate) fn with(left: &str, right: &str, theirs: ConnectOptions) -> Self {
        let (left, right) = (end(left), end(right));
        let (here, there) = (left.prepare(connect_options()), right.prepare(theirs));
        let (ours, theirs) = (here.endpoint(), there.endpoint());
        Self {
            from_left: here.connect(theirs).expect("a peer"),
            from_right: there.connect(ours).expect("a peer"),
            left,
            right,
        }
    }

    /// Registers 64 bytes on the right side.
    pub(crate) fn theirs(&self, access: Access) -> MemoryRegion {
        self.right.domain.allocate_memory(64, access).expect("room")
    }

    /// Posts a request on the left side that fails with `status`.
    pub(crate) fn fails(&self, request: Request, status: Status) {
        self.from_left.post_send(request.id(7)).expect("room");
        assert_eq!(self.outcome().status, status);
    }

    fn outcome(&self) -> Completion {
        let outcome = self.left.completions.wait_for(TIMEOUT);
        outcome.expect("it completes")
    }
}

/// Connects to `peer` and sends; no response arrives.
pub(crate) fn send_times_out(end: &End, prepared: PreparedQueuePair, peer: Endpoint) {
    let queue_pair = prepared.connect(peer).expect("an address");
    let request = Request::send().data(end.memory.slice(0..64)).id(7);
    queue_pair.post_send(request).expect("room");
    let outcome = end.completions.wait_for(TIMEOUT).expect("it completes");
    assert_eq!(outcome.status, Status::RetriesExhausted);
}

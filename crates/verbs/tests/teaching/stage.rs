//! Two connected ends that explain themselves, and what scenes do with them.

use rocinante::{
    Access, Completion, ConnectOptions, Endpoint, MemoryRegion, Options, Prepared, QueuePair,
    Request, Status,
};

use crate::support::{End, PATIENCE};

/// A scene by name.
pub(crate) type Scene = (&'static str, fn());

/// A device at a loopback address that explains what goes wrong.
pub(crate) fn end(address: &str) -> End {
    End::at(address, &Options::from_env())
}

/// For peers that answer, be they ever so busy; but a receive must be there soon.
pub(crate) fn connect_options() -> ConnectOptions {
    ConnectOptions {
        rnr_retry: 1,
        ..ConnectOptions::default()
    }
}

/// For peers that never answer.
pub(crate) fn impatient() -> ConnectOptions {
    ConnectOptions {
        retry_count: 2,
        ..ConnectOptions::default()
    }
}

/// Two ends that are connected.
pub(crate) struct Stage {
    pub(crate) left: End,
    pub(crate) right: End,
    pub(crate) from_left: QueuePair,
    pub(crate) from_right: QueuePair,
}

impl Stage {
    pub(crate) fn set(left: &str, right: &str) -> Self {
        Self::with(left, right, connect_options())
    }

    /// The right end with connect_options of its own.
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

    /// Memory of 64 bytes at the right end.
    pub(crate) fn theirs(&self, access: Access) -> MemoryRegion {
        self.right.domain.register(64, access).expect("room")
    }

    /// The left end asks for something in vain.
    pub(crate) fn fails(&self, request: Request, status: Status) {
        self.from_left.post(request.id(7)).expect("room");
        assert_eq!(self.outcome().status, status);
    }

    fn outcome(&self) -> Completion {
        let outcome = self.left.completions.wait_for(PATIENCE);
        outcome.expect("it completes")
    }
}

/// Connects to `peer`, sends, and gets no answer.
pub(crate) fn calls_in_vain(end: &End, prepared: Prepared, peer: Endpoint) {
    let queue_pair = prepared.connect(peer).expect("an address");
    let request = Request::send().data(end.memory.slice(0..64)).id(7);
    queue_pair.post(request).expect("room");
    let outcome = end.completions.wait_for(PATIENCE).expect("it completes");
    assert_eq!(outcome.status, Status::RetriesExhausted);
}

//! Two ends on two loopback addresses, connected.

// Each test file is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub)]

pub mod packet_socket;
pub mod rings;

use std::time::Duration;

use rocinante::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, MemoryRegion, OpenOptions,
    PreparedQueuePair, ProtectionDomain, QueuePair, Request, Status,
};

pub const TIMEOUT: Duration = Duration::from_secs(20);
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::WINDOW_BIND);

/// A device with everything a test needs.
pub struct End {
    pub context: Context,
    pub domain: ProtectionDomain,
    pub completions: CompletionQueue,
    pub memory: MemoryRegion,
}

impl End {
    pub fn at(address: &str, options: &OpenOptions) -> Self {
        let context = Context::open_with(address, options).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(1 << 14).expect("room");
        let memory = domain.allocate_memory(1 << 20, ALL).expect("room");
        Self {
            context,
            domain,
            completions,
            memory,
        }
    }

    pub fn prepare(&self, connect_options: ConnectOptions) -> PreparedQueuePair {
        let builder = self.domain.queue_pair_builder(&self.completions);
        builder
            .depth(256, 256)
            .connect_options(connect_options)
            .create_reliable()
            .expect("room")
    }

    /// The next completion, which must be a success.
    pub fn success(&self) -> Completion {
        let completion = self.completions.wait_for(TIMEOUT).expect("it completes");
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion
    }
}

/// Two connected queue pairs, each with its device.
pub struct ConnectedPair {
    pub left: End,
    pub right: End,
    pub from_left: QueuePair,
    pub from_right: QueuePair,
}

impl ConnectedPair {
    pub fn connected(left: &str, right: &str) -> Self {
        Self::with(
            left,
            right,
            &OpenOptions::default(),
            ConnectOptions::default(),
        )
    }

    pub fn with(
        left: &str,
        right: &str,
        options: &OpenOptions,
        connect_options: ConnectOptions,
    ) -> Self {
        let (left, right) = (
            End::at(left, options),
            End::at(right, &OpenOptions::default()),
        );
        let (here, there) = (
            left.prepare(connect_options),
            right.prepare(connect_options),
        );
        let (our_end, their_end) = (here.endpoint(), there.endpoint());
        Self {
            from_left: here.connect(their_end).expect("a peer"),
            from_right: there.connect(our_end).expect("a peer"),
            left,
            right,
        }
    }

    /// Writes `length` patterned bytes from left to right and compares.
    pub fn write_and_compare(&self, length: usize) {
        let pattern: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        self.left.memory.write(0, &pattern);
        let request = Request::write(self.right.memory.remote(0));
        self.from_left
            .post_send(request.data(self.left.memory.slice(0..length)))
            .expect("room");
        self.left.success();
        assert!(self.right.memory.to_vec(0..length) == pattern);
    }
}

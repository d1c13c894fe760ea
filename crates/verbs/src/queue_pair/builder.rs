//! The description of a queue pair before it is created.

use engine::{Attributes, Id, ObjectError, QueuePairInit, QueuePairType, State};

use super::{ConnectOptions, Handle, PreparedQueuePair};
use crate::completion::CompletionQueue;
use crate::domain::ProtectionDomain;
use crate::error::SetupError;
use crate::shared_receive::SharedReceiveQueue;

/// Describes a queue pair to create.
#[derive(Debug)]
pub struct QueuePairBuilder {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    receive_completions: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    options: ConnectOptions,
    init: QueuePairInit,
}

impl ProtectionDomain {
    /// A builder for a queue pair whose requests complete in `completions`.
    #[must_use]
    pub fn queue_pair(&self, completions: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder {
            domain: self.clone(),
            completions: completions.clone(),
            receive_completions: completions.clone(),
            shared: None,
            options: ConnectOptions::default(),
            init: QueuePairInit::new(QueuePairType::Rc, self.id(), completions.id()),
        }
    }
}

impl QueuePairBuilder {
    /// Sets a separate completion queue for receives.
    #[must_use]
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.receive_completions = queue.clone();
        self.init.receive_completions = queue.id();
        self
    }

    /// Takes receives from a shared receive queue.
    #[must_use]
    pub fn shared_receive(mut self, queue: &SharedReceiveQueue) -> Self {
        self.init.shared_receive = Some(queue.id());
        self.shared = Some(queue.clone());
        self
    }

    /// Sets how many sends and receives may be outstanding. The default is 128 each.
    #[must_use]
    pub fn depth(mut self, sends: u32, receives: u32) -> Self {
        self.init.max_sends = sends;
        self.init.max_receives = receives;
        self
    }

    /// Sets how many segments a request may have. The default is 4.
    #[must_use]
    pub fn segments(mut self, max: u32) -> Self {
        self.init.max_send_segments = max;
        self.init.max_receive_segments = max;
        self
    }

    /// Sets how many bytes a request may carry inline. The default is 256.
    #[must_use]
    pub fn inline(mut self, max: u32) -> Self {
        self.init.max_inline = max;
        self
    }

    /// Sets access rights, timeouts and retries of the connection.
    #[must_use]
    pub fn connect_options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Creates a queue pair for a reliable connection: every message arrives once and in order.
    pub fn reliable(self) -> Result<PreparedQueuePair, SetupError> {
        self.prepare(QueuePairType::Rc)
    }

    /// Creates a queue pair for an unreliable connection: messages may be lost.
    pub fn unreliable(self) -> Result<PreparedQueuePair, SetupError> {
        self.prepare(QueuePairType::Uc)
    }

    pub(crate) fn prepare(mut self, kind: QueuePairType) -> Result<PreparedQueuePair, SetupError> {
        self.init.kind = kind;
        let (handle, options) = self.create()?;
        let endpoint = handle.endpoint(options.gid_index)?;
        handle.modify(&Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: Some(options.access),
            ..Attributes::default()
        })?;
        Ok(PreparedQueuePair {
            handle,
            kind,
            options,
            endpoint,
        })
    }

    /// Sets the XRC domain whose shared receive queues the peer addresses.
    pub(crate) fn xrc_domain(mut self, domain: Id<engine::XrcDomain>) -> Self {
        self.init.xrc_domain = Some(domain);
        self
    }

    pub(crate) fn kind(mut self, kind: QueuePairType) -> Self {
        self.init.kind = kind;
        self
    }

    pub(crate) fn create(self) -> Result<(Handle, ConnectOptions), ObjectError> {
        let init = self.init;
        let number = self
            .domain
            .driver()
            .call(|device| device.create_queue_pair(init))?;
        let completions = [self.completions, self.receive_completions];
        let handle = Handle::new(number, self.domain, completions, self.shared);
        Ok((handle, self.options))
    }
}

//! A queue pair as it shall become.

use engine::{Attributes, Id, Kind, ObjectError, QueuePairInit, State};

use super::{Handle, Prepared, SetupError, Terms};
use crate::completion::CompletionQueue;
use crate::domain::ProtectionDomain;
use crate::shared_receive::SharedReceiveQueue;

/// Describes a queue pair.
#[derive(Debug)]
pub struct Builder {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    receive_completions: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    terms: Terms,
    init: QueuePairInit,
}

impl Builder {
    pub(crate) fn new(domain: &ProtectionDomain, completions: &CompletionQueue) -> Self {
        Self {
            domain: domain.clone(),
            completions: completions.clone(),
            receive_completions: completions.clone(),
            shared: None,
            terms: Terms::default(),
            init: QueuePairInit::new(Kind::Rc, domain.id(), completions.id()),
        }
    }

    /// Receives complete in a queue of their own.
    #[must_use]
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.receive_completions = queue.clone();
        self.init.receive_completions = queue.id();
        self
    }

    /// Receives come from a shared queue.
    #[must_use]
    pub fn shared_receive(mut self, queue: &SharedReceiveQueue) -> Self {
        self.init.shared_receive = Some(queue.id());
        self.shared = Some(queue.clone());
        self
    }

    /// How many sends and receives may be outstanding.
    #[must_use]
    pub fn depth(mut self, sends: u32, receives: u32) -> Self {
        self.init.max_sends = sends;
        self.init.max_receives = receives;
        self
    }

    /// How many segments a request may have.
    #[must_use]
    pub fn segments(mut self, most: u32) -> Self {
        self.init.max_send_segments = most;
        self.init.max_receive_segments = most;
        self
    }

    /// How many bytes may be inline in a request.
    #[must_use]
    pub fn inline(mut self, most: u32) -> Self {
        self.init.max_inline = most;
        self
    }

    /// How patient and generous the connection will be.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// A reliable connection: everything arrives, once and in order.
    pub fn reliable(self) -> Result<Prepared, SetupError> {
        self.prepare(Kind::Rc)
    }

    /// An unreliable connection: messages may be lost.
    pub fn unreliable(self) -> Result<Prepared, SetupError> {
        self.prepare(Kind::Uc)
    }

    pub(crate) fn prepare(mut self, kind: Kind) -> Result<Prepared, SetupError> {
        self.init.kind = kind;
        let (handle, terms) = self.create()?;
        let endpoint = handle.endpoint(terms.gid_index)?;
        handle.modify(&Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: Some(terms.access),
            ..Attributes::default()
        })?;
        Ok(Prepared {
            handle,
            kind,
            terms,
            endpoint,
        })
    }

    /// Fills shared receive queues of this XRC domain.
    pub(crate) fn xrc_domain(mut self, domain: Id<engine::XrcDomain>) -> Self {
        self.init.xrc_domain = Some(domain);
        self
    }

    pub(crate) fn kind(mut self, kind: Kind) -> Self {
        self.init.kind = kind;
        self
    }

    pub(crate) fn create(self) -> Result<(Handle, Terms), ObjectError> {
        let init = self.init;
        let number = self
            .domain
            .driver()
            .call(|device| device.create_queue_pair(init))?;
        let completions = [self.completions, self.receive_completions];
        let handle = Handle::new(number, self.domain, completions, self.shared);
        Ok((handle, self.terms))
    }
}

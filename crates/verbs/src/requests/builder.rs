//! Queue pairs with a future for each request, before they are connected.

use std::fmt;

use engine::{Access, ModifyError, Segment};

use super::core::{Core, WORD};
use super::outstanding::{Outstanding, Received};
use super::{Open, Requests};
use crate::error::SetupError;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::{
    ConnectOptions, Depth, Endpoint, PreparedQueuePair, QueuePair, QueuePairBuilder,
};

/// Describes a queue pair with a future for each request.
#[derive(Debug)]
pub struct RequestsBuilder {
    domain: ProtectionDomain,
    depth: Depth,
    /// What the program sets of the queue pair.
    settings: Settings,
}

#[derive(Debug, Default)]
struct Settings {
    options: ConnectOptions,
    segments: Option<u32>,
    inline: Option<u32>,
}

impl ProtectionDomain {
    /// A builder for a queue pair with a future for each request. It has a completion queue of its own.
    #[must_use]
    pub fn requests_builder(&self) -> RequestsBuilder {
        RequestsBuilder {
            domain: self.clone(),
            depth: Depth::default(),
            settings: Settings::default(),
        }
    }
}

impl RequestsBuilder {
    /// Sets how many sends and receives the device may have at once; 128 each by default. More of them wait for room.
    #[must_use]
    pub fn depth(mut self, sends: u32, receives: u32) -> Self {
        self.depth = Depth { sends, receives };
        self
    }

    /// As [`QueuePairBuilder::max_segments`].
    #[must_use]
    pub fn max_segments(mut self, max: u32) -> Self {
        self.settings.segments = Some(max);
        self
    }

    /// As [`QueuePairBuilder::max_inline`].
    #[must_use]
    pub fn max_inline(mut self, max: u32) -> Self {
        self.settings.inline = Some(max);
        self
    }

    /// Sets access rights, timeouts and retries of the connection.
    #[must_use]
    pub fn connect_options(mut self, options: ConnectOptions) -> Self {
        self.settings.options = options;
        self
    }

    /// Creates a queue pair for a reliable connection: every message arrives once and in order.
    pub fn create_reliable(self) -> Result<PreparedRequests, SetupError> {
        let Self {
            domain,
            depth,
            settings,
        } = self;
        let Depth { sends, receives } = depth;
        let context = domain.context();
        let completions = context.create_completion_queue(sends.saturating_add(receives).max(1))?;
        let builder = domain.queue_pair_builder(&completions);
        let prepared = settings
            .apply(builder.depth(sends, receives))
            .create_reliable()?;
        let words = domain.allocate_memory(WORD * sends as usize, Access::LOCAL_WRITE)?;
        let object = prepared.object().clone();
        let core = Core::new(context.clone(), completions, object, words, depth);
        Ok(PreparedRequests {
            open: Open(core),
            prepared,
        })
    }
}

impl Settings {
    fn apply(self, builder: QueuePairBuilder) -> QueuePairBuilder {
        let builder = builder.connect_options(self.options);
        let builder = match self.segments {
            Some(max) => builder.max_segments(max),
            None => builder,
        };
        match self.inline {
            Some(max) => builder.max_inline(max),
            None => builder,
        }
    }
}

/// A queue pair with a future for each request, which is not connected yet. It receives.
#[must_use = "dropping it destroys the queue pair"]
pub struct PreparedRequests {
    // Dropped first: its requests fail before the queue pair is gone.
    open: Open,
    prepared: PreparedQueuePair,
}

impl PreparedRequests {
    /// The endpoint for the peer.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.prepared.endpoint()
    }

    /// As [`Requests::receive`], before the peer can send. The future may be awaited after it is connected.
    pub fn receive(&self, into: impl IntoIterator<Item = Segment>) -> Outstanding<Received> {
        super::receive(&self.open.0, into)
    }

    /// Connects it. The peer does the same with the local endpoint.
    pub fn connect(self, peer: Endpoint) -> Result<Requests, ModifyError> {
        self.connect_by(|prepared| prepared.connect(peer))
    }

    pub(crate) fn connect_by<E>(
        self,
        connect: impl FnOnce(PreparedQueuePair) -> Result<QueuePair, E>,
    ) -> Result<Requests, E> {
        Ok(Requests {
            open: self.open,
            queue_pair: connect(self.prepared)?,
        })
    }

    pub(crate) fn prepared(&self) -> &PreparedQueuePair {
        &self.prepared
    }
}

impl fmt::Debug for PreparedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedRequests")
            .field(&self.prepared)
            .finish()
    }
}

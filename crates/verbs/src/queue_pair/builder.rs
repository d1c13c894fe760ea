//! The description of a queue pair before it is created.

use std::sync::Arc;

use engine::{Attributes, ObjectError, QueuePairInit, QueuePairType, State};
use system::verbs;

use super::handle::{Object, Reservations};
use super::{ConnectOptions, Handle, PreparedQueuePair};
use crate::completion_queue::CompletionQueue;
use crate::error::SetupError;
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::xrc_domain::XrcDomain;

/// Describes a queue pair to create.
#[derive(Debug)]
pub struct QueuePairBuilder {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    receive_completions: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    xrc_domain: Option<XrcDomain>,
    options: ConnectOptions,
    kind: QueuePairType,
    sizes: Sizes,
}

/// How much a queue pair can hold.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// `None`: what the completion queues hold, at most [`DEFAULT_DEPTH`].
    depth: Option<Depth>,
    /// Whether completion queues may be smaller than the queues.
    may_overrun: bool,
    segments: u32,
    /// `None`: the default.
    inline: Option<u32>,
}

/// How many requests may be outstanding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
}

impl Default for Depth {
    fn default() -> Self {
        Self {
            sends: DEFAULT_DEPTH,
            receives: DEFAULT_DEPTH,
        }
    }
}

impl ProtectionDomain {
    /// A builder for a queue pair whose requests complete in `completions`.
    #[must_use]
    pub fn queue_pair_builder(&self, completions: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder {
            domain: self.clone(),
            completions: completions.clone(),
            receive_completions: completions.clone(),
            shared: None,
            xrc_domain: None,
            options: ConnectOptions::default(),
            kind: QueuePairType::Rc,
            sizes: Sizes {
                depth: None,
                may_overrun: false,
                segments: 4,
                inline: None,
            },
        }
    }
}

impl QueuePairBuilder {
    /// Sets a separate completion queue for receives.
    #[must_use]
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.receive_completions = queue.clone();
        self
    }

    /// Takes receives from a shared receive queue.
    #[must_use]
    pub fn shared_receive_queue(mut self, queue: &SharedReceiveQueue) -> Self {
        self.shared = Some(queue.clone());
        self
    }

    /// Sets how many sends and receives may be outstanding. The default is what the completion queue holds, at most 128 each; sends
    /// and receives that complete in one queue have half of it each.
    ///
    /// A completion queue must hold the completions of all its queue pairs, and of the shared receive queues behind them: otherwise
    /// creating the queue pair fails ([`SetupError::CompletionQueueTooSmall`]).
    #[must_use]
    pub fn depth(mut self, sends: u32, receives: u32) -> Self {
        self.sizes.depth = Some(Depth { sends, receives });
        self
    }

    /// Allows completion queues that are smaller than the queues of the queue pair. Then the program itself must not have more
    /// requests outstanding than they hold: a completion that does not fit moves all queue pairs of the queue to the error state.
    /// Unsignaled requests count, too, because they complete if they fail.
    #[must_use]
    pub fn may_overrun(mut self) -> Self {
        self.sizes.may_overrun = true;
        self
    }

    /// Sets how many segments a request may have. The default is 4.
    #[must_use]
    pub fn max_segments(mut self, max: u32) -> Self {
        self.sizes.segments = max;
        self
    }

    /// Sets how many bytes a request may carry inline. The default is 256, or 64 at a device of the system that does not have room for so
    /// many.
    #[must_use]
    pub fn max_inline(mut self, max: u32) -> Self {
        self.sizes.inline = Some(max);
        self
    }

    /// Sets access rights, timeouts and retries of the connection.
    #[must_use]
    pub fn connect_options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Creates a queue pair for a reliable connection: every message arrives once and in order.
    pub fn create_reliable(self) -> Result<PreparedQueuePair, SetupError> {
        self.prepare(QueuePairType::Rc)
    }

    /// Creates a queue pair for an unreliable connection: messages may be lost.
    pub fn create_unreliable(self) -> Result<PreparedQueuePair, SetupError> {
        self.prepare(QueuePairType::Uc)
    }

    pub(crate) fn prepare(mut self, kind: QueuePairType) -> Result<PreparedQueuePair, SetupError> {
        self.kind = kind;
        let (handle, options) = self.create()?;
        let endpoint = handle.endpoint(options.gid_index)?;
        handle.modify(&Attributes {
            state: Some(State::Initialized),
            port: Some(handle.port()),
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
    pub(crate) fn xrc_domain(mut self, domain: &XrcDomain) -> Self {
        self.xrc_domain = Some(domain.clone());
        self
    }

    pub(crate) fn kind(mut self, kind: QueuePairType) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn create(self) -> Result<(Handle, ConnectOptions), SetupError> {
        let depth = self.sizes.depth.unwrap_or_else(|| self.default_depth());
        let completions = self.reserve(depth)?;
        let object = match self.domain.system() {
            Some(domain) => Object::System(self.create_in_system(domain, depth)?),
            None => self.create_in_software(depth)?,
        };
        let handle = Handle::new(object, self.domain, completions, self.shared);
        Ok((handle, self.options))
    }

    /// As many requests as the completion queues hold, if this is the only queue pair there.
    fn default_depth(&self) -> Depth {
        let share_a_queue = self.completions.is(&self.receive_completions);
        let all = self.receive_completions.capacity();
        let receives = match &self.shared {
            Some(shared) => shared.capacity(),
            None if !self.receives() => 0,
            None if share_a_queue => all / 2,
            None => all,
        };
        let taken = if share_a_queue { receives } else { 0 };
        let sends = self.completions.capacity().saturating_sub(taken);
        Depth {
            sends: sends.clamp(1, DEFAULT_DEPTH),
            receives: receives.min(DEFAULT_DEPTH),
        }
    }

    /// Reserves room for all completions in the queues.
    fn reserve(&self, depth: Depth) -> Result<Reservations, SetupError> {
        let counts = |applies: bool, requests| {
            if applies && !self.sizes.may_overrun {
                requests
            } else {
                0
            }
        };
        let sends = counts(self.kind != QueuePairType::XrcTarget, depth.sends);
        let sends = self.completions.reserve(sends)?;
        let receives = match &self.shared {
            Some(shared) if !self.sizes.may_overrun => shared.reserve(&self.receive_completions)?,
            _ => {
                let receives = counts(self.shared.is_none() && self.receives(), depth.receives);
                Arc::new(self.receive_completions.reserve(receives)?)
            }
        };
        Ok((sends, receives))
    }

    /// Whether queue pairs of its type complete receives.
    fn receives(&self) -> bool {
        !matches!(
            self.kind,
            QueuePairType::XrcInitiator | QueuePairType::XrcTarget
        )
    }

    fn create_in_software(&self, depth: Depth) -> Result<Object, ObjectError> {
        let (first, domain) = self.domain.software("queue pairs")?;
        let handle = |queue: &'_ CompletionQueue| queue.driver().cloned().ok_or(OTHER_DEVICE);
        let (sends, receives) = (
            handle(&self.completions)?,
            handle(&self.receive_completions)?,
        );
        let driver = first.for_queue_pair(&sends, &receives);
        let id = |queue: &CompletionQueue| queue.id().ok_or(OTHER_DEVICE);
        let shared = self
            .shared
            .as_ref()
            .map(|queue| queue.id().ok_or(OTHER_DEVICE));
        let shared = shared.transpose()?;
        let xrc_domain = self.xrc_domain.as_ref();
        let xrc_domain = xrc_domain.map(|domain| domain.id().ok_or(OTHER_DEVICE));
        let init = QueuePairInit {
            receive_completions: id(&self.receive_completions)?,
            shared_receive: shared,
            xrc_domain: xrc_domain.transpose()?,
            max_sends: depth.sends,
            max_receives: depth.receives,
            max_send_segments: self.sizes.segments,
            max_receive_segments: self.sizes.segments,
            max_inline: self.sizes.inline.unwrap_or(DEFAULT_INLINE),
            ..QueuePairInit::new(self.kind, domain, id(&self.completions)?)
        };
        let (driver, number) = driver.create_queue_pair(init)?;
        Ok(Object::Software { driver, number })
    }

    fn create_in_system(
        &self,
        domain: &Arc<verbs::Domain>,
        depth: Depth,
    ) -> Result<Arc<verbs::QueuePair>, ObjectError> {
        let shared = self
            .shared
            .as_ref()
            .map(|queue| queue.system().ok_or(OTHER_DEVICE));
        let xrc_domain = self.xrc_domain.as_ref();
        let xrc_domain = xrc_domain.map(|domain| domain.system().ok_or(OTHER_DEVICE));
        let queue = |queue: &CompletionQueue| queue.system().map(Arc::clone).ok_or(OTHER_DEVICE);
        let init = verbs::QueuePairInit {
            kind: self.kind,
            send_completions: &queue(&self.completions)?,
            receive_completions: &queue(&self.receive_completions)?,
            xrc_domain: xrc_domain.transpose()?,
            shared_receives: shared.transpose()?,
            max_sends: depth.sends,
            max_receives: depth.receives,
            max_segments: self.sizes.segments,
            max_inline: self.sizes.inline.unwrap_or(DEFAULT_INLINE),
        };
        let created = verbs::QueuePair::create(domain, &init);
        if created.is_ok() || self.sizes.inline.is_some() {
            return Ok(created?);
        }
        // No attribute of a device says how much it has room for.
        let smaller = verbs::QueuePairInit {
            max_inline: SMALLER_DEFAULT_INLINE,
            ..init
        };
        // If that is not why, the first error counts.
        Ok(verbs::QueuePair::create(domain, &smaller).or(created)?)
    }
}

/// How many requests may be outstanding if the program does not say it and the completion queues hold more.
const DEFAULT_DEPTH: u32 = 128;

/// How many bytes may be inline if the program does not say it.
const DEFAULT_INLINE: u32 = 256;
const SMALLER_DEFAULT_INLINE: u32 = 64;

const OTHER_DEVICE: ObjectError =
    ObjectError::Mismatch("a queue or an XRC domain belongs to another device");

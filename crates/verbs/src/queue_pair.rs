//! Queue pairs: described, prepared, connected.
//!
//! A queue pair that is not connected can't send, so it has no method for it: [`Builder`] describes
//! one, [`Prepared`] has a number and takes receives, and only [`QueuePair`] can post sends.

use std::fmt;
use std::str::FromStr;

use engine::{
    Access, Address, Attributes, Id, Kind, ModifyError, ObjectError, PostError, QueuePairInit,
    ReceiveRequest, Segment, State,
};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn, RnrTimer};

use crate::completion::CompletionQueue;
use crate::connection::ConnectError;
use crate::context::Context;
use crate::domain::ProtectionDomain;
use crate::rdma_cm::{Identifier, Parameters};
use crate::request::Request;
use crate::shared_receive::SharedReceiveQueue;

/// What a peer must know to connect to a queue pair: hand it over by any means.
///
/// Its text form has no spaces and parses back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub gid: Gid,
    /// The queue pair.
    pub queue_pair: Qpn,
    /// The first sequence number that it will send.
    pub psn: Psn,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, psn) = (self.queue_pair.value(), self.psn.value());
        write!(f, "{}/{number:#x}/{psn:#x}", self.gid)
    }
}

/// A text that is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no endpoint: it looks like GID/0xQPN/0xPSN")]
pub struct EndpointParseError(String);

impl FromStr for Endpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.trim().split('/');
            let gid = parts.next()?.parse().ok()?;
            let number = hexadecimal(parts.next()?)?;
            let psn = hexadecimal(parts.next()?)?;
            parts.next().is_none().then_some(Self {
                gid,
                queue_pair: Qpn::new(number),
                psn: Psn::new(psn),
            })
        };
        parse().ok_or_else(|| EndpointParseError(text.to_owned()))
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    let value = u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    (value < 1 << 24).then_some(value)
}

/// How patient and how generous a connection is.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Which of the device's GIDs to use.
    pub gid_index: u8,
    /// What the peer may do.
    pub access: Access,
    /// The largest payload of a packet; the device's own if left out.
    pub path_mtu: Option<PathMtu>,
    /// How long to wait for an acknowledgement: 4.096 µs times 2 to this power.
    pub ack_timeout: AckTimeout,
    /// How often to try again.
    pub retry_count: u8,
    /// How often to try again when the peer has no receive posted; 7 is for ever.
    pub rnr_retry: u8,
    /// What a peer is told to wait when no receive is posted.
    pub rnr_timer: RnrTimer,
    /// Reads and atomics under way, in each direction.
    pub reads: u8,
    /// The IP traffic class.
    pub traffic_class: u8,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            gid_index: 0,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            path_mtu: None,
            // 134 ms, then longer, four seconds in all: a peer in user space may have to wait for a processor.
            ack_timeout: AckTimeout::new(15).expect("a five-bit code"),
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: RnrTimer::new(12).expect("a five-bit code"),
            reads: 16,
            traffic_class: 0,
        }
    }
}

/// Describes a queue pair.
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
        let handle = Handle {
            number,
            domain: self.domain,
            _completions: [self.completions, self.receive_completions],
            shared: self.shared,
        };
        Ok((handle, self.terms))
    }
}

/// Why a queue pair could not be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// It could not be created.
    #[error(transparent)]
    Create(#[from] ObjectError),
    /// An attribute was refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The GID table has no such entry.
    #[error("GID index {0} is empty: look at the GID table for the index to use")]
    EmptyGid(u8),
}

/// A queue pair and what it stands on; the engine's object ends with it.
pub(crate) struct Handle {
    pub(crate) number: Qpn,
    pub(crate) domain: ProtectionDomain,
    _completions: [CompletionQueue; 2],
    shared: Option<SharedReceiveQueue>,
}

impl Handle {
    pub(crate) fn modify(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        let number = self.number;
        self.domain
            .driver()
            .change(|device| device.modify(number, attributes))
    }

    pub(crate) fn post_send(&self, request: Request) -> Result<(), PostError> {
        let (number, request) = (self.number, request.into_engine());
        self.domain
            .driver()
            .call(|device| device.post_send(number, request))
    }

    /// Posts until one is refused; all that were taken are sent together.
    pub(crate) fn post_sends(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), PostError> {
        let number = self.number;
        self.domain.driver().call(|device| {
            requests
                .into_iter()
                .try_for_each(|request| device.post_send(number, request.into_engine()))
        })
    }

    pub(crate) fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        let (number, request) = (self.number, ReceiveRequest::new(id, segments));
        self.domain
            .driver()
            .tell(|device| device.post_receive(number, request))
    }

    pub(crate) fn state(&self) -> State {
        let number = self.number;
        self.domain
            .driver()
            .call(|device| device.queue_pair(number).map(engine::QueuePair::state))
            .expect("a queue pair lives as long as its handle")
    }

    pub(crate) fn endpoint(&self, gid_index: u8) -> Result<Endpoint, SetupError> {
        let gids = self.domain.context().gids();
        let gid = gids
            .get(usize::from(gid_index))
            .copied()
            .filter(|gid| !gid.is_zero())
            .ok_or(SetupError::EmptyGid(gid_index))?;
        Ok(Endpoint {
            gid,
            queue_pair: self.number,
            psn: Psn::new(self.domain.driver().random() as u32),
        })
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.handle.number)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let number = self.number;
        let _ = self
            .domain
            .driver()
            .change(|device| device.destroy_queue_pair(number));
    }
}

/// A queue pair that has a number and takes receives, but has no peer yet.
///
/// It can't send, so it has no method for it:
/// ```compile_fail
/// # fn demo(prepared: rocinante::Prepared) {
/// prepared.post(rocinante::Request::send());
/// # }
/// ```
pub struct Prepared {
    handle: Handle,
    kind: Kind,
    terms: Terms,
    endpoint: Endpoint,
}

impl Prepared {
    /// What the peer must know.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Gives it room for a message. Doing that before connecting spares the peer a wait.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// Connects it; the peer does the same with our endpoint.
    pub fn connect(self, peer: Endpoint) -> Result<QueuePair, ModifyError> {
        Ok(QueuePair {
            handle: self.bring_up(peer)?,
            peer,
        })
    }

    /// What the peer is told about it by the connection manager.
    #[must_use]
    pub fn parameters<'d>(&self, private_data: &'d [u8]) -> Parameters<'d> {
        Parameters {
            private_data,
            responder_resources: self.terms.reads,
            initiator_depth: self.terms.reads,
            retry_count: self.terms.retry_count,
            rnr_retry_count: self.terms.rnr_retry,
            shared_receive_queue: self.handle.shared.is_some(),
            ..Parameters::new(self.handle.number)
        }
    }

    /// Connects it with the peer of a connection manager's id: before accepting a request, or after
    /// the response to ours.
    pub fn connect_by(self, id: &Identifier) -> Result<QueuePair, ConnectError> {
        let receive = Attributes {
            rnr_timer: Some(self.terms.rnr_timer),
            ..id.receive_attributes()?
        };
        let send = Attributes {
            ack_timeout: Some(self.terms.ack_timeout),
            ..id.send_attributes()?
        };
        for attributes in [&receive, &send] {
            self.handle.modify(attributes).map_err(SetupError::from)?;
        }
        let peer = Endpoint {
            gid: receive
                .path
                .map(|path| path.destination)
                .unwrap_or_default(),
            queue_pair: receive.destination.unwrap_or_default(),
            psn: receive.receive_psn.unwrap_or_default(),
        };
        Ok(QueuePair {
            handle: self.handle,
            peer,
        })
    }

    /// Whether it is of this device.
    pub(crate) fn is_at(&self, context: &Context) -> bool {
        self.handle.domain.context().is(context)
    }

    /// Takes it through its states, with what its kind wants to be told.
    pub(crate) fn bring_up(self, peer: Endpoint) -> Result<Handle, ModifyError> {
        self.handle.modify(&self.receive_attributes(peer))?;
        self.handle.modify(&self.send_attributes())?;
        Ok(self.handle)
    }

    fn receive_attributes(&self, peer: Endpoint) -> Attributes {
        let answers = matches!(self.kind, Kind::Rc | Kind::XrcTarget);
        let terms = &self.terms;
        let context = self.handle.domain.context();
        Attributes {
            state: Some(State::ReadyToReceive),
            path: Some(Address {
                traffic_class: terms.traffic_class,
                ..Address::new(peer.gid, terms.gid_index)
            }),
            path_mtu: Some(terms.path_mtu.unwrap_or(context.active_mtu())),
            destination: Some(peer.queue_pair),
            receive_psn: Some(peer.psn),
            responder_resources: answers.then_some(terms.reads),
            rnr_timer: answers.then_some(terms.rnr_timer),
            ..Attributes::default()
        }
    }

    fn send_attributes(&self) -> Attributes {
        let asks = matches!(self.kind, Kind::Rc | Kind::XrcInitiator);
        let waits = asks || self.kind == Kind::XrcTarget;
        let terms = &self.terms;
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(self.endpoint.psn),
            ack_timeout: waits.then_some(terms.ack_timeout),
            retry_count: asks.then_some(terms.retry_count),
            rnr_retry: asks.then_some(terms.rnr_retry),
            initiator_depth: asks.then_some(terms.reads),
            ..Attributes::default()
        }
    }
}

/// A connected queue pair.
pub struct QueuePair {
    handle: Handle,
    peer: Endpoint,
}

impl QueuePair {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.handle.number
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> Endpoint {
        self.peer
    }

    /// Asks for something to be done. It is sent on this thread, before this returns.
    pub fn post(&self, request: Request) -> Result<(), PostError> {
        self.handle.post_send(request)
    }

    /// Asks for several things at once, which saves sends: small messages share one.
    ///
    /// If one is refused, those before it are under way.
    pub fn post_many(&self, requests: impl IntoIterator<Item = Request>) -> Result<(), PostError> {
        self.handle.post_sends(requests)
    }

    /// Gives it room for a message.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// Its state: [`State::ReadyToSend`] unless something broke it.
    #[must_use]
    pub fn state(&self) -> State {
        self.handle.state()
    }

    /// Changes attributes by hand, for what the other methods don't cover.
    pub fn modify(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        self.handle.modify(attributes)
    }

    /// Breaks it: everything outstanding is flushed.
    pub fn break_off(&self) -> Result<(), ModifyError> {
        self.handle.modify(&Attributes {
            state: Some(State::Error),
            ..Attributes::default()
        })
    }
}

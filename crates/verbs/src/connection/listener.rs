//! The side that is asked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use engine::{PostError, Segment};
use wire::cm::{PortSpace, RejectReason};

use super::connector::resolve;
use super::{ConnectError, Connection, failure, prepare};
use crate::clock::now;
use crate::context::Context;
use crate::queue_pair::{Prepared, QueuePair, QueuePairBuilder};
use crate::rdma_cm::{
    ConnectionError, Event, EventChannel, EventKind, Identifier, PeerParameters, Request,
};

/// How many requests may wait until the application takes them.
const BACKLOG: usize = 1024;

/// How long a client may take to confirm that it is ready, unless told otherwise. The accepting
/// side repeats its reply every four seconds, so two replies may be lost.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for clients.
#[derive(Debug)]
pub struct Listener {
    id: Identifier,
    channel: EventChannel,
    local: SocketAddr,
}

impl Listener {
    /// Listens at an address of this machine, or at all of them if it is unspecified. With port 0
    /// the choice is ours.
    pub fn bind(address: impl ToSocketAddrs + ToString) -> Result<Self, ConnectError> {
        Self::bind_id(resolve(address)?, |_| {})
    }

    /// Listens at the addresses of one open device.
    pub fn bind_on(context: &Context, address: SocketAddr) -> Result<Self, ConnectError> {
        Self::bind_id(address, |id| id.choose(context))
    }

    fn bind_id(
        address: SocketAddr,
        choose: impl FnOnce(&Identifier),
    ) -> Result<Self, ConnectError> {
        let channel = EventChannel::private();
        let id = channel.create(PortSpace::Tcp);
        choose(&id);
        let local = id.bind(address)?;
        id.listen(BACKLOG)?;
        Ok(Self { id, channel, local })
    }

    /// The address and port that clients connect to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The next request, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<ConnectionRequest> {
        std::iter::from_fn(|| self.channel.poll()).find_map(ConnectionRequest::of)
    }

    /// The next request; waits for it.
    #[must_use]
    pub fn wait(&self) -> ConnectionRequest {
        loop {
            if let Some(request) = ConnectionRequest::of(self.channel.wait()) {
                return request;
            }
        }
    }

    /// The next request; waits for it, but not longer than `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<ConnectionRequest> {
        let deadline = now() + timeout;
        loop {
            let event = self.channel.wait_until(Some(deadline))?;
            if let Some(request) = ConnectionRequest::of(event) {
                return Some(request);
            }
        }
    }

    /// The requests, one after the other; waits for each and never ends.
    pub fn incoming(&self) -> impl Iterator<Item = ConnectionRequest> + '_ {
        std::iter::repeat_with(|| self.wait())
    }

    /// The next request, as soon as there is one.
    #[cfg(feature = "async")]
    pub async fn next(&self) -> ConnectionRequest {
        loop {
            if let Some(request) = ConnectionRequest::of(self.channel.next().await) {
                return request;
            }
        }
    }

    /// The id behind it.
    #[must_use]
    pub fn id(&self) -> &Identifier {
        &self.id
    }
}

/// Somebody wants to connect. Dropping it refuses.
#[derive(Debug)]
pub struct ConnectionRequest {
    id: Identifier,
    channel: EventChannel,
    context: Context,
    peer: SocketAddr,
    peer_parameters: PeerParameters,
}

impl ConnectionRequest {
    fn of(event: Event) -> Option<Self> {
        let (Some(id), EventKind::ConnectRequest { request, .. }) = (event.request, event.kind)
        else {
            return None;
        };
        let Request::Connection(peer_parameters) = request else {
            return None;
        };
        // What happens to it from now on is not the listener's business.
        let channel = EventChannel::private();
        id.migrate(&channel);
        Some(Self {
            context: id.context()?,
            peer: id.peer_address()?,
            id,
            channel,
            peer_parameters,
        })
    }

    /// The device that it came to: make the protection domain from it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Who asks.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// What the client said; zeros fill it up.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.peer_parameters.private_data
    }

    /// Refuses, with a few words.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.id.reject(RejectReason::Consumer, private_data)
    }

    /// Makes the queue pair for it.
    pub fn prepare(self, queue_pair: QueuePairBuilder) -> Result<PreparedAccept, ConnectError> {
        let prepared = prepare(&self.context, queue_pair)?;
        Ok(PreparedAccept {
            request: self,
            prepared,
            timeout: CONFIRM_TIMEOUT,
        })
    }
}

/// A request, and the queue pair for it.
#[derive(Debug)]
pub struct PreparedAccept {
    request: ConnectionRequest,
    prepared: Prepared,
    timeout: Duration,
}

impl PreparedAccept {
    /// Gives the queue pair room for a message, before the first can come.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.prepared.post_receive(id, segments)
    }

    /// How long the client may take to confirm that it is ready; ten seconds unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Accepts, and waits until the client confirms that it is ready. A client that does not
    /// confirm in time is refused, with [`ConnectError::NotConfirmed`]; serve the next one then.
    pub fn accept(self, private_data: &[u8]) -> Result<Connection, ConnectError> {
        let timeout = self.timeout;
        let (request, queue_pair) = self.answer(private_data)?;
        let deadline = now().checked_add(timeout);
        loop {
            let Some(event) = request.channel.wait_until(deadline) else {
                return Err(not_confirmed(&request, timeout));
            };
            if let Some(ended) = outcome(request.peer, event) {
                return ended.map(|()| connection(request, queue_pair));
            }
        }
    }

    /// As [`accept`](Self::accept), for tasks.
    #[cfg(feature = "async")]
    pub async fn accept_async(self, private_data: &[u8]) -> Result<Connection, ConnectError> {
        let timeout = self.timeout;
        let (request, queue_pair) = self.answer(private_data)?;
        let deadline = now().checked_add(timeout);
        loop {
            let next = request.channel.next_until(&request.context, deadline);
            let Some(event) = next.await else {
                return Err(not_confirmed(&request, timeout));
            };
            if let Some(ended) = outcome(request.peer, event) {
                return ended.map(|()| connection(request, queue_pair));
            }
        }
    }

    fn answer(self, private_data: &[u8]) -> Result<(ConnectionRequest, QueuePair), ConnectError> {
        let Self {
            request, prepared, ..
        } = self;
        let mut parameters = prepared.parameters(private_data);
        // No more than what the client has.
        let peer_parameters = &request.peer_parameters;
        parameters.responder_resources = parameters
            .responder_resources
            .min(peer_parameters.responder_resources);
        parameters.initiator_depth = parameters
            .initiator_depth
            .min(peer_parameters.initiator_depth);
        let queue_pair = prepared.connect_by(&request.id)?;
        request.id.accept(&parameters)?;
        Ok((request, queue_pair))
    }
}

fn not_confirmed(request: &ConnectionRequest, timeout: Duration) -> ConnectError {
    ConnectError::NotConfirmed {
        peer: request.peer,
        timeout,
    }
}

fn outcome(peer: SocketAddr, event: Event) -> Option<Result<(), ConnectError>> {
    match event.kind {
        EventKind::Established => Some(Ok(())),
        kind => failure(peer, kind).map(Err),
    }
}

fn connection(request: ConnectionRequest, queue_pair: QueuePair) -> Connection {
    Connection {
        id: request.id,
        queue_pair,
        channel: request.channel,
        private_data: request.peer_parameters.private_data,
    }
}

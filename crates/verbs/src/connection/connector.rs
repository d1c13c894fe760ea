//! The client side of a connection.

use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::{PostError, Segment};
use wire::Qpn;

use super::ends::{EndBuilder, PreparedEnd};
use super::{Connection, ConnectionId, Event, failure, prepare};
use crate::context::Context;
use crate::error::ConnectError;
use crate::queue_pair::PreparedQueuePair;
use crate::rdma_cm::{EventKind, PeerParameters};
#[cfg(feature = "async")]
use crate::requests::{Outstanding, PreparedRequests, Received};
use driver::clock::deadline;

/// How long resolving an address or a route may take. The kernel answers at once.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the server may take to respond by default. The request is retransmitted after 1.5, 3 and 6 seconds, and
/// the server retransmits a lost reply, so two or three messages may be lost. Linux retransmits a request after 6 seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A resolved route to a server.
#[derive(Debug)]
#[must_use = "it connects after `prepare` and `connect`"]
pub struct Connector {
    id: ConnectionId,
    context: Context,
    peer: SocketAddr,
    timeout: Duration,
}

impl Connector {
    /// Resolves the route to a server, given by name or address: `"server:7174"`, `("server", 7174)`. If a name has several addresses, the
    /// first one with a route is used.
    pub fn resolve(peer: impl ToSocketAddrs + Debug) -> Result<Self, ConnectError> {
        first_that_works(peer, |peer| Resolution::start(None, None, peer)?.finish())
    }

    /// As [`resolve`](Self::resolve), from a given local address.
    pub fn resolve_from(
        source: SocketAddr,
        peer: impl ToSocketAddrs + Debug,
    ) -> Result<Self, ConnectError> {
        first_that_works(peer, |peer| {
            Resolution::start(None, Some(source), peer)?.finish()
        })
    }

    /// As [`resolve`](Self::resolve), over a given open device.
    pub fn resolve_on(
        context: &Context,
        peer: impl ToSocketAddrs + Debug,
    ) -> Result<Self, ConnectError> {
        first_that_works(peer, |peer| {
            Resolution::start(Some(context), None, peer)?.finish()
        })
    }

    /// As [`resolve`](Self::resolve), for tasks. It takes an address, because looking up a name blocks: use the
    /// resolver of your runtime.
    #[cfg(feature = "async")]
    pub async fn resolve_async(peer: SocketAddr) -> Result<Self, ConnectError> {
        Resolution::start(None, None, peer)?.finish_async().await
    }

    /// As [`resolve_from`](Self::resolve_from), for tasks.
    #[cfg(feature = "async")]
    pub async fn resolve_from_async(
        source: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Self, ConnectError> {
        let resolution = Resolution::start(None, Some(source), peer)?;
        resolution.finish_async().await
    }

    /// As [`resolve_on`](Self::resolve_on), for tasks.
    #[cfg(feature = "async")]
    pub async fn resolve_on_async(
        context: &Context,
        peer: SocketAddr,
    ) -> Result<Self, ConnectError> {
        let resolution = Resolution::start(Some(context), None, peer)?;
        resolution.finish_async().await
    }

    /// The device that reaches the server. Allocate the protection domain from it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Sets how long the server may take to respond; ten seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Creates the queue pair of the connection, of a [`QueuePairBuilder`](crate::QueuePairBuilder) or a
    /// `RequestsBuilder`, which gives each request a future.
    pub fn prepare<B: EndBuilder>(
        self,
        queue_pair: B,
    ) -> Result<PreparedConnect<B::Prepared>, ConnectError> {
        let prepared = prepare(&self.context, queue_pair)?;
        Ok(PreparedConnect {
            connector: self,
            prepared,
        })
    }
}

/// A resolution in progress: first of the address, then of the route.
struct Resolution {
    id: ConnectionId,
    peer: SocketAddr,
}

impl Resolution {
    fn start(
        device: Option<&Context>,
        source: Option<SocketAddr>,
        peer: SocketAddr,
    ) -> Result<Self, ConnectError> {
        let id = ConnectionId::create(device);
        id.resolve_address(source, peer, RESOLVE_TIMEOUT)?;
        Ok(Self { id, peer })
    }

    fn finish(self) -> Result<Connector, ConnectError> {
        while !self.is_done(self.id.wait())? {}
        self.into_connector()
    }

    #[cfg(feature = "async")]
    async fn finish_async(self) -> Result<Connector, ConnectError> {
        while !self.is_done(self.id.next().await)? {}
        self.into_connector()
    }

    /// Handles an event. Returns whether the route is resolved.
    fn is_done(&self, event: Event) -> Result<bool, ConnectError> {
        match event {
            Event::Other(EventKind::AddressResolved) => self.id.resolve_route(RESOLVE_TIMEOUT)?,
            Event::Other(EventKind::RouteResolved) => return Ok(true),
            Event::Other(kind) => failure(self.peer, kind).map_or(Ok(()), Err)?,
            Event::Request(..) => {}
        }
        Ok(false)
    }

    fn into_connector(self) -> Result<Connector, ConnectError> {
        Ok(Connector {
            context: self.id.context()?,
            id: self.id,
            peer: self.peer,
            timeout: RESPONSE_TIMEOUT,
        })
    }
}

/// A resolved route to a server, and the queue pair of the connection.
#[derive(Debug)]
#[must_use = "it connects after `connect`"]
pub struct PreparedConnect<P = PreparedQueuePair> {
    connector: Connector,
    prepared: P,
}

impl PreparedConnect {
    /// Posts a receive into one or several segments, before the first message can arrive.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.prepared.post_receive(id, segments)
    }
}

#[cfg(feature = "async")]
impl PreparedConnect<PreparedRequests> {
    /// Receives into one or several segments, before the first message can arrive.
    pub fn receive(&self, into: impl IntoIterator<Item = Segment>) -> Outstanding<Received> {
        self.prepared.receive(into)
    }
}

impl<P: PreparedEnd> PreparedConnect<P> {
    /// The number of the queue pair, which the connected one keeps.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.prepared.queue_pair().endpoint().queue_pair
    }

    /// Connects, and waits for the response.
    pub fn connect(self, private_data: &[u8]) -> Result<Connection<P::Connected>, ConnectError> {
        let deadline = self.ask(private_data)?;
        loop {
            let Some(event) = self.connector.id.wait_until(deadline) else {
                return Err(ConnectError::Unreachable(self.connector.peer));
            };
            if let Some(answer) = self.answer(event) {
                return self.finish(answer?);
            }
        }
    }

    /// As [`connect`](Self::connect), for tasks.
    #[cfg(feature = "async")]
    pub async fn connect_async(
        self,
        private_data: &[u8],
    ) -> Result<Connection<P::Connected>, ConnectError> {
        let deadline = self.ask(private_data)?;
        loop {
            let Connector { id, context, .. } = &self.connector;
            let Some(event) = id.next_until(context, deadline).await else {
                return Err(ConnectError::Unreachable(self.connector.peer));
            };
            if let Some(answer) = self.answer(event) {
                return self.finish(answer?);
            }
        }
    }

    /// Sends the request. Returns until when to wait for the response.
    fn ask(&self, private_data: &[u8]) -> Result<Option<Instant>, ConnectError> {
        let prepared = self.prepared.queue_pair();
        self.connector.id.connect(prepared, private_data)?;
        Ok(deadline(self.connector.timeout))
    }

    fn answer(&self, event: Event) -> Option<Result<PeerParameters, ConnectError>> {
        match event {
            Event::Other(EventKind::ConnectResponse(parameters)) => Some(Ok(parameters)),
            Event::Other(kind) => failure(self.connector.peer, kind).map(Err),
            Event::Request(..) => None,
        }
    }

    fn finish(
        self,
        peer_parameters: PeerParameters,
    ) -> Result<Connection<P::Connected>, ConnectError> {
        let Self {
            connector,
            prepared,
        } = self;
        // If this fails, dropping the id rejects the connection, so that the peer does not wait.
        let end = prepared.connect_by(|prepared| connector.id.make_ready(prepared))?;
        connector.id.establish()?;
        Ok(Connection {
            id: connector.id,
            end,
            private_data: peer_parameters.private_data,
            ended: OnceLock::new(),
        })
    }
}

/// What works with one of the addresses of a name, in their order; otherwise the error of the last one.
pub(super) fn first_that_works<T>(
    name: impl ToSocketAddrs + Debug,
    mut work: impl FnMut(SocketAddr) -> Result<T, ConnectError>,
) -> Result<T, ConnectError> {
    let failed = |source| ConnectError::Name {
        name: format!("{name:?}"),
        source,
    };
    let mut last = None;
    for address in name.to_socket_addrs().map_err(failed)? {
        match work(address) {
            Err(error) => last = Some(error),
            done => return done,
        }
    }
    Err(last.unwrap_or_else(|| failed(io::Error::other("it stands for no address"))))
}

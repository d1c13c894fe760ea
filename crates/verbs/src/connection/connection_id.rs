//! An id of a connection manager with a channel of its own.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::error::ConnectError;
use crate::queue_pair::{PreparedQueuePair, QueuePair};
use crate::rdma_cm::{
    self, CmError, CmId, EventChannel, EventKind, Parameters, PeerParameters, PortSpace,
    RejectReason, Request,
};

/// An id, and the events of it alone.
pub(super) struct ConnectionId {
    id: CmId,
    channel: EventChannel,
}

/// What happened to an id.
#[derive(Debug)]
pub(super) enum Event {
    /// At a listener: a client asks for a connection. Dropping the id rejects it.
    Request(ConnectionId, PeerParameters),
    Other(EventKind),
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionId")
            .field("local_address", &self.local_address())
            .field("peer_address", &self.peer_address())
            .finish_non_exhaustive()
    }
}

impl ConnectionId {
    /// Creates an id at a device, or at the devices that addresses stand for.
    pub(super) fn create(device: Option<&Context>) -> Self {
        let channel = EventChannel::private();
        let id = channel.create_id(PortSpace::Tcp);
        if let Some(device) = device {
            id.choose(device);
        }
        Self { id, channel }
    }

    /// The id.
    pub(super) fn id(&self) -> &CmId {
        &self.id
    }

    /// Binds it to a local address. Returns the address with its port.
    pub(super) fn bind(&self, address: SocketAddr) -> Result<SocketAddr, CmError> {
        self.id.bind(address)
    }

    pub(super) fn listen(&self, backlog: usize) -> Result<(), CmError> {
        self.id.listen(backlog)
    }

    pub(super) fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        self.id.resolve_address(source, peer, timeout)
    }

    pub(super) fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        self.id.resolve_route(timeout)
    }

    /// The device that it is at.
    pub(super) fn context(&self) -> Result<Context, ConnectError> {
        self.id.context().map_err(|error| match error {
            CmError::NotBound => ConnectError::Gone,
            error => error.into(),
        })
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Asks the server for a connection.
    pub(super) fn connect(
        &self,
        prepared: &PreparedQueuePair,
        private_data: &[u8],
    ) -> Result<(), ConnectError> {
        Ok(self.id.connect(&prepared.parameters(private_data))?)
    }

    /// Connects a queue pair to the peer: before the request is accepted, or after the response to it.
    pub(super) fn make_ready(
        &self,
        prepared: PreparedQueuePair,
    ) -> Result<QueuePair, ConnectError> {
        prepared.connect_by(&self.id)
    }

    pub(super) fn accept(&self, parameters: &Parameters<'_>) -> Result<(), ConnectError> {
        Ok(self.id.accept(parameters)?)
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        self.id.reject(RejectReason::Consumer, private_data)
    }

    pub(super) fn establish(&self) -> Result<(), CmError> {
        self.id.establish()
    }

    pub(super) fn disconnect(&self) -> Result<(), CmError> {
        self.id.disconnect()
    }

    /// Puts an event that was taken back into the channel.
    pub(super) fn put_back(&self, event: EventKind) {
        self.id.put_back(event);
    }

    /// The next event, if there is one.
    pub(super) fn poll(&self) -> Option<Event> {
        self.channel.poll().map(Event::of)
    }

    /// The next event. Waits for it.
    pub(super) fn wait(&self) -> Event {
        Event::of(self.channel.wait())
    }

    /// The next event. Waits for it until the deadline, if there is one.
    pub(super) fn wait_until(&self, deadline: Option<Instant>) -> Option<Event> {
        self.channel.wait_until(deadline).map(Event::of)
    }

    /// The next event, as soon as there is one.
    #[cfg(feature = "async")]
    pub(super) async fn next(&self) -> Event {
        Event::of(self.channel.next().await)
    }

    /// The next event; `None` if there is none before the deadline.
    #[cfg(feature = "async")]
    pub(super) async fn next_until(
        &self,
        context: &Context,
        deadline: Option<Instant>,
    ) -> Option<Event> {
        let next = self.channel.next_until(context, deadline).await;
        next.map(Event::of)
    }
}

impl Event {
    fn of(event: rdma_cm::Event) -> Self {
        match (event.request, event.kind) {
            (
                Some(id),
                EventKind::ConnectRequest {
                    request: Request::Connection(parameters),
                    ..
                },
            ) => {
                // Its further events must not reach the listener.
                let channel = EventChannel::private();
                id.migrate(&channel);
                Self::Request(ConnectionId { id, channel }, parameters)
            }
            (_, kind) => Self::Other(kind),
        }
    }
}

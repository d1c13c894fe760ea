//! An id of a connection manager: of ours, or of the system's.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::rdma_cm::{
    self, CmError, CmId, EventChannel, EventKind, Parameters, PeerParameters, PortSpace,
    RejectReason, Request,
};

use super::system_id::SystemId;
use crate::context::{Context, Opened};
use crate::error::ConnectError;
use crate::queue_pair::{PreparedQueuePair, QueuePair};
use crate::system_device;

/// An id, and the events of it alone.
pub(super) enum ConnectionId {
    Software { id: CmId, channel: EventChannel },
    System(SystemId),
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
    pub(super) fn create(device: Option<&Context>) -> Result<Self, ConnectError> {
        let driver = match device.map(|context| (context, context.opened())) {
            Some((context, Opened::System(_))) => {
                return SystemId::at_device(context).map(Self::System);
            }
            Some((_, Opened::Software(driver))) => Some(driver),
            None => match system_device::of_addresses().map_err(CmError::from)? {
                Some(choice) => return SystemId::at_devices(choice).map(Self::System),
                None => None,
            },
        };
        let channel = EventChannel::private();
        let id = channel.create_id(PortSpace::Tcp);
        if let Some(driver) = driver {
            let Ok(()) = id.choose(Arc::clone(driver));
        }
        Ok(Self::Software { id, channel })
    }

    /// The id of our connection manager.
    pub(super) fn software(&self) -> Option<&CmId> {
        match self {
            Self::Software { id, .. } => Some(id),
            Self::System(_) => None,
        }
    }

    /// Binds it to a local address. Returns the address with its port.
    pub(super) fn bind(&self, address: SocketAddr) -> Result<SocketAddr, CmError> {
        match self {
            Self::Software { id, .. } => id.bind(address),
            Self::System(id) => id.bind(address),
        }
    }

    pub(super) fn listen(&self, backlog: u16) -> Result<(), CmError> {
        match self {
            Self::Software { id, .. } => id.listen(backlog.into()),
            Self::System(id) => id.listen(backlog),
        }
    }

    pub(super) fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        match self {
            Self::Software { id, .. } => id.resolve_address(source, peer, timeout),
            Self::System(id) => id.resolve_address(source, peer, timeout),
        }
    }

    pub(super) fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        match self {
            Self::Software { id, .. } => id.resolve_route(timeout),
            Self::System(id) => id.resolve_route(timeout),
        }
    }

    /// The device that it is at.
    pub(super) fn context(&self) -> Result<Context, ConnectError> {
        match self {
            Self::Software { id, .. } => Context::from_id(id).ok_or(ConnectError::Gone),
            Self::System(id) => Ok(id.context()?),
        }
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Software { id, .. } => id.local_address(),
            Self::System(id) => id.local_address(),
        }
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Software { id, .. } => id.peer_address(),
            Self::System(id) => id.peer_address(),
        }
    }

    /// Asks the server for a connection.
    pub(super) fn connect(
        &self,
        prepared: &PreparedQueuePair,
        private_data: &[u8],
    ) -> Result<(), ConnectError> {
        let parameters = prepared.parameters(private_data);
        match self {
            Self::Software { id, .. } => Ok(id.connect(&parameters)?),
            Self::System(id) => {
                let queue_pair = prepared.system().ok_or(ConnectError::OtherDevice)?;
                Ok(id.connect(queue_pair, &parameters)?)
            }
        }
    }

    /// Connects a queue pair to the peer: before the request is accepted, or after the response to it.
    pub(super) fn make_ready(
        &self,
        prepared: PreparedQueuePair,
    ) -> Result<QueuePair, ConnectError> {
        match self {
            Self::Software { id, .. } => prepared.connect_by(id),
            Self::System(id) => id.make_ready(prepared),
        }
    }

    pub(super) fn accept(
        &self,
        queue_pair: &QueuePair,
        parameters: &Parameters<'_>,
    ) -> Result<(), ConnectError> {
        match self {
            Self::Software { id, .. } => Ok(id.accept(parameters)?),
            Self::System(id) => {
                let queue_pair = queue_pair.system().ok_or(ConnectError::OtherDevice)?;
                Ok(id.accept(queue_pair, parameters)?)
            }
        }
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        match self {
            Self::Software { id, .. } => id.reject(RejectReason::Consumer, private_data),
            Self::System(id) => id.reject(private_data),
        }
    }

    pub(super) fn establish(&self) -> Result<(), CmError> {
        match self {
            Self::Software { id, .. } => id.establish(),
            Self::System(id) => id.establish(),
        }
    }

    pub(super) fn disconnect(&self) -> Result<(), CmError> {
        match self {
            Self::Software { id, .. } => id.disconnect(),
            Self::System(id) => id.disconnect(),
        }
    }

    /// The next event, if there is one.
    pub(super) fn poll(&self) -> Option<Event> {
        match self {
            Self::Software { channel, .. } => channel.poll().map(Event::of_software),
            Self::System(id) => id.poll(),
        }
    }

    /// The next event. Waits for it.
    pub(super) fn wait(&self) -> Event {
        loop {
            if let Some(event) = self.wait_until(None) {
                return event;
            }
        }
    }

    /// The next event. Waits for it until the deadline, if there is one.
    pub(super) fn wait_until(&self, deadline: Option<Instant>) -> Option<Event> {
        match self {
            Self::Software { channel, .. } => channel.wait_until(deadline).map(Event::of_software),
            Self::System(id) => id.wait_until(deadline),
        }
    }

    /// The next event, as soon as there is one.
    #[cfg(feature = "async")]
    pub(super) async fn next(&self) -> Event {
        match self {
            Self::Software { channel, .. } => Event::of_software(channel.next().await),
            Self::System(id) => id.next().await,
        }
    }

    /// The next event; `None` if there is none before the deadline.
    #[cfg(feature = "async")]
    pub(super) async fn next_until(
        &self,
        context: &Context,
        deadline: Option<Instant>,
    ) -> Option<Event> {
        match (self, context.driver()) {
            (Self::Software { channel, .. }, Some(driver)) => {
                let next = channel.next_until(driver, deadline).await;
                next.map(Event::of_software)
            }
            (Self::System(id), _) => id.next_until(deadline).await,
            // The context of an id is the device that the id is at.
            (Self::Software { .. }, None) => Some(self.next().await),
        }
    }
}

impl Event {
    /// An event of our connection manager.
    fn of_software(event: rdma_cm::Event) -> Self {
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
                Self::Request(ConnectionId::Software { id, channel }, parameters)
            }
            (_, kind) => Self::Other(kind),
        }
    }
}

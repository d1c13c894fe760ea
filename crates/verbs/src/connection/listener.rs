//! The server side of a connection.

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;
use std::time::Duration;

use engine::{PostError, Segment};
use wire::Qpn;

use super::connector::first_that_works;
use super::ends::{EndBuilder, PreparedEnd};
use super::{Connection, ConnectionId, Ended, Event, failure, prepare};
use crate::context::Context;
use crate::error::ConnectError;
use crate::queue_pair::PreparedQueuePair;
use crate::rdma_cm::{CmError, CmId, EventKind, PeerParameters};
#[cfg(feature = "async")]
use crate::requests::{Outstanding, PreparedRequests, Received};
use driver::clock::deadline;

/// How many requests may wait until the application accepts them.
const BACKLOG: usize = 1024;

/// How long a client may take to confirm the connection by default. The server retransmits its reply after
/// 1.5, 3, 4 and 8 seconds, so four replies may be lost.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts connection requests of clients.
#[derive(Debug)]
#[must_use = "dropping it ends the listening"]
pub struct Listener {
    id: ConnectionId,
    local: SocketAddr,
}

impl Listener {
    /// Listens at a local address, or at all of them if it is unspecified. Port 0 selects a free port. If a name has several addresses,
    /// the first one that can be used is.
    ///
    /// The queue pairs of its connections must be at the device that it listens at. A server that makes its objects before the first
    /// request makes them from [`context`](Self::context), or opens a [`Context`] first and listens with [`bind_on`](Self::bind_on):
    /// a context that is opened later is another device.
    pub fn bind(address: impl ToSocketAddrs + Debug) -> Result<Self, ConnectError> {
        first_that_works(address, |address| Self::bind_id(None, address))
    }

    /// Listens at the addresses of one open device.
    pub fn bind_on(
        context: &Context,
        address: impl ToSocketAddrs + Debug,
    ) -> Result<Self, ConnectError> {
        first_that_works(address, |address| Self::bind_id(Some(context), address))
    }

    fn bind_id(device: Option<&Context>, address: SocketAddr) -> Result<Self, ConnectError> {
        let id = ConnectionId::create(device);
        let local = id.bind(address)?;
        id.listen(BACKLOG)?;
        Ok(Self { id, local })
    }

    /// The device that it listens at. `None` if it listens at all of them: then each request has its [own](ConnectionRequest::context).
    ///
    /// A server with many clients makes one completion queue and one shared receive queue for all of them:
    ///
    /// ```
    /// use rocinante::{Access, Connector, Listener, Request};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = Listener::bind("127.0.0.1:0")?;
    /// let address = listener.local_address();
    /// let clients = std::thread::spawn(move || (0..2).try_for_each(|_| send_to(address).map_err(|error| error.to_string())));
    ///
    /// let context = listener.context().expect("it listens at one address");
    /// let domain = context.allocate_protection_domain()?;
    /// let completions = context.create_completion_queue(64)?;
    /// let receives = domain.create_shared_receive_queue(32, 1)?;
    /// let memory = domain.allocate_memory(32 * 64, Access::LOCAL_WRITE)?;
    /// for id in 0..32 {
    ///     receives.post_receive(id as u64, memory.slice(id * 64..(id + 1) * 64))?;
    /// }
    /// let mut connections = Vec::new();
    /// for request in listener.incoming().take(2) {
    ///     let builder = domain.queue_pair_builder(&completions).depth(4, 0).shared_receive_queue(&receives);
    ///     connections.push(request.prepare(builder)?.accept(b"")?);
    /// }
    /// for _ in &connections {
    ///     let received = completions.wait().into_result()?;
    ///     assert!(connections.iter().any(|client| client.number() == received.queue_pair));
    /// }
    /// # clients.join().expect("no panic")?;
    /// # Ok(())
    /// # }
    /// # fn send_to(address: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    /// #     let connector = Connector::resolve(address)?;
    /// #     let context = connector.context().clone();
    /// #     let domain = context.allocate_protection_domain()?;
    /// #     let completions = context.create_completion_queue(16)?;
    /// #     let connection = connector.prepare(domain.queue_pair_builder(&completions).depth(4, 4))?.connect(b"")?;
    /// #     connection.post_send(Request::send().inline(b"hello"))?;
    /// #     completions.wait().into_result()?;
    /// #     Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.id.context().ok()
    }

    /// The address and port that clients connect to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The next request, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<ConnectionRequest> {
        std::iter::from_fn(|| self.id.poll()).find_map(ConnectionRequest::of)
    }

    /// Waits for the next request.
    pub fn wait(&self) -> ConnectionRequest {
        loop {
            if let Some(request) = ConnectionRequest::of(self.id.wait()) {
                return request;
            }
        }
    }

    /// Waits for the next request, at most `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<ConnectionRequest> {
        let deadline = deadline(timeout);
        loop {
            let event = self.id.wait_until(deadline)?;
            if let Some(request) = ConnectionRequest::of(event) {
                return Some(request);
            }
        }
    }

    /// An endless iterator that waits for each request.
    pub fn incoming(&self) -> impl Iterator<Item = ConnectionRequest> + '_ {
        std::iter::repeat_with(|| self.wait())
    }

    /// The next request, as soon as there is one.
    #[cfg(feature = "async")]
    pub async fn next(&self) -> ConnectionRequest {
        loop {
            if let Some(request) = ConnectionRequest::of(self.id.next().await) {
                return request;
            }
        }
    }

    /// The id behind it.
    #[must_use]
    pub fn id(&self) -> &CmId {
        self.id.id()
    }
}

/// A client's request for a connection. Dropping it rejects the request.
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct ConnectionRequest {
    id: ConnectionId,
    context: Context,
    peer: SocketAddr,
    peer_parameters: PeerParameters,
}

impl ConnectionRequest {
    fn of(event: Event) -> Option<Self> {
        let Event::Request(id, peer_parameters) = event else {
            return None;
        };
        Some(Self {
            context: id.context().ok()?,
            peer: id.peer_address()?,
            id,
            peer_parameters,
        })
    }

    /// The device that received the request. Allocate the protection domain from it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The client's address.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The client's private data, padded with zeros.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.peer_parameters.private_data
    }

    /// Rejects the request, with private data for the client.
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.id.reject(private_data)
    }

    /// Creates the queue pair of the connection, of a [`QueuePairBuilder`](crate::QueuePairBuilder) or a
    /// `RequestsBuilder`, which gives each request a future.
    pub fn prepare<B: EndBuilder>(
        self,
        queue_pair: B,
    ) -> Result<PreparedAccept<B::Prepared>, ConnectError> {
        let prepared = prepare(&self.context, queue_pair)?;
        Ok(PreparedAccept {
            request: self,
            prepared,
            timeout: CONFIRM_TIMEOUT,
        })
    }
}

/// A request, and the queue pair of the connection.
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct PreparedAccept<P = PreparedQueuePair> {
    request: ConnectionRequest,
    prepared: P,
    timeout: Duration,
}

impl PreparedAccept {
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
impl PreparedAccept<PreparedRequests> {
    /// Receives into one or several segments, before the first message can arrive.
    pub fn receive(&self, into: impl IntoIterator<Item = Segment>) -> Outstanding<Received> {
        self.prepared.receive(into)
    }
}

impl<P: PreparedEnd> PreparedAccept<P> {
    /// The number of the queue pair, which the connected one keeps.
    ///
    /// The client may send before [`accept`](Self::accept) has returned the connection. A server whose connections share a completion
    /// queue enters the number into its table before it accepts, and keeps what arrives until the connection is there.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.prepared.queue_pair().endpoint().queue_pair
    }

    /// Sets how long the client may take to confirm the connection; ten seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Accepts, and waits until the client confirms the connection. A client that does not confirm in time
    /// is rejected, and this returns [`ConnectError::NotConfirmed`]. Continue with the next client then. A client
    /// that has already disconnected was connected: its messages are received as usual.
    pub fn accept(self, private_data: &[u8]) -> Result<Connection<P::Connected>, ConnectError> {
        let timeout = self.timeout;
        let (request, end) = self.answer(private_data)?;
        let deadline = deadline(timeout);
        loop {
            let Some(event) = request.id.wait_until(deadline) else {
                return Err(not_confirmed(&request, timeout));
            };
            if let Some(ended) = outcome(request.peer, event) {
                return ended.map(|progress| connection(request, end, progress));
            }
        }
    }

    /// As [`accept`](Self::accept), for tasks.
    #[cfg(feature = "async")]
    pub async fn accept_async(
        self,
        private_data: &[u8],
    ) -> Result<Connection<P::Connected>, ConnectError> {
        let timeout = self.timeout;
        let (request, end) = self.answer(private_data)?;
        let deadline = deadline(timeout);
        loop {
            let next = request.id.next_until(&request.context, deadline);
            let Some(event) = next.await else {
                return Err(not_confirmed(&request, timeout));
            };
            if let Some(ended) = outcome(request.peer, event) {
                return ended.map(|progress| connection(request, end, progress));
            }
        }
    }

    fn answer(
        self,
        private_data: &[u8],
    ) -> Result<(ConnectionRequest, P::Connected), ConnectError> {
        let Self {
            request, prepared, ..
        } = self;
        let mut parameters = prepared.queue_pair().parameters(private_data);
        // At most what the client supports.
        let peer_parameters = &request.peer_parameters;
        parameters.responder_resources = parameters
            .responder_resources
            .min(peer_parameters.responder_resources);
        parameters.initiator_depth = parameters
            .initiator_depth
            .min(peer_parameters.initiator_depth);
        let end = prepared.connect_by(|prepared| request.id.make_ready(prepared))?;
        request.id.accept(&parameters)?;
        Ok((request, end))
    }
}

fn not_confirmed(request: &ConnectionRequest, timeout: Duration) -> ConnectError {
    ConnectError::NotConfirmed {
        peer: request.peer,
        timeout,
    }
}

/// What the first event of an accepted connection says about it.
#[derive(Clone, Copy)]
enum Progress {
    Established,
    /// The client has established the connection and ended it. Its confirmation is lost, but what it sent
    /// may have arrived.
    Ended,
}

fn outcome(peer: SocketAddr, event: Event) -> Option<Result<Progress, ConnectError>> {
    match event {
        Event::Other(EventKind::Established) => Some(Ok(Progress::Established)),
        Event::Other(EventKind::Disconnected { .. }) => Some(Ok(Progress::Ended)),
        Event::Other(kind) => failure(peer, kind).map(Err),
        Event::Request(..) => None,
    }
}

fn connection<E>(request: ConnectionRequest, end: E, progress: Progress) -> Connection<E> {
    Connection {
        id: request.id,
        end,
        private_data: request.peer_parameters.private_data,
        ended: match progress {
            Progress::Established => OnceLock::new(),
            Progress::Ended => Ended::Agreed.into(),
        },
    }
}

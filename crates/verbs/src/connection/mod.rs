//! Connections: a server listens, a client connects, and both have a queue pair that is ready.
//!
//! Each side does it in two steps, because a queue pair needs a protection domain, and that needs
//! the device: first [`Listener`] or [`Connector`] tell which device it is, then the queue pair is
//! prepared, takes its first receives, and the connection is made.

mod connector;
mod listener;

use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use wire::cm::RejectReason;

pub use connector::{Connector, PreparedConnect};
pub use listener::{ConnectionRequest, Listener, PreparedAccept};

use crate::context::Context;
use crate::queue_pair::{Prepared, QueuePair, QueuePairBuilder, SetupError};
use crate::rdma_cm::{ConnectionError, Event, EventChannel, EventKind, Identifier};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Something could not be asked for.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The name of the peer means nothing.
    #[error("`{name}` can't be resolved: {source}")]
    Name {
        /// The name.
        name: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// The queue pair could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A queue pair of another device.
    #[error(
        "the queue pair's protection domain belongs to another device: make it from `context()`"
    )]
    OtherDevice,
    /// Nobody listens there.
    #[error("nobody listens at {0}: start the server first, and check address and port")]
    NobodyListens(SocketAddr),
    /// The peer refused.
    #[error("{peer} refused: {reason}")]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        reason: RejectReason,
        /// What it said.
        private_data: Vec<u8>,
    },
    /// The peer did not answer.
    #[error("{0} does not answer: is the machine up, and does UDP port 4791 get through?")]
    Unreachable(SocketAddr),
    /// The peer asked for a connection, but did not confirm the answer.
    #[error(
        "{peer} asked for a connection but did not confirm the answer within {timeout:?}: serve \
         the next request"
    )]
    NotConfirmed {
        /// The peer.
        peer: SocketAddr,
        /// How long it had.
        timeout: Duration,
    },
    /// The peer has gone away in between.
    #[error("the peer went away before the connection was there")]
    Gone,
}

/// A connection: the queue pair, ready to post.
///
/// When the peer disconnects, the queue pair breaks and what is outstanding is flushed, so whoever
/// waits for a completion gets one. Dropping it disconnects.
#[derive(Debug)]
pub struct Connection {
    // Goes first: the peer hears of the end before the queue pair stops answering.
    id: Identifier,
    queue_pair: QueuePair,
    channel: EventChannel,
    private_data: Vec<u8>,
}

impl Connection {
    /// What the peer said when it asked for the connection or accepted it; zeros fill it up.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Our own address.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Ends the connection. What is outstanding is flushed.
    pub fn disconnect(&self) -> Result<(), ConnectionError> {
        self.id.disconnect()
    }

    /// Waits until the connection has ended, on whichever side; whether it has.
    pub fn wait_disconnected(&self, timeout: Duration) -> bool {
        let deadline = crate::clock::now() + timeout;
        while let Some(event) = self.channel.wait_until(Some(deadline)) {
            if is_end(&event) {
                return true;
            }
        }
        false
    }

    /// As soon as the connection has ended, on whichever side.
    #[cfg(feature = "async")]
    pub async fn disconnected(&self) {
        while !is_end(&self.channel.next().await) {}
    }
}

impl Deref for Connection {
    type Target = QueuePair;

    fn deref(&self) -> &QueuePair {
        &self.queue_pair
    }
}

fn is_end(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::Disconnected { .. } | EventKind::DeviceRemoval
    )
}

/// A queue pair for a connection over this device.
fn prepare(context: &Context, queue_pair: QueuePairBuilder) -> Result<Prepared, ConnectError> {
    let prepared = queue_pair.reliable()?;
    match prepared.is_at(context) {
        true => Ok(prepared),
        false => Err(ConnectError::OtherDevice),
    }
}

/// What a failure event means to who waits for a connection; nothing for other events.
fn failure(peer: SocketAddr, kind: EventKind) -> Option<ConnectError> {
    match kind {
        EventKind::Rejected {
            reason: RejectReason::InvalidServiceId,
            ..
        } => Some(ConnectError::NobodyListens(peer)),
        EventKind::Rejected {
            reason,
            private_data,
        } => Some(ConnectError::Rejected {
            peer,
            reason,
            private_data,
        }),
        EventKind::Unreachable(_) => Some(ConnectError::Unreachable(peer)),
        EventKind::Disconnected { .. } | EventKind::DeviceRemoval | EventKind::ConnectError(_) => {
            Some(ConnectError::Gone)
        }
        EventKind::AddressError(failure) | EventKind::RouteError(failure) => {
            let source = std::io::Error::from_raw_os_error(-failure.status());
            let peer = peer.ip();
            Some(ConnectionError::NoRoute { peer, source }.into())
        }
        _ => None,
    }
}
